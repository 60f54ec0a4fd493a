package sidecar_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// Whoever looks once is told how fast rows are worked, when nothing is left, and how fast the embedder is; when nothing
// is done any more, nothing is said, and nothing written.
func TestP10_StatusTellsSpeedAndEndToWhoLooksOnce(t *testing.T) {
	t.Parallel()
	const rows, batch, call = 4000, 10, 250 * time.Millisecond
	db := testenv.DB(t)
	db.MustExec(docs)
	db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, $1::int) AS i`, rows)
	r := newRig(t, db, intoTable("docs", "body"))
	r.options = func(o *sidecar.Options) { o.BatchRows, o.Loops, o.Heartbeat = batch, 2, time.Second }
	gate := make(chan struct{})
	r.embedder.hook(func(ctx context.Context, _ []string) error {
		select {
		case <-gate:
		case <-time.After(call):
		case <-ctx.Done():
			return ctx.Err()
		}
		return nil
	})
	pool := connect(t, r.url, 2)
	status := func() report.Pipeline {
		t.Helper()
		st, err := report.Read(t.Context(), pool)
		if err != nil {
			t.Fatal(err)
		}
		return st.Pipelines[0]
	}
	r.start()
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		p := status()
		told := fmt.Sprintf("%+v, %g s left of %d rows, %q", p.Speed, p.SecondsLeft, p.Open(), p.SpeedLine())
		return p.Speed.Rows > 0 && p.Speed.Texts > 0 && p.Speed.CallMilliseconds >= float64(call.Milliseconds()) &&
			p.SecondsLeft > 0, told
	})
	close(gate)
	r.settle()
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		p := status()
		return p.SpeedLine() == "" && p.SecondsLeft == 0, p.SpeedLine()
	})
	if n := r.count(`SELECT count(*) FROM embedsidecar.workers WHERE speeds <> '{}' OR role <> 'all'`); n != 0 {
		t.Errorf("%d sidecars tell a speed, or another role", n)
	}
}
