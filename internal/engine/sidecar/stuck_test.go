package sidecar_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	"github.com/embedsidecar/embedsidecar/queue"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// told waits until the tables say so of docs.
func (r *rig) told(code health.Code, words string) {
	r.t.Helper()
	testenv.Eventually(r.t, waitTimeout, func() (bool, string) {
		status, err := report.Options{AtOnce: true}.Read(r.t.Context(), r.db.Pool)
		if err != nil {
			r.t.Fatal(err)
		}
		s := status.Pipelines[0].Health()
		return s.Code == code && strings.Contains(s.Reason, words), fmt.Sprintf("%s: %s; want %s", s.Code, s, code)
	})
}

// TestP10_AStreamThatIsStuckSaysSo: one that cannot connect, and one that connects again and again and cannot queue
// what comes. Nothing is called up to date meanwhile, and when it streams again it says that at once.
func TestP10_AStreamThatIsStuckSaysSo(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		breaks, mends func(r *rig, refuse *atomic.Bool)
		words         string
	}{
		"no connection": {
			func(r *rig, refuse *atomic.Bool) {
				refuse.Store(true)
				r.db.MustExecSuper(`SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = current_database() AND active`)
			},
			func(_ *rig, refuse *atomic.Bool) { refuse.Store(false) },
			"no way through",
		},
		"no way to queue": {
			func(r *rig, _ *atomic.Bool) { r.db.MustExec(`REVOKE INSERT ON embedsidecar.task FROM ` + r.role) },
			func(r *rig, _ *atomic.Bool) { r.db.MustExec(`GRANT INSERT ON embedsidecar.task TO ` + r.role) },
			"permission denied for table task",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testenv.DB(t)
			db.MustExec(docs)
			r := newRig(t, db, intoTable("docs", "body"))
			var refuse atomic.Bool
			r.options = func(o *sidecar.Options) {
				dial := o.Dial
				o.Dial = func(ctx context.Context) (*pgconn.PgConn, error) {
					if refuse.Load() {
						return nil, errors.New("no way through")
					}
					return dial(ctx)
				}
			}
			r.start()
			r.edit("a ")
			r.settle()
			r.told(health.UpToDate, "")
			test.breaks(r, &refuse)
			r.edit("b ")
			r.told(health.StreamStuck, test.words)
			test.mends(r, &refuse)
			r.settle()
			r.told(health.UpToDate, "")
			r.verify()
		})
	}
}

// TestP9_AFloodOfNotifications: any role may notify, and what the streamer is told makes it look, no more.
func TestP9_AFloodOfNotifications(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	r := newRig(t, db, intoTable("docs", "body"))
	s, _ := r.start()
	r.edit("a ")
	r.settle()
	reconnects := s.Stream().Reconnects.Load()
	for i := range 10 {
		db.MustExec(`SELECT count(pg_notify($1, i::text)) FROM generate_series(1, 20000) AS i`, queue.Waiting)
		r.edit(fmt.Sprintf("b %d ", i))
	}
	r.settle()
	r.verify()
	// Nothing of it stays in the server's queue either. Whoever listens in other databases may leave a few pages there.
	const fewPages, queuePages = 10., 1 << 20
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		usage := testenv.Value[float64](db, `SELECT pg_notification_queue_usage()`)
		return usage < fewPages/queuePages, fmt.Sprintf("%v of the queue is full", usage)
	})
	if n := s.Stream().Reconnects.Load(); n != reconnects {
		t.Errorf("the stream was interrupted %d times", n-reconnects)
	}
}
