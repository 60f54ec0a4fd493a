package main

import (
	"bytes"
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/door/top"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
)

// watch shows frames on a terminal until it is interrupted.
func (e *environment) watch(ctx context.Context, pool *pgxpool.Pool, every time.Duration) (err error) {
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
		err = view.Frame(&d, time.Now()).Print(&b, func(t top.Table) error { return to.Table(output.Table(t)) })
		return b.Bytes(), err
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
