package host

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// memory returns how many bytes of memory the processes of the group hold. Pages that they share count for each.
func (g *group) memory() int64 {
	all := g.looks%looksAtMembers == 0
	g.looks++
	folders := g.members
	if all {
		folders, _ = filepath.Glob("/proc/[0-9]*")
		g.members = nil
	}
	var pages int64
	for _, folder := range folders {
		resident, ok := residentPages(folder, g.id)
		if !ok {
			continue
		}
		pages += resident
		if all {
			g.members = append(g.members, folder)
		}
	}
	return pages * int64(os.Getpagesize())
}

// residentPages returns what a process holds. False: it has ended, or is of another group.
func residentPages(folder string, pgid int) (int64, bool) {
	stat, err := os.ReadFile(filepath.Join(folder, "stat"))
	if err != nil {
		return 0, false
	}
	// After the name, which may hold anything: state ppid pgrp ...; resident pages are the 24th field of all.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	const group, rss = 2, 21
	if len(fields) <= rss || fields[group] != strconv.Itoa(pgid) {
		return 0, false
	}
	resident, err := strconv.ParseInt(fields[rss], 10, 64)
	return resident, err == nil
}

// expendable makes a process and what it starts the first that the kernel ends when the machine is out of memory:
// anything but the database. Anybody may raise this figure of his own processes.
func expendable(pid int) error {
	return os.WriteFile(filepath.Join("/proc", strconv.Itoa(pid), "oom_score_adj"), []byte("500"), 0)
}

// killStrays kills processes of this user whose environment names a folder of sockets, or one below it: what a plugin
// has started and what has left its group. Only the host and its plugins know these folders.
func killStrays(dir string) {
	const rounds = 5 // they may be starting others
	for range rounds {
		if killStraysOnce(dir) == 0 {
			return
		}
	}
}

func killStraysOnce(dir string) (killed int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		// The number could become somebody else's between the look and the kill; the descriptor cannot.
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		if env, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "environ")); err == nil && names(env, dir) {
			if unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil {
				killed++
				go func() {
					reapAll(unix.P_PIDFD, fd)
					_ = unix.Close(fd)
				}()
				continue
			}
		}
		_ = unix.Close(fd)
	}
	return killed
}

// names reports whether an environment has go-plugin's variable for the folder of sockets set to this one or one
// below it.
func names(environ []byte, dir string) bool {
	for entry := range strings.SplitSeq(string(environ), "\x00") {
		if value, ok := strings.CutPrefix(entry, "PLUGIN_UNIX_SOCKET_DIR="); ok &&
			(value == dir || strings.HasPrefix(value, dir+"/")) {
			return true
		}
	}
	return false
}
