// Package owned checks whether other users of this machine control a file's content.
package owned

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Error means that users other than root and this process's user may write to a file, or replace it.
type Error struct {
	Path   string // of the file, or of a folder or link on the way to it
	Folder string // writable by every user; "": the file itself
	Mode   fs.FileMode
}

func (e *Error) Error() string {
	switch {
	case e.Folder == "":
		return fmt.Sprintf("every user of this machine may write %s (%s): run chmod o-w on it", e.Path, e.Mode.Perm())
	case e.Mode&fs.ModeSticky == 0:
		return fmt.Sprintf("every user of this machine may replace %s: run chmod o-w on its folder %s (%s), or mount that "+
			"read-only", e.Path, e.Folder, e.Mode)
	}
	return fmt.Sprintf("%s is another user's, in a folder where every user of this machine may put files (%s, %s): "+
		"use a folder of your own, or change its owner", e.Path, e.Folder, e.Mode)
}

// Check returns an *Error if every user of this machine can control a file's content: by its mode, or by a folder on
// the way to it, including behind symbolic links. In a folder with the sticky bit, only the owners of folder and entry
// can. In a read-only file system nobody can, for example in a container's configuration volumes.
func Check(path string) error {
	return check(path, uint32(os.Geteuid()), readOnly) //nolint:gosec // user ids are not negative
}

// readOnly reports whether a path is on a read-only file system.
func readOnly(path string) bool {
	const flag = 1 // ST_RDONLY, which is MNT_RDONLY elsewhere
	var st syscall.Statfs_t
	return syscall.Statfs(path, &st) == nil && st.Flags&flag != 0
}

func check(path string, user uint32, readOnly func(string) bool) error {
	const everybody, separator = 0o002, string(filepath.Separator)
	if !filepath.IsAbs(path) {
		here, err := os.Getwd()
		if err != nil {
			return err
		}
		path = here + separator + path // not Join, which turns a/../b into b, although a may be a link
	}
	at, way, links := separator, strings.Split(path, separator), 0
	for len(way) > 0 {
		folder, err := os.Lstat(at)
		if err != nil {
			return err
		}
		next, down := filepath.Join(at, way[0]), way[0] != "" && way[0] != "." && way[0] != ".."
		entry, err := os.Lstat(next)
		if err != nil {
			return err
		}
		way = way[1:]
		open := down && folder.Mode().Perm()&everybody != 0
		if open && (folder.Mode()&fs.ModeSticky == 0 || foreign(folder, user) || foreign(entry, user)) && !readOnly(at) {
			return &Error{Path: next, Folder: at, Mode: folder.Mode()}
		}
		if entry.Mode()&fs.ModeSymlink == 0 {
			if at = next; entry.Mode().IsRegular() && entry.Mode().Perm()&everybody != 0 && !readOnly(at) {
				return &Error{Path: at, Mode: entry.Mode()}
			}
			continue
		}
		const most = 40 // the limit of operating systems
		if links++; links > most {
			return fmt.Errorf("%s: %w", path, syscall.ELOOP)
		}
		target, err := os.Readlink(next)
		if err != nil {
			return err
		}
		if filepath.IsAbs(target) {
			at = separator
		}
		way = append(strings.Split(target, separator), way...)
	}
	return nil
}

// foreign reports whether a file belongs to neither root nor the user.
func foreign(info fs.FileInfo, user uint32) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Uid != 0 && st.Uid != user
}
