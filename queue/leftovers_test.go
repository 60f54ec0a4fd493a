package queue_test

import (
	"context"
	"testing"

	"github.com/embedsidecar/embedsidecar/queue"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// A pipeline goes at once, whatever its ledger holds, and a change of it or of another one waits for nothing. The
// rest goes in portions, and what one process does not get done the next one does.
func TestP5_RemovingAPipelineStopsNoOther(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	other := testenv.Value[int32](f.db,
		`INSERT INTO embedsidecar.pipeline (name, slot_name, table_oid, table_schema, table_name, source_columns, key_columns,
		destination_table, destination_schema, dims, plugin, model, fingerprint)
		VALUES ('other', 'slot', 'public.docs'::regclass, 'public', 'docs', '{body}', '{id}', 'other_embedding', 'public', 3, 'fake', 'fake', 'f') RETURNING pipeline_id`)
	for _, id := range []int32{f.id, other} {
		f.db.MustExec(`INSERT INTO embedsidecar.ledger (pipeline_id, row_key, source_hash, vector_hash, generation, lsn)
			SELECT $1, i::text, '', '', 1, '0/1' FROM generate_series(1, 12000) AS i`, id)
		f.db.MustExec(`INSERT INTO embedsidecar.task (pipeline_id, row_key, lane, xid, first_lsn, last_lsn, committed_at)
			SELECT $1, i::text, 0, '3', '0/1', '0/1', now() FROM generate_series(1, 6000) AS i`, id)
	}
	f.lease(t, 5)
	tx, err := f.db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), `DELETE FROM embedsidecar.pipeline WHERE pipeline_id = $1`, f.id); err != nil {
		t.Fatal(err)
	}
	// While that transaction is open, and after it: the changes of both are queued, or dropped.
	for range 2 {
		mine, theirs := change("new", 10), change("new", 10)
		for i, c := range []*queue.Change{&mine, &theirs} {
			c.PipelineID, c.XID = []int32{f.id, other}[i], 3
		}
		if _, err := f.q.Enqueue(t.Context(), f.db.Pool, queue.Batch{Slot: slot, Changes: []queue.Change{
			mine,
			theirs,
		}}); err != nil {
			t.Errorf("a change waits for the removal: %v", err)
		}
		if err := tx.Commit(t.Context()); err != nil && f.left(f.id) == 0 {
			t.Fatal(err)
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := queue.DropLeftovers(over, f.db.Pool); err == nil {
		t.Error("no error of a process that ends")
	}
	before := f.left(other)
	if rows, err := queue.DropLeftovers(t.Context(), f.db.Pool); err != nil || rows < 18000 {
		t.Errorf("%d rows went, %v", rows, err)
	}
	if mine, theirs := f.left(f.id), f.left(other); mine != 0 || theirs != before {
		t.Errorf("%d rows of the removed pipeline are left, and %d of %d of the other", mine, theirs, before)
	}
	if rows, err := queue.DropLeftovers(t.Context(), f.db.Pool); err != nil || rows != 0 {
		t.Errorf("%d more rows went, %v", rows, err)
	}
}

// left counts what there is of a pipeline.
func (f *fixture) left(id int32) int64 {
	return testenv.Value[int64](f.db,
		`SELECT (SELECT count(*) FROM embedsidecar.ledger WHERE pipeline_id = $1) + (SELECT count(*) FROM embedsidecar.task
			WHERE pipeline_id = $1)
		+ (SELECT count(*) FROM embedsidecar.lease WHERE pipeline_id = $1)`, id)
}
