package queue_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// screen says what becomes of changes: how many are worked at once, are tasks, are dropped, were merged.
func (f *fixture) screen(t *testing.T, changes ...queue.Change) string {
	t.Helper()
	for i := range changes {
		changes[i].PipelineID = f.id
		if changes[i].XID == 0 {
			changes[i].XID = 3
		}
	}
	s, err := f.q.Screen(t.Context(), direct{f.db.Pool}, changes)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d now, %d later, %d dropped, %d merged", len(s.Now), len(s.Later), s.Dropped, s.Merged)
}

// Without a task goes what everybody sees, of rows that no task names.
func TestScreen_LeavesToTheQueueWhatItMust(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	want := func(what, want string, changes ...queue.Change) {
		t.Helper()
		if got := f.screen(t, changes...); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	want("changes of two rows", "2 now, 0 later, 0 dropped, 1 merged", change("1", 10), change("2", 11), change("1", 12))
	if _, err := f.enqueue(t.Context(), change("1", 10)); err != nil {
		t.Fatal(err)
	}
	want("a row with a task", "1 now, 1 later, 0 dropped, 0 merged", change("1", 13), change("2", 13))
	f.db.MustExec(`UPDATE embedsidecar.task SET state = 'failed'`)
	want("a dead letter", "0 now, 1 later, 0 dropped, 0 merged", change("1", 13))
	f.db.MustExec(`DELETE FROM embedsidecar.task`)

	hash := make([]byte, 24)
	f.db.MustExec(`INSERT INTO embedsidecar.ledger (pipeline_id, row_key, source_hash, vector_hash, generation, lsn)
		VALUES ($1, '1', $2, $3, 1, '0/1')`, f.id, hash[:16], hash[16:])
	same := change("1", 14)
	same.Unchanged = pipeline.Pattern(hash)
	want("nothing changed", "0 now, 0 later, 1 dropped, 0 merged", same)
	f.db.MustExec(`UPDATE embedsidecar.pipeline SET generation = 2`)
	want("nothing changed but the generation", "1 now, 0 later, 0 dropped, 0 merged", same)

	tx, err := f.db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	hidden, late := change("1", 15), same
	if err := tx.QueryRow(t.Context(), "SELECT (pg_current_xact_id()::text::bigint & 4294967295)").Scan(&hidden.XID); err != nil {
		t.Fatal(err)
	}
	late.XID = hidden.XID
	want("a commit that nobody sees yet", "0 now, 1 later, 0 dropped, 0 merged", hidden)
	want("one that may change nothing", "0 now, 1 later, 0 dropped, 0 merged", late)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	want("one that everybody sees", "1 now, 0 later, 0 dropped, 0 merged", hidden)

	f.db.MustExec(`UPDATE embedsidecar.pipeline SET enabled = false`)
	want("a paused pipeline", "0 now, 1 later, 0 dropped, 0 merged", same)
	f.db.MustExec(`UPDATE embedsidecar.pipeline SET enabled = true`)
	f.db.MustExec(`UPDATE embedsidecar.installation SET enabled = false`)
	want("all are paused", "0 now, 1 later, 0 dropped, 0 merged", same)
	f.db.MustExec(`UPDATE embedsidecar.installation SET enabled = true`)
	f.db.MustExec(`DELETE FROM embedsidecar.pipeline`)
	want("a pipeline that is gone", "0 now, 1 later, 0 dropped, 0 merged", same)
}

// P3: whoever has lost the slot writes nothing any more, and nobody takes it while he does.
func TestP3_WhatIsWorkedAtOnceIsFencedByEpoch(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.db.MustExec(`UPDATE embedsidecar.lsn_checkpoint SET epoch = 5, timeline = $1`, testenv.Value[int32](f.db,
		`SELECT ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::integer`))
	hold := func(l queue.Lease, generation int32) (pgx.Tx, bool) {
		t.Helper()
		tx, err := f.db.Pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		held := false
		batch := &pgx.Batch{}
		queue.QueueHold(batch, l, generation, &held)
		if err := tx.SendBatch(t.Context(), batch).Close(); err != nil {
			t.Fatal(err)
		}
		return tx, held
	}
	lease := queue.Lease{PipelineID: f.id, Direct: &queue.Direct{Slot: slot, Epoch: 5}}
	for what, c := range map[string]struct {
		epoch      int64
		generation int32
		want       bool
	}{
		"ours": {5, 1, true}, "of one before": {4, 1, false}, "another generation": {5, 2, false},
	} {
		l := lease
		l.Direct = &queue.Direct{Slot: slot, Epoch: c.epoch}
		tx, held := hold(l, c.generation)
		if held != c.want {
			t.Errorf("%s: held %t", what, held)
		}
		_ = tx.Rollback(t.Context())
	}
	tx, held := hold(lease, 1)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if !held {
		t.Fatal("not held")
	}
	taken := make(chan error, 1)
	go func() {
		_, err := f.db.Pool.Exec(t.Context(), `UPDATE embedsidecar.lsn_checkpoint SET epoch = epoch + 1`)
		taken <- err
	}()
	testenv.Eventually(t, time.Minute, func() (bool, string) {
		return testenv.Value[bool](f.db, `SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
			OR NOT granted AND locktype = 'transactionid')`), "nobody waits"
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-taken; err != nil {
		t.Fatal(err)
	}
	after, held := hold(lease, 1)
	defer func() { _ = after.Rollback(context.WithoutCancel(t.Context())) }()
	if held {
		t.Error("held by one whose slot another has taken")
	}
}
