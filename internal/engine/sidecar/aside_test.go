package sidecar_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP5_AnOpenTransactionOverTheQueueDelaysItsRowsAlone: somebody acts on rows, or on all of the queue, and leaves his
// transaction open. The stream goes on; other rows and pipelines get their vectors where he leaves the table alone;
// whoever asks is told who it is; and when it is over, all is true.
func TestP5_AnOpenTransactionOverTheQueueDelaysItsRowsAlone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sql string
		all bool // he holds the table
	}{
		"retry": {sql: `SELECT * FROM embedsidecar.retry_failed('docs')`}, "discard": {sql: `SELECT * FROM embedsidecar.discard_dead('docs')`},
		"requeue":    {sql: `SELECT * FROM embedsidecar.requeue('docs', '{1,2,8,9}')`},
		"reembed":    {sql: `SELECT * FROM embedsidecar.reembed('docs', '{1,2,8,9}')`},
		"cancel":     {sql: `SELECT * FROM embedsidecar.cancel('docs', '{1,2}')`},
		"prioritise": {sql: `SELECT * FROM embedsidecar.prioritise('docs', 'urgent', '{1,2}')`},
		"backfill":   {sql: `SELECT embedsidecar.backfill('docs')`},
		"pause":      {sql: `SELECT embedsidecar.set_priority('docs', 'high')`},
		"notify":     {sql: `SELECT embedsidecar.notify_changes(true)`, all: true},
		"lock":       {sql: `LOCK TABLE embedsidecar.task IN EXCLUSIVE MODE`, all: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testenv.DB(t)
			db.MustExec(docs)
			db.MustExec(notes)
			r := newRig(t, db, intoTable("docs", "body"), intoTable("notes", "body"))
			s, _ := r.start()
			r.edit("before ")
			r.settle()
			db.MustExec(`INSERT INTO embedsidecar.task (pipeline_id, row_key, lane, state, xid, first_lsn, last_lsn, committed_at)
				SELECT pipeline_id, k, 1, 'failed', '3', '0/1', '0/1', now() FROM embedsidecar.pipeline, unnest('{1,2}'::text[]) AS k WHERE name = 'docs'`)
			open := r.locking(c.sql)
			pid := open.Conn().PgConn().PID()
			db.MustExec(`UPDATE docs SET body = 'meanwhile ' || id WHERE id IN (1, 3, 8)`)
			db.MustExec(`INSERT INTO notes VALUES (1, 'meanwhile another')`)
			end := testenv.Value[string](db, `SELECT pg_current_wal_insert_lsn()::text`)
			testenv.Eventually(t, waitTimeout, func() (bool, string) {
				db.MustExec(`SELECT pg_notify('embedsidecar_waiting', $1)`, end)
				return r.count(`SELECT count(*) FROM embedsidecar.lsn_checkpoint WHERE lsn >= $1::pg_lsn`, end) == 1, "the stream stands still"
			})
			if !c.all {
				testenv.Eventually(t, waitTimeout, func() (bool, string) {
					return r.embedder.sent("meanwhile 3") == 1 && r.embedder.sent("meanwhile another") == 1 &&
						r.count(`SELECT count(*) FROM notes_embedding`) == 1, "other rows wait for him"
				})
			}
			if n := s.Stream().Reconnects.Load(); n != 0 {
				t.Errorf("the stream was interrupted %d times", n)
			}
			if r.count(`SELECT count(*) FROM embedsidecar.aside`) > 0 {
				r.named(fmt.Sprintf("pid %d", pid))
			} else if c.all || name == "retry" {
				t.Error("nothing was set aside")
			}
			r.rollback(open)
			r.settle()
			if n := r.count(`SELECT count(*) FROM embedsidecar.aside`); n != 0 {
				t.Errorf("%d changes are still set aside", n)
			}
			db.MustExec(`SELECT FROM embedsidecar.retry_failed('docs')`)
			r.settle()
			r.verify()
		})
	}
}

// P10: who keeps vectors from being written, or rows from being read, by a lock on a table is named while rows wait.
func TestP10_WhoLocksATableIsNamed(t *testing.T) {
	t.Parallel()
	for name, lock := range map[string]string{
		"source": `LOCK TABLE docs IN ACCESS EXCLUSIVE MODE`, "vectors": `LOCK TABLE docs_embedding IN SHARE MODE`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testenv.DB(t)
			db.MustExec(docs)
			r := newRig(t, db, intoTable("docs", "body"))
			r.start()
			r.edit("before ")
			r.settle()
			open := r.locking(lock)
			pid := open.Conn().PgConn().PID()
			db.MustExec(`SELECT FROM embedsidecar.reembed('docs', '{1,2,3}')`)
			r.state("docs", health.Working, fmt.Sprintf("locked by pid %d", pid))
			r.rollback(open)
			r.settle()
			r.verify()
		})
	}
}

// named looks whether all who may be asked name who holds the queue.
func (r *rig) named(who string) {
	r.t.Helper()
	status, err := report.Options{}.Read(r.t.Context(), r.db.Super())
	if err != nil {
		r.t.Fatal(err)
	}
	held := 0
	for _, p := range status.Pipelines {
		if p.Aside > 0 {
			held++
			if p.State != health.QueueHeld || !strings.Contains(p.Reason, who) {
				r.t.Errorf("status: %s: %s, want %s", p.State, p.Reason, who)
			}
			stale := r.count(`SELECT count(DISTINCT row_key) FROM embedsidecar.aside WHERE pipeline_id = $1`, p.ID)
			if rows := r.count(`SELECT count(*) FROM ` + p.Table); p.Known+stale > rows {
				r.t.Errorf("status: %d of %d rows are covered, and changes of %d are set aside", p.Known, rows, stale)
			}
		}
	}
	if held == 0 {
		r.t.Error("status has no pipeline with changes that are set aside")
	}
	if got := testenv.Values[string](r.db, `SELECT detail FROM embedsidecar.health WHERE state = 'queue_held'`); !strings.Contains(fmt.Sprint(got), who) {
		r.t.Errorf("health says %v, want %s", got, who)
	}
	if testenv.Value[bool](r.db, `SELECT embedsidecar.caught_up()`) {
		r.t.Error("it is said to have caught up")
	}
}
