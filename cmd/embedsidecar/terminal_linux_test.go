package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/embedsidecar/embedsidecar/testenv"
	"github.com/embedsidecar/embedsidecar/testenv/logs"
)

// TestStatus_WatchPaintsATerminal: on a terminal --watch paints pictures in place of each other, no higher than the
// terminal, on a screen of their own; q ends it, and leaves the terminal as it was.
func TestStatus_WatchPaintsATerminal(t *testing.T) {
	t.Parallel()
	const height = 4 // fewer than a picture has lines
	s := newStage(t, 3)
	s.run(0, "init", "--pipeline", "docs: title, body -> embedding")
	keys, screen := terminal(t, height)
	before, err := unix.IoctlGetTermios(int(screen.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	var seen logs.Buffer
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(&seen, keys) // until the last who has the terminal open closes it
	}()
	c := s.command("status", "--watch", "--every", "50ms")
	c.Stdin, c.Stdout, c.Stderr = screen, screen, screen
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	defer func() { _ = c.Process.Kill() }()
	const first = "\x1b[H" // to the first line
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		return strings.Count(seen.String(), first) > 2, fmt.Sprintf("%q", seen.String())
	})
	pictures := strings.Split(seen.String(), first)
	for _, p := range pictures[1 : len(pictures)-1] {
		if lines := strings.Count(p, "\n") + 1; lines != height || !strings.HasPrefix(p, "embedsidecar ") {
			t.Errorf("a picture has %d lines, want %d: %q", lines, height, p)
		}
	}
	if _, err := keys.WriteString("q"); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("after q: %v: %q", err, seen.String())
	}
	after, err := unix.IoctlGetTermios(int(screen.Fd()), unix.TCGETS)
	if err != nil || *after != *before {
		t.Errorf("the terminal was %+v, is %+v (%v)", before, after, err)
	}
	_ = screen.Close()
	<-read
	if all := seen.String(); strings.Count(all, "\x1b[?1049h") != 1 || strings.Count(all, "\x1b[?1049l") != 1 ||
		strings.Count(all, "\x1b[?25l") != strings.Count(all, "\x1b[?25h") {
		t.Errorf("it does not leave the screen and the cursor as they were: %q", all)
	}
}

// terminal makes a terminal of so many lines: what a person types and sees, and what a program has of it.
func terminal(t *testing.T, height uint16) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = person.Close() })
	fd := int(person.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: height, Col: 200}); err != nil {
		t.Fatal(err)
	}
	return person, program
}
