package output

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"golang.org/x/term"
)

// Screen is a terminal that shows one picture after the other, each in the place of the one before.
type Screen struct {
	Keys io.Reader
	To   io.Writer
}

// How a terminal is told to show a picture of its own and no line in two rows, and how to go back; where to begin one
// again, and what to take away behind a line and behind all.
const (
	enterScreen, leaveScreen = "\x1b[?1049h\x1b[?7l\x1b[?25l", "\x1b[?25h\x1b[?7h\x1b[?1049l"
	firstLine, restOfLine    = "\x1b[H", "\x1b[K"
	restOfScreen             = "\x1b[J"
)

// Paint shows a frame in the place of the one before, as much of it as fits.
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

// Enter takes the terminal until leave is called. The context that it returns ends when somebody types q, or Ctrl-C,
// which a terminal that gives each key at once takes for no signal.
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
		_, _ = io.WriteString(s.To, leaveScreen) // the program ends: nobody could do more
		restore()
		cancel()
	}, nil
}
