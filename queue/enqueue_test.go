package queue_test

import (
	"errors"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// A change that changed nothing is known as such when its transaction is visible, and not before.
func TestEnqueue_WaitsUntilWhatItMayDropIsVisible(t *testing.T) {
	t.Parallel()
	for timeout, want := range map[time.Duration]queue.Enqueued{time.Hour: {Dropped: 1}, time.Millisecond: {Made: 1}} {
		t.Run(timeout.String(), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.q.SetVisibilityTimeout(timeout)
			source, vector := make([]byte, pipeline.ColumnHashSize), make([]byte, pipeline.VectorHashSize)
			f.db.MustExec(`INSERT INTO embedsidecar.ledger (pipeline_id, row_key, source_hash, vector_hash, generation, lsn) VALUES ($1, '1', $2, $3, 1, '0/1')`, f.id, source, vector)
			tx, xid := f.db.Open()
			hidden := change("1", 10)
			hidden.XID, hidden.Unchanged = xid, pipeline.Pattern(nil).Known(source).Known(vector)
			type result struct {
				done queue.Enqueued
				err  error
			}
			results := make(chan result, 1)
			go func() {
				done, err := f.enqueue(t.Context(), hidden)
				results <- result{done, err}
			}()
			var got result
			if want.Made > 0 {
				got = <-results // it gives up
			} else {
				testenv.Eventually(t, 5*time.Minute, func() (bool, string) {
					n := testenv.Value[int](f.db, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%' AND query LIKE '%pg_visible_in_snapshot%'`)
					return n == 1, "it does not wait"
				})
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if want.Made == 0 {
				got = <-results
			}
			if got.err != nil || got.done != want {
				t.Errorf("%+v, %v, want %+v", got.done, got.err, want)
			}
		})
	}
}

func TestEnqueue_IsFencedByEpoch(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.db.MustExec(`UPDATE embedsidecar.lsn_checkpoint SET epoch = 1`)
	if _, err := f.enqueue(t.Context(), change("1", 10)); !errors.Is(err, queue.ErrEpochLost) {
		t.Errorf("err = %v, want ErrEpochLost", err)
	}
	if n := testenv.Value[int64](f.db, `SELECT count(*) FROM embedsidecar.task`); n != 0 {
		t.Errorf("%d tasks were written", n)
	}
}

func TestEnqueue_DropsOnlyWhatTheLedgerKnowsAndNoTaskWaitsFor(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	source, vector := make([]byte, pipeline.ColumnHashSize), make([]byte, pipeline.VectorHashSize)
	copy(source, "50%_\\") // bytes that mean something to LIKE
	f.db.MustExec(`INSERT INTO embedsidecar.ledger (pipeline_id, row_key, source_hash, vector_hash, generation, lsn)
		SELECT $1, k, $2, $3, 1, '0/1' FROM unnest('{same,other,open,masked,old}'::text[]) AS k`, f.id, source, vector)
	f.db.MustExec(`UPDATE embedsidecar.ledger SET generation = 0 WHERE row_key = 'old'`)
	if _, err := f.enqueue(t.Context(), change("open", 5)); err != nil {
		t.Fatal(err)
	}
	same := pipeline.Pattern(nil).Known(source).Unknown(pipeline.VectorHashSize)
	other := pipeline.Pattern(nil).Known(append([]byte("60"), source[2:]...)).Known(vector)
	masked := pipeline.Pattern(nil).Unknown(pipeline.ColumnHashSize).Known(vector)
	var changes []queue.Change
	for key, pattern := range map[string]pipeline.Pattern{
		"same": same, "other": other, "open": same, "masked": masked,
		"old": same, "unknown": same,
	} {
		c := change(key, 10)
		c.Unchanged = pattern
		changes = append(changes, c)
	}
	got, err := f.enqueue(t.Context(), changes...)
	if err != nil {
		t.Fatal(err)
	}
	if got.Dropped != 2 || got.Made != 3 || got.Joined != 1 {
		t.Errorf("%+v, want same and masked dropped, other, old and unknown made, open joined", got)
	}
}

// TestP1_ASkipCoversNoChangeThatWasSetAside: the row needs a vector because of that one.
func TestP1_ASkipCoversNoChangeThatWasSetAside(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	skipped := change("1", 20)
	skipped.Seen, skipped.Later = pipeline.NewSeen(false).Append(make([]byte, pipeline.ColumnHashSize)), true
	for _, aside := range []bool{false, true} {
		if aside {
			other := change("1", 10)
			other.PipelineID, other.XID, other.CommittedAt = f.id, 3, time.Now()
			if _, err := f.q.Enqueue(t.Context(), direct{f.db.Pool}, queue.Batch{
				Slot: slot, Changes: []queue.Change{other}, Aside: true,
			}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := f.enqueue(t.Context(), skipped); err != nil {
			t.Fatal(err)
		}
		tasks := f.lease(t, 1)
		if len(tasks) != 1 || (tasks[0].Seen == nil) != aside {
			t.Errorf("set aside %t: leased %+v", aside, tasks)
		}
		f.finish(t, tasks, queue.Done)
	}
}

// TestP6_OurOwnWriteReadLateMovesNoTask: what a write-back changed comes back through the stream when its row was
// meanwhile put off, cancelled or given up. It is as the ledger says, so it moves nothing. A change of somebody else
// that leaves the row like that does: what a worker has in hand may be of the time between.
func TestP6_OurOwnWriteReadLateMovesNoTask(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	source, vector := make([]byte, pipeline.ColumnHashSize), make([]byte, pipeline.VectorHashSize)
	keys := []string{"later", "cancelled", "failed", "todo", "other", "changed", "old"}
	var changes []queue.Change
	for _, key := range keys {
		changes = append(changes, change(key, 5))
	}
	if _, err := f.enqueue(t.Context(), changes...); err != nil {
		t.Fatal(err)
	}
	xid := testenv.Value[int64](f.db, `WITH w AS (INSERT INTO embedsidecar.ledger (pipeline_id, row_key, source_hash,
			vector_hash, generation, lsn)
		SELECT $1, k, $2, $3, CASE k WHEN 'old' THEN 0 ELSE 1 END, '0/1' FROM unnest($4::text[]) AS k RETURNING 1)
		SELECT pg_current_xact_id()::text::bigint FROM w LIMIT 1`, f.id, source, vector, keys)
	f.db.MustExec(`UPDATE embedsidecar.task SET state = 'cancelled' WHERE row_key = 'cancelled'`)
	f.db.MustExec(`UPDATE embedsidecar.task SET state = 'failed' WHERE row_key = 'failed'`)
	f.db.MustExec(`SELECT embedsidecar.requeue('docs', '{later,other,changed,old}', at => now() + interval '1 hour')`)
	before := testenv.Value[string](f.db, tasksAsTheyAre)
	for i := range changes {
		c := &changes[i]
		c.LSN, c.XID, c.Unchanged = 10, uint32(xid), pipeline.Pattern(nil).Known(source).Known(vector)
		switch c.RowKey {
		case "other": // by somebody else
			c.XID--
		case "changed": // by a trigger of somebody's, within the write-back
			c.Unchanged = pipeline.Pattern(nil).Known(append([]byte{1}, source[1:]...)).Known(vector)
		}
	}
	got, err := f.enqueue(t.Context(), changes...)
	if want := (queue.Enqueued{Joined: 3, Own: 4}); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	if after := testenv.Value[string](f.db, tasksAsTheyAre); after != before {
		t.Errorf("tasks were\n%s\nand are\n%s", before, after)
	}
	if n := testenv.Value[int](f.db, `SELECT count(*) FROM embedsidecar.task WHERE state = 'todo' AND due_at IS NULL
		AND row_key IN ('other', 'changed', 'old')`); n != 3 {
		t.Errorf("%d of 3 rows that are not as the ledger says are due", n)
	}
}

// tasksAsTheyAre are those of rows that our own write-back alone has changed.
const tasksAsTheyAre = `SELECT string_agg(to_json(t)::text, E'\n' ORDER BY row_key) FROM embedsidecar.task AS t
	WHERE row_key IN ('later', 'cancelled', 'failed', 'todo')`

// A row that is put off or taken out of the queue while a worker has it in hand stays so, also if it had changed
// before, and is due with its next change.
func TestFinish_LeavesWhatWasPutOffMeanwhile(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, action := range []queue.Action{queue.Done, queue.Again, queue.Later, queue.Fail} {
		t.Run(string(action), func(t *testing.T) {
			f.db.MustExec(`DELETE FROM embedsidecar.task`)
			keys := []string{"cancelled", "changed", "later"}
			var changes []queue.Change
			for _, key := range keys {
				changes = append(changes, change(key, 5))
			}
			enqueue := func() {
				t.Helper()
				if _, err := f.enqueue(t.Context(), changes...); err != nil {
					t.Fatal(err)
				}
			}
			enqueue()
			tasks := f.lease(t, len(keys))
			enqueue()
			f.db.MustExec(`SELECT embedsidecar.cancel('docs', '{cancelled}'), embedsidecar.requeue('docs', '{changed,later}',
				at => now() + interval '1 hour')`)
			if _, err := f.enqueue(t.Context(), change("changed", 10)); err != nil {
				t.Fatal(err)
			}
			f.finish(t, tasks, action)
			const states = `SELECT string_agg(row_key || ' ' || state || ' ' || coalesce(due_at > now() + interval '59 min',
				false), ', ' ORDER BY row_key) FROM embedsidecar.task`
			const want = "cancelled cancelled false, changed todo false, later retrying true"
			if got := testenv.Value[string](f.db, states); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}
