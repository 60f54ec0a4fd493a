package host

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// memory returns the resident memory of the group in bytes. A shared page counts once per process.
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

// residentPages returns a process's resident pages. It returns false if the process has ended or is not in the group.
func residentPages(folder string, pgid int) (int64, bool) {
	stat, err := os.ReadFile(filepath.Join(folder, "stat"))
	if err != nil {
		return 0, false
	}
	// The fields after the name, which may contain anything: state ppid pgrp ...; resident pages are field 24 of the
	// line.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	const group, rss = 2, 21
	if len(fields) <= rss || fields[group] != strconv.Itoa(pgid) {
		return 0, false
	}
	resident, err := strconv.ParseInt(fields[rss], 10, 64)
	return resident, err == nil
}

// expendable makes the kernel's OOM killer prefer a process and its children to the database. This needs no privileges.
func expendable(pid int) error {
	return os.WriteFile(filepath.Join("/proc", strconv.Itoa(pid), "oom_score_adj"), []byte("500"), 0)
}

// killStrays kills processes that a plugin started and that left its process group. It finds them by their environment,
// which names the folder of sockets or one below it. Only the host and its plugins know these folders.
func killStrays(dir string) {
	const rounds = 5 // they may be starting more
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
		// A pid could be reused between the check and the kill; a pidfd cannot.
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

// names reports whether go-plugin's variable for the folder of sockets names dir or a folder below it.
func names(environ []byte, dir string) bool {
	for entry := range strings.SplitSeq(string(environ), "\x00") {
		if value, ok := strings.CutPrefix(entry, "PLUGIN_UNIX_SOCKET_DIR="); ok &&
			(value == dir || strings.HasPrefix(value, dir+"/")) {
			return true
		}
	}
	return false
}
