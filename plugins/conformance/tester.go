package conformance

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/host"
)

// tester holds the plugin under test.
type tester struct {
	opts    Options
	said    *recorder
	run     *host.Inspection  // nil: not running
	started bool              // it came up once
	about   embed.Description // of the first start
	// symmetric is what it said of the model; embed.Description has no place for it.
	symmetric bool
	usual     [][]float32 // vectors of usualTexts, each embedded alone
}

// check runs one check and words what went wrong in it.
func (t *tester) check(ctx context.Context, c check) Check {
	began := time.Now()
	f := t.finding(ctx, c)
	return Check{
		ID: c.id, Title: c.title, Verdict: f.verdict, Measured: f.measured, Advice: f.advice,
		Seconds: time.Since(began).Seconds(),
	}
}

// finding is what a check finds, or why it was abandoned.
func (t *tester) finding(ctx context.Context, c check) (f finding) {
	defer func() {
		switch why := recover().(type) {
		case nil:
		case abandoned:
			advice := c.advice
			var own *callError
			if errors.As(why.err, &own) && own.advice != "" {
				advice = own.advice
			}
			f = fail(advice, "%s", why.err)
		default:
			panic(why)
		}
	}()
	return c.run(ctx, t)
}

// abandoned is why a check has ended in the middle.
type abandoned struct{ err error }

// abandon ends a check, as FailNow does a test. Only the goroutine of the check may call it.
func abandon(err error) { panic(abandoned{err}) }

// must abandons the check where a call has failed.
func must[T any](value T, err error) T {
	if err != nil {
		abandon(err)
	}
	return value
}

// plugin returns the running plugin, started anew when it is gone.
func (t *tester) plugin(ctx context.Context) (*host.Inspection, error) {
	if t.run != nil {
		select {
		case <-t.run.Gone():
			t.stop()
		default:
			return t.run, nil
		}
	}
	run, err := host.Inspect(ctx, host.Options{
		Path: t.opts.Path, Args: t.opts.Args, Env: maps.Clone(t.opts.Env), Model: t.opts.Model, TempDir: t.opts.TempDir,
		Log: slog.New(t.said),
	})
	if err != nil {
		return nil, err
	}
	t.run = run
	return run, nil
}

// stop ends the plugin.
func (t *tester) stop() {
	if t.run != nil {
		_ = t.run.Close() // a folder of sockets that stays is swept by the next host
		t.run = nil
	}
}
