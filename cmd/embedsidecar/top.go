package main

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/embedsidecar/embedsidecar/internal/node/observe"
	"github.com/embedsidecar/embedsidecar/internal/report"
	"github.com/embedsidecar/embedsidecar/internal/sleep"
	"github.com/embedsidecar/embedsidecar/internal/top"
	"github.com/embedsidecar/embedsidecar/internal/wording"
)

func newTop() *command {
	every := time.Duration(0)
	return &command{
		name: "top", group: groupObserve, usage: "watch pipelines, sidecars, slots and the last errors on a terminal; q ends it",
		description: "Asks the database only, so it also works while no sidecar runs. RATE is measured from one look to the next, LAG the age of the oldest change that waits. Where standard output is no terminal it is printed once. status --watch on a terminal is the same.",
		flags: []cli.Flag{&cli.DurationFlag{
			Name: "every", Value: time.Second, Destination: &every, Usage: "`TIME` between two looks",
		}},
		settings: databaseGroups,
		run: func(ctx context.Context, env *environment) error {
			pool, err := env.lookAt(ctx)
			if err != nil {
				return err
			}
			defer pool.Close()
			return env.top(ctx, pool, every)
		},
	}
}

// top shows frames until somebody ends it, or one where nobody could watch.
func (e *environment) top(ctx context.Context, pool *pgxpool.Pool, every time.Duration) (err error) {
	var view top.View
	counts := &report.Counts{}
	frame := func() ([]byte, error) {
		d, err := observe.Read(ctx, pool, counts, observe.FewFailures, e.redact.Text)
		if err != nil {
			return nil, err
		}
		var b bytes.Buffer
		to := *e
		to.stdout = &b
		if e.output != "table" {
			err = to.show(d, func() listing { return pipelineListing(d.Pipelines) })
		} else {
			err = to.frame(view.Frame(&d, time.Now()))
		}
		return b.Bytes(), err
	}
	if !isTerminal(e.stdout) || e.output != "table" {
		b, err := frame()
		if err == nil {
			_, err = e.stdout.Write(b)
		}
		return err
	}
	ctx, leave, err := e.screen(ctx)
	if err != nil {
		return err
	}
	defer leave()
	for {
		b, err := frame()
		switch {
		case ctx.Err() != nil:
			return nil // that is how it is told to stop
		case err != nil:
			return err
		}
		if err := e.paint(b); err != nil {
			return err
		}
		if !sleep.For(ctx, every) {
			return nil
		}
	}
}

// frame prints what is seen at a time.
func (e *environment) frame(f top.Frame) error {
	lines := func(list []string, mark string) error {
		for _, line := range list {
			if err := e.printf("%s%s\n", mark, wording.OneLine(line)); err != nil {
				return err
			}
		}
		return nil
	}
	table := func(t top.Table) error {
		if len(t.Rows) == 0 {
			return nil
		}
		if err := e.printf("\n"); err != nil {
			return err
		}
		return e.list(listing{header: t.Header, rows: t.Rows, right: t.Right})
	}
	for _, part := range []func() error{
		func() error { return lines([]string{f.Head}, "") },
		func() error { return table(f.Pipelines) },
		func() error { return lines(f.Bars, "") },
		func() error { return table(f.Sidecars) },
		func() error { return table(f.Slots) },
		func() error { return e.printf("%s", strings.Repeat("\n", min(len(f.Remarks), 1))) },
		func() error { return lines(f.Remarks, "! ") },
	} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

// How a terminal is told to show a picture of its own and no line in two rows, and how to go back; where to begin one
// again, and what to take away behind a line and behind all.
const (
	enterScreen, leaveScreen = "\x1b[?1049h\x1b[?7l\x1b[?25l", "\x1b[?25h\x1b[?7h\x1b[?1049l"
	firstLine, restOfLine    = "\x1b[H", "\x1b[K"
	restOfScreen             = "\x1b[J"
)

// paint shows a frame in the place of the one before, as much of it as fits.
func (e *environment) paint(frame []byte) error {
	rows := bytes.Split(bytes.TrimRight(frame, "\n"), []byte("\n"))
	if f, is := e.stdout.(*os.File); is {
		if _, height, err := term.GetSize(int(f.Fd())); err == nil && height > 0 {
			rows = rows[:min(len(rows), height)]
		}
	}
	return e.printf("%s%s%s%s", firstLine, bytes.Join(rows, []byte(restOfLine+"\r\n")), restOfLine, restOfScreen)
}

// screen takes the terminal until leave is called. The context that it returns ends when somebody types q, or Ctrl-C,
// which a terminal that gives each key at once takes for no signal.
func (e *environment) screen(ctx context.Context) (_ context.Context, leave func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	restore := func() {}
	if keys, is := e.stdin.(*os.File); is && term.IsTerminal(int(keys.Fd())) {
		before, err := term.MakeRaw(int(keys.Fd()))
		if err != nil {
			cancel()
			return ctx, nil, err
		}
		restore = func() { _ = term.Restore(int(keys.Fd()), before) } // the program ends: nobody could do more
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
	if err := e.printf("%s", enterScreen); err != nil {
		restore()
		cancel()
		return ctx, nil, err
	}
	return ctx, func() {
		_ = e.printf("%s", leaveScreen)
		restore()
		cancel()
	}, nil
}
