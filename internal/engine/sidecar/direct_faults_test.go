package sidecar_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/failpoint"
	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// straight changes one row again and again, until a sidecar has worked such a change at once.
func (r *rig) straight(s *sidecar.Sidecar) {
	r.t.Helper()
	before, n := s.Stream().Direct.Load(), 0
	testenv.Eventually(r.t, waitTimeout, func() (bool, string) {
		n++
		r.db.MustExec(`UPDATE docs SET body = $1 WHERE id = 1`, fmt.Sprint("straight ", n))
		r.settle()
		return s.Stream().Direct.Load() > before, "no change is worked at once"
	})
}

// P9: while an embedder is dead, changes that would be worked at once are queued, and no WAL is kept for them. When it
// lives again they are embedded, each once, and what comes then is worked at once as before.
func TestP9_ADeadEmbedderKeepsNoWAL(t *testing.T) {
	t.Parallel()
	bothDestinations(t, func(t *testing.T, spec func(table string, columns ...string) pipeline.Spec) {
		t.Helper()
		const rows = 30
		db := testenv.DB(t)
		db.MustExec(docs)
		db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, $1::int) AS i`, rows)
		r := newRig(t, db, spec("docs", "body"))
		r.options = unhurried
		s, _ := r.start()
		r.settle()
		r.straight(s)
		r.embedder.hook(func(context.Context, []string) error {
			return &embed.Error{Class: embed.Transient, Code: "dead", Err: errors.New("nobody is there")}
		})
		for i := range rows {
			db.MustExec(`UPDATE docs SET body = 'dead ' || id WHERE id = $1`, i+1)
		}
		end := testenv.Value[string](db, `SELECT pg_current_wal_lsn()::text`)
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			tasks := r.count(`SELECT count(*) FROM embedsidecar.task`)
			return tasks == rows && testenv.Value[bool](db, `SELECT k.lsn >= $1::text::pg_lsn AND s.confirmed_flush_lsn >= $1::text::pg_lsn
				FROM embedsidecar.lsn_checkpoint AS k JOIN pg_replication_slots AS s USING (slot_name)`, end),
				fmt.Sprintf("%d of %d changes are queued, or WAL is kept for them", tasks, rows)
		})
		sent := r.embedder.counts()
		r.embedder.hook(nil)
		r.settle()
		again := r.embedder.counts()
		for i := range rows {
			text := fmt.Sprint("dead ", i+1)
			if n := again[text] - sent[text]; n != 1 {
				t.Errorf("%q was sent %d times after the embedder was there again", text, n)
			}
		}
		r.verify()
		r.straight(s)
		r.verify()
	})
}

// P3: a streamer that stands still with changes it works at once loses the slot to another sidecar, which works them
// and those that came after. What it had read, or embedded, it writes no more: neither over newer text, nor of a row
// that is gone.
func TestP3_AStreamerThatWasReplacedWritesNothing(t *testing.T) {
	for _, place := range []string{"direct/screened", "direct/after-read", "direct/after-embed"} {
		for destination, spec := range map[string]pipeline.Spec{"column": column("docs", "body"), "table": intoTable("docs",
			"body")} {
			t.Run(place+"/"+destination, func(t *testing.T) {
				db := testenv.DB(t)
				db.MustExec(docs)
				db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, 5) AS i`)
				r := newRig(t, db, spec)
				r.options = unhurried
				first, _ := r.start()
				r.settle()
				r.straight(first)
				second, _ := r.start()
				there, goOn := make(chan struct{}), make(chan struct{})
				var (
					stands atomic.Bool
					open   sync.Once
				)
				t.Cleanup(failpoint.Func(place, func() error {
					if !stands.Swap(true) { // the other one goes on
						close(there)
						<-goOn
					}
					return nil
				}))
				release := func() { open.Do(func() { close(goOn) }) }
				t.Cleanup(release)
				db.MustExec(`BEGIN; UPDATE docs SET body = 'older ' || id; INSERT INTO docs (id, body) VALUES (6, 'soon gone'); COMMIT`)
				<-there
				db.MustExecSuper(`SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1`, r.slot)
				testenv.Eventually(t, waitTimeout, func() (bool, string) {
					return second.Stream() != nil && second.Stream().Streaming.Load(), "the other one does not take over"
				})
				r.settle()
				db.MustExec(`DELETE FROM docs WHERE id = 6`)
				db.MustExec(`UPDATE docs SET body = 'newer ' || id WHERE id < 4`)
				r.settle()
				r.straight(second)
				release()
				testenv.Eventually(t, waitTimeout, func() (bool, string) {
					return !first.Stream().Streaming.Load() && first.Stream().Reconnects.Load() > 0,
						"the first has not noticed that it was replaced"
				})
				r.straight(second)
				r.verify()
			})
		}
	}
}
