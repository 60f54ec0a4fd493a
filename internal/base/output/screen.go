package output

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	bars "github.com/jedib0t/go-pretty/v6/progress"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

// Screen is a terminal that shows one frame after the other in the same place.
type Screen struct {
	Keys io.Reader
	To   io.Writer
}

// Terminal sequences: use the alternate screen without line wrap, and restore it; move to the top, clear the rest of a
// line, and the rest of the screen.
const (
	enterScreen, leaveScreen = "\x1b[?1049h\x1b[?7l\x1b[?25l", "\x1b[?25h\x1b[?7h\x1b[?1049l"
	firstLine, restOfLine    = "\x1b[H", "\x1b[K"
	restOfScreen             = "\x1b[J"
)

// Paint replaces the frame, as far as the new one fits.
func (s *Screen) Paint(frame []byte) error {
	rows := bytes.Split(bytes.TrimRight(frame, "\n"), []byte("\n"))
	if f, is := s.To.(*os.File); is {
		if _, height, err := term.GetSize(int(f.Fd())); err == nil && height > 0 {
			rows = rows[:min(len(rows), height)]
		}
	}
	_, err := fmt.Fprintf(s.To, "%s%s%s%s", firstLine, bytes.Join(rows, []byte(restOfLine+"\r\n")), restOfLine,
		restOfScreen)
	return err
}

// Enter takes over the terminal until leave is called. The returned context ends when the user types q or Ctrl-C, which
// is not a signal in raw mode.
func (s *Screen) Enter(ctx context.Context) (_ context.Context, leave func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	restore := func() {}
	if keys, is := s.Keys.(*os.File); is && term.IsTerminal(int(keys.Fd())) {
		before, err := term.MakeRaw(int(keys.Fd()))
		if err != nil {
			cancel()
			return ctx, nil, err
		}
		restore = func() { _ = term.Restore(int(keys.Fd()), before) } // as below
		go func() {
			key := make([]byte, 1)
			for {
				if _, err := keys.Read(key); err != nil || slices.Contains([]byte{'q', 'Q', 'C' - '@', 'D' - '@'}, key[0]) {
					cancel()
					return
				}
			}
		}()
	}
	if _, err := io.WriteString(s.To, enterScreen); err != nil {
		restore()
		cancel()
		return ctx, nil, err
	}
	return ctx, func() {
		_, _ = io.WriteString(s.To, leaveScreen) // the program ends: nothing else to do
		restore()
		cancel()
	}, nil
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// UseColor decides by flag, then by NO_COLOR and TERM, then by whether the output is a terminal.
func UseColor(flag string, environ []string, terminal bool) bool {
	vars := map[string]string{}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		vars[name] = value
	}
	switch {
	case flag == "always":
		return true
	case flag == "never", vars["NO_COLOR"] != "", vars["TERM"] == "dumb":
		return false
	}
	return terminal
}

// Color is the color of a word.
type Color = text.Color

// The colors of results.
const (
	Green  = text.FgGreen
	Yellow = text.FgYellow
	Red    = text.FgRed
)

// Fill wraps a text at a readable width; all lines but the first are indented.
func Fill(s string, indent int) string {
	const width = 110
	lines := strings.Split(text.WrapSoft(s, width-indent), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.Join(lines, "\n"+strings.Repeat(" ", indent))
}

// Bars shows a progress bar on a terminal for each of several downloads. grow takes the number of bytes present and the
// total, below 0 if unknown. finished ends them.
func Bars(to io.Writer, color bool) (grow func(name string, done, total int64), finished func()) {
	const barWidth, least = 30, 1 << 16 // minimum size for a bar
	w := bars.NewWriter()
	w.SetOutputWriter(to)
	w.SetTrackerLength(barWidth)
	w.SetUpdateFrequency(100 * time.Millisecond)
	w.Style().Options.Separator = " "
	if !color {
		w.SetStyle(bars.StyleDefault)
	}
	trackers := map[string]*bars.Tracker{}
	grow = func(name string, done, total int64) {
		tracker, ok := trackers[name]
		if !ok && total >= 0 && total < least {
			return
		}
		if !ok {
			tracker = &bars.Tracker{Message: name, Total: max(total, 0), Units: bars.UnitsBytes}
			trackers[name] = tracker
			w.AppendTracker(tracker)
		}
		tracker.SetValue(done)
		if total >= 0 && done >= total {
			tracker.MarkAsDone()
		}
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		w.Render()
	}()
	return grow, func() {
		for _, tracker := range trackers {
			if !tracker.IsDone() {
				tracker.MarkAsErrored()
			}
		}
		for ended := false; !ended; {
			w.Stop() // has no effect if the bars have not started yet
			select {
			case <-over:
				ended = true
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
}
