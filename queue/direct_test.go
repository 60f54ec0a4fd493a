package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/queue"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// Each change has its verdict; one row has one change. The statement that judges is tried in package sidecar.
func TestScreen_SaysWhatBecomesOfEach(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	verdicts := map[string]string{"1": "now", "2": "task", "3": "own", "4": "drop", "5": "now"}
	var changes []queue.Change
	for _, key := range []string{"5", "1", "2", "3", "4", "1"} {
		changes = append(changes, change(key, uint64(10+len(changes))))
	}
	s, err := f.q.Screen(t.Context(), changes, func(_ context.Context, changes []queue.Change) (list []string, _ bool,
		_ error,
	) {
		for i := range changes {
			list = append(list, verdicts[changes[i].RowKey])
		}
		return list, false, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Now) != 2 || s.Now[0].RowKey != "1" || s.Now[0].LSN != 15 || s.Now[0].FirstLSN != 11 || s.Now[1].RowKey != "5" {
		t.Errorf("now: %+v", s.Now)
	}
	if len(s.Later) != 1 || s.Later[0].RowKey != "2" || s.Own != 1 || s.Dropped != 1 {
		t.Errorf("later %+v, %d own, %d dropped", s.Later, s.Own, s.Dropped)
	}
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
	life := testenv.Value[time.Time](f.db, `SELECT embedsidecar.server_life()`)
	earlier := life.Add(-time.Microsecond)
	for what, c := range map[string]struct {
		epoch      int64
		generation int32
		life       *time.Time
		want       bool
	}{
		"ours": {5, 1, nil, true}, "of one before": {4, 1, nil, false}, "another generation": {5, 2, nil, false},
		"read since the server began": {5, 1, &life, true}, "read before it began anew": {5, 1, &earlier, false},
	} {
		l := lease
		l.Direct = &queue.Direct{Slot: slot, Epoch: c.epoch, Life: c.life}
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
	testenv.Eventually(t, 5*time.Minute, func() (bool, string) {
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
