package main

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// plainEvery is the time between two lines of progress where the line cannot be drawn again.
const plainEvery = 5 * time.Second

// console prints lines and, below them, one line of progress that is drawn again and again on a terminal.
type console struct {
	mu       sync.Mutex
	w        *os.File
	terminal bool
	drawn    string    // the line of progress that is on the screen
	kept     string    // the last one that was not printed, where there is no terminal
	plain    time.Time // of the last one that was
}

func newConsole(w *os.File) *console {
	info, err := w.Stat()
	dumb := os.Getenv("TERM") == "dumb"
	return &console{w: w, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0 && !dumb}
}

// say prints a line.
func (c *console) say(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.drawn != "" {
		fmt.Fprint(c.w, "\r\x1b[K")
	}
	fmt.Fprintf(c.w, format+"\n", args...)
	if c.drawn != "" {
		fmt.Fprint(c.w, c.drawn)
	}
}

// heading prints what comes next.
func (c *console) heading(format string, args ...any) { c.say("\n== "+format, args...) }

// progress draws the line of progress; without a terminal it prints one every few seconds.
func (c *console) progress(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.terminal:
		// A line that is wrapped could not be drawn again.
		if size, err := unix.IoctlGetWinsize(int(c.w.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 {
			line = line[:min(len(line), int(size.Col)-1)]
		}
		fmt.Fprint(c.w, "\r\x1b[K", line)
		c.drawn = line
	case time.Since(c.plain) >= plainEvery:
		fmt.Fprintln(c.w, line)
		c.plain, c.kept = time.Now(), ""
	default:
		c.kept = line
	}
}

// endProgress leaves the line of progress as it is and goes on below it.
func (c *console) endProgress() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.drawn != "" || c.kept != "" {
		fmt.Fprintln(c.w, c.kept)
	}
	c.drawn, c.kept, c.plain = "", "", time.Time{}
}

// bar measures how fast something goes on and draws it.
type bar struct {
	start time.Time
	first int // done at the start
	last  time.Time
	done  int
	rate  float64 // per second, of late
}

func newBar(done int) *bar {
	now := time.Now()
	return &bar{start: now, last: now, first: done, done: done}
}

// set notes how much is done and returns the line to draw.
func (b *bar) set(done, of int) string {
	const width, memory = 24, 5 // memory: seconds that count for the rate
	now := time.Now()
	if passed := now.Sub(b.last).Seconds(); passed > 0 {
		now := float64(done-b.done) / passed
		weight := 1 - math.Exp(-passed/memory)
		if b.rate == 0 {
			weight = 1
		}
		b.rate += weight * (max(now, 0) - b.rate)
	}
	b.last, b.done = now, done
	of = max(of, done, 1)
	full := width * done / of
	eta := "-"
	if left := of - done; left == 0 {
		eta = "0s"
	} else if b.rate > 0 {
		eta = (time.Duration(float64(left)/b.rate) * time.Second).String()
	}
	return fmt.Sprintf("  [%s%s] %3d %%  %s of %s vectors  %4.0f/s  ETA %s",
		strings.Repeat("#", full), strings.Repeat(".", width-full), 100*done/of, thousands(done), thousands(of), b.rate, eta)
}

// thousands writes a number with commas.
func thousands[N int | int64](n N) string {
	s := strconv.FormatInt(int64(n), 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// span writes a duration with two or three digits that mean something.
func span(d time.Duration) string {
	switch ms := float64(d) / float64(time.Millisecond); {
	case ms < 10:
		return fmt.Sprintf("%.1f ms", ms)
	case ms < 1000:
		return fmt.Sprintf("%.0f ms", ms)
	default:
		return fmt.Sprintf("%.2f s", ms/1000)
	}
}
