package main

import (
	"bytes"
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/door/top"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
)

func newTop() *command {
	every := time.Second
	return &command{
		name: "top", group: groupObserve,
		usage: "watch pipelines, sidecars, slots and the last errors on a terminal; q ends it",
		description: "Reads the database only, so it works without a running sidecar. RATE is measured between two " +
			"refreshes, LAG is the age of the oldest waiting change. If standard output is no terminal, it " +
			"prints once. For watching a backfill or an incident; status --watch on a terminal is the same.",
		flags:    []cli.Flag{own.duration("every", &every, "`TIME` between two refreshes")},
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
	memory := &observe.Memory{}
	frame := func() ([]byte, error) {
		d, err := observe.Read(ctx, pool, memory, observe.FewFailures, e.redact.Text)
		if err != nil {
			return nil, err
		}
		var b bytes.Buffer
		to := *e.out
		to.To = &b
		if !to.ForPeople() {
			err = to.Show(d, func() output.Table { return pipelineTable(d.Pipelines) })
		} else {
			err = view.Frame(&d, time.Now()).Print(&b, func(t top.Table) error { return to.Table(output.Table(t)) })
		}
		return b.Bytes(), err
	}
	if !output.IsTerminal(e.stdout) || !e.out.ForPeople() {
		b, err := frame()
		if err == nil {
			_, err = e.stdout.Write(b)
		}
		return err
	}
	screen := output.Screen{Keys: e.stdin, To: e.stdout}
	ctx, leave, err := screen.Enter(ctx)
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
		if err := screen.Paint(b); err != nil {
			return err
		}
		if !sleep.For(ctx, every) {
			return nil
		}
	}
}
