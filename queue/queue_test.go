package queue_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
	"github.com/embedsidecar/embedsidecar/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

const slot = "slot"

// direct is a pool that is known to lead to a server, and not to a pooler.
type direct struct{ *pgxpool.Pool }

// fixture is a queue with one pipeline in a database of its own.
type fixture struct {
	db *testenv.Database
	q  *queue.Queue
	id int32
}

func newFixture(t *testing.T, options ...testenv.Option) *fixture {
	t.Helper()
	db := testenv.DB(t, options...)
	db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text)`)
	db.MustExec(`INSERT INTO embedsidecar.installation (mark_key) VALUES ('\x00') ON CONFLICT DO NOTHING`)
	db.MustExec(`INSERT INTO embedsidecar.lsn_checkpoint (slot_name, publication, publication_oid, system_id, timeline,
		consistent_point, lsn)
		VALUES ('slot', 'pub', 0, '0', 1, '0/1', '0/1')`)
	id := testenv.Value[int32](db,
		`INSERT INTO embedsidecar.pipeline (name, slot_name, table_oid, table_schema, table_name, source_columns, key_columns,
		destination_table, destination_schema, dims, plugin, model, fingerprint)
		VALUES ('docs', 'slot', 'public.docs'::regclass, 'public', 'docs', '{body}', '{id}', 'docs_embedding', 'public', 3, 'fake', 'fake', 'f') RETURNING pipeline_id`)
	return &fixture{db: db, q: queue.New(direct{db.Pool}), id: id}
}

func (f *fixture) enqueue(ctx context.Context, changes ...queue.Change) (queue.Enqueued, error) {
	for i := range changes {
		changes[i].PipelineID = f.id
		if changes[i].CommittedAt.IsZero() {
			changes[i].CommittedAt = time.Now()
		}
		if changes[i].XID == 0 {
			changes[i].XID = 3
		}
	}
	return f.q.Enqueue(ctx, direct{f.db.Pool}, queue.Batch{Slot: slot, Changes: changes})
}

func (f *fixture) claim(who queue.Who, n int) queue.Claim {
	return queue.Claim{PipelineID: f.id, Generation: 1, Who: who, Worker: 1, Max: n, Lease: time.Hour}
}

func change(key string, lsn uint64) queue.Change {
	return queue.Change{RowKey: key, Lane: pipeline.Normal, LSN: pglogrepl.LSN(lsn)}
}

func (f *fixture) lease(t testing.TB, n int) []queue.Task {
	t.Helper()
	tasks, err := f.q.Lease(t.Context(), f.claim(queue.Anyone, n))
	if err != nil {
		t.Fatal(err)
	}
	return tasks
}

func (f *fixture) finish(t testing.TB, tasks []queue.Task, action queue.Action) queue.Finished {
	t.Helper()
	outcomes := make([]queue.Outcome, len(tasks))
	for i, task := range tasks {
		outcomes[i] = queue.Outcome{Task: task, Action: action, What: "embedded"}
	}
	done, err := f.q.Finish(t.Context(), 1, tasks[0].Lease, 0, outcomes)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// sweep does a round of sweeps.
func (f *fixture) sweep(ctx context.Context) error {
	args := pgx.StrictNamedArgs{"mend": true, "due_after": time.Time{}}
	for _, name := range []string{"pipeline_ids", "lives", "after0", "after1", "after2", "after3"} {
		args[name] = []int64{}
	}
	_, err := f.db.Pool.Exec(ctx, sqlfiles.Query("sweep_tasks"), args)
	return err
}

func TestLease_WaitsUntilTheChangeIsVisible(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tx, err := f.db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var xid int64
	if err := tx.QueryRow(t.Context(), `SELECT pg_current_xact_id()::text::bigint`).Scan(&xid); err != nil {
		t.Fatal(err)
	}
	hidden := change("1", 10)
	hidden.XID = uint32(xid)
	if _, err := f.enqueue(t.Context(), hidden, change("2", 10)); err != nil {
		t.Fatal(err)
	}
	if got := f.lease(t, 10); len(got) != 1 || got[0].RowKey != "2" {
		t.Errorf("leased %v, want only what is visible", got)
	}
	if !f.q.Waiting(f.id, queue.Anyone) {
		t.Error("a task that is not visible yet does not wait")
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := f.lease(t, 10); len(got) != 1 || got[0].RowKey != "1" {
		t.Errorf("leased %v, want the rest", got)
	}
}

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
			tx, err := f.db.Pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var xid int64
			if err := tx.QueryRow(t.Context(), `SELECT pg_current_xact_id()::text::bigint`).Scan(&xid); err != nil {
				t.Fatal(err)
			}
			hidden := change("1", 10)
			hidden.XID, hidden.Unchanged = uint32(xid), pipeline.Pattern(nil).Known(source).Known(vector)
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

func TestLease_GivesNothingToAnOlderGenerationNorWhileSwitchedOff(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if _, err := f.enqueue(t.Context(), change("1", 10)); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		`UPDATE embedsidecar.pipeline SET generation = 2`,
		`UPDATE embedsidecar.pipeline SET generation = 1, enabled = false`,
	} {
		f.db.MustExec(sql)
		if got := f.lease(t, 10); len(got) != 0 {
			t.Errorf("after %s: leased %v", sql, got)
		}
	}
	f.db.MustExec(`UPDATE embedsidecar.pipeline SET enabled = true`)
	if got := f.lease(t, 10); len(got) != 1 {
		t.Errorf("leased %v, want the task", got)
	}
}

func TestLease_ExpressLeavesTheBackfillAlone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	patient := change("1", 10)
	patient.Lane = pipeline.Low
	if _, err := f.enqueue(t.Context(), patient); err != nil {
		t.Fatal(err)
	}
	express := func() []queue.Task {
		tasks, err := f.q.Lease(t.Context(), f.claim(queue.Express, 10))
		if err != nil {
			t.Fatal(err)
		}
		return tasks
	}
	if got := express(); len(got) != 0 {
		t.Errorf("express leased %v", got)
	}
	if f.q.Waiting(f.id, queue.Express) {
		t.Error("a task of the backfill waits for the express")
	}
	if _, err := f.enqueue(t.Context(), change("2", 20)); err != nil {
		t.Fatal(err)
	}
	if got := express(); len(got) != 1 || got[0].RowKey != "2" {
		t.Errorf("express leased %v, want row 2", got)
	}
}

// One token wakes one waiter. One that then takes something else passes it on to those who may take live changes only.
func TestLease_ALiveChangeDoesNotWaitBehindASuspect(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	soon, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	if _, err := f.enqueue(t.Context(), change("suspect", 1)); err != nil {
		t.Fatal(err)
	}
	f.db.MustExec(`UPDATE embedsidecar.task SET losses = 2`)
	if _, err := f.enqueue(t.Context(), change("live", 2)); err != nil {
		t.Fatal(err)
	}
	if !f.q.Wait(soon, f.id, queue.Anyone) {
		t.Fatal("nobody was woken")
	}
	if tasks := f.lease(t, 10); len(tasks) != 1 || tasks[0].RowKey != "suspect" {
		t.Fatalf("leased %+v, want the suspect", tasks)
	}
	if !f.q.Wait(soon, f.id, queue.Express) {
		t.Fatal("the live change waits")
	}
	tasks, err := f.q.Lease(t.Context(), f.claim(queue.Express, 10))
	if err != nil || len(tasks) != 1 || tasks[0].RowKey != "live" {
		t.Fatalf("leased %+v, %v, want the live change", tasks, err)
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

func TestFinish_OpensATaskAgainWhoseRowChanged(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if _, err := f.enqueue(t.Context(), change("1", 10), change("2", 10)); err != nil {
		t.Fatal(err)
	}
	tasks := f.lease(t, 10)
	if _, err := f.enqueue(t.Context(), change("1", 20)); err != nil {
		t.Fatal(err)
	}
	if done := f.finish(t, tasks, queue.Done); done.Done != 1 || done.Reopened != 1 {
		t.Errorf("%+v, want one done and one opened again", done)
	}
	again := f.lease(t, 10)
	if len(again) != 1 || again[0].RowKey != "1" || again[0].FirstLSN != 20 {
		t.Errorf("%+v, want row 1 from LSN 20 on", again)
	}
}

// What was done of a row is told though its task stays open: a change is just being added to it.
func TestFinish_TellsWhatWasDoneOfALockedTask(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if _, err := f.enqueue(t.Context(), change("1", 10), change("2", 10)); err != nil {
		t.Fatal(err)
	}
	tasks := f.lease(t, 10)
	tx, err := f.db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), "SELECT FROM embedsidecar.task WHERE row_key = '1' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	if done := f.finish(t, tasks, queue.Done); done.Done != 1 || done.Reopened != 1 {
		t.Errorf("%+v, want one done and one opened again", done)
	}
	told := testenv.Values[string](f.db, "SELECT row_key FROM embedsidecar.history WHERE outcome = 'embedded' ORDER BY 1")
	if !slices.Equal(told, []string{"1", "2"}) {
		t.Errorf("the history tells of rows %v, want both", told)
	}
}

// A change that is added to a task after its end has begun, and before it comes to the task, leaves it open; that is
// told, and so is what was done.
func TestFinish_TellsOfATaskThatChangesMeanwhile(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if _, err := f.enqueue(t.Context(), change("1", 10)); err != nil {
		t.Fatal(err)
	}
	tasks := f.lease(t, 10)
	tx, err := f.db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), "SELECT FROM embedsidecar.lease FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	ended := make(chan queue.Finished, 1)
	go func() { ended <- f.finish(t, tasks, queue.Done) }()
	testenv.Eventually(t, time.Minute, func() (bool, string) {
		n := testenv.Value[int64](f.db,
			"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
		return n == 1, "nobody waits for the lease"
	})
	if done, err := f.enqueue(t.Context(), change("1", 20)); err != nil || done.Joined != 1 {
		t.Fatalf("%+v, %v: it was to join the task", done, err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if done := <-ended; done.Done != 0 || done.Reopened != 1 {
		t.Errorf("%+v, want one opened again", done)
	}
	told := testenv.Values[string](f.db, "SELECT row_key FROM embedsidecar.history WHERE outcome = 'embedded'")
	if !slices.Equal(told, []string{"1"}) {
		t.Errorf("the history tells of rows %v, want the one", told)
	}
	if tasks := f.lease(t, 10); len(tasks) != 1 || tasks[0].Gen != 2 {
		t.Errorf("leased %+v, want the task with its change", tasks)
	}
}

func TestSweep_TakesBackLeasesThatRanOut(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if _, err := f.enqueue(t.Context(), change("1", 10)); err != nil {
		t.Fatal(err)
	}
	for loss := range queue.DeadAfterLost {
		tasks := f.lease(t, 10)
		if len(tasks) != 1 || tasks[0].Losses != int16(min(loss, queue.AloneAfter)) ||
			tasks[0].Alone() != (loss >= queue.AloneAfter) {
			t.Fatalf("leased %+v, want the task with %d losses", tasks, loss)
		}
		f.db.MustExec(`UPDATE embedsidecar.lease SET leased_until = now() - interval '1 s'`)
		ctx, cancel := context.WithCancel(t.Context())
		err := f.q.RunSweeps(ctx, time.Minute, func(int) { cancel() }, func(err error) { t.Error(err); cancel() })
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if done := f.finish(t, tasks, queue.Done); done != (queue.Finished{}) {
			t.Errorf("a lost lease finished: %+v", done)
		}
	}
	if state := testenv.Value[string](f.db, `SELECT state::text FROM embedsidecar.task`); state != "failed" {
		t.Errorf("state %s after %d losses, want failed", state, queue.DeadAfterLost)
	}
	if _, err := f.enqueue(t.Context(), change("1", 30)); err != nil {
		t.Fatal(err)
	}
	if got := f.lease(t, 10); len(got) != 1 || got[0].Losses != 0 {
		t.Errorf("%+v, want a fresh start after a change", got)
	}
}

func TestLease_AMillionWaitingTasksCostNoMore(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.db.MustExec(`INSERT INTO embedsidecar.task (pipeline_id, row_key, lane, xid, first_lsn, last_lsn, committed_at)
		SELECT $1, i::text, 0, '3', '0/1', '0/1', now() FROM generate_series(1, 50000) AS i`, f.id)
	// The plan is what keeps a claim flat: with any statistics it must walk the index of waiting tasks, from the cursor
	// on.
	for i := range 4 {
		analyze, alone := i >= 2, i%2 == 1
		if analyze {
			f.db.MustExec(`ANALYZE embedsidecar.task`)
		}
		sql, args, err := pgx.StrictNamedArgs{
			"worker": 1, "token": 1, "lease": time.Minute, "pipeline_id": f.id,
			"generation": 1, "alone": alone, "lane": 0, "cursor": 1000, "live": 0, "max": 256,
		}.
			RewriteQuery(t.Context(), nil, "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+sqlfiles.Query("lease_tasks"), nil)
		if err != nil {
			t.Fatal(err)
		}
		var plan []map[string]any
		tx, err := f.db.Pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := tx.QueryRow(t.Context(), sql, args...).Scan(&plan); err != nil {
			t.Fatal(err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		// All of the table has a thousand blocks.
		root := plan[0]["Plan"].(map[string]any) //nolint:forcetypeassert // EXPLAIN's shape
		if touched := root["Shared Hit Blocks"].(float64) + root["Shared Read Blocks"].(float64); touched > 500 {
			t.Errorf("analyzed %t, alone %t: a claim of 256 touched %.0f blocks", analyze, alone, touched)
		}
	}
}

// TestQueue_LosesNothing runs random histories against a model: whatever order changes, leases, results and losses
// come in, a row that changed after it was looked at has an open task, and no row has two.
func TestQueue_LosesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		f.db.MustExec(`DELETE FROM embedsidecar.task`)
		f.db.MustExec(`DELETE FROM embedsidecar.lease`)
		f.q = queue.New(f.db.Pool)
		ctx := t.Context()
		// of each row: how often it changed; up to where it was looked at
		version, looked := map[string]int{}, map[string]int{}
		type lease struct {
			tasks []queue.Task
			saw   map[string]int
		}
		var (
			leases []lease
			lsn    = uint64(100)
		)
		key := rapid.Custom(func(t *rapid.T) string { return fmt.Sprint(rapid.IntRange(1, 6).Draw(t, "key")) })
		rt.Repeat(map[string]func(*rapid.T){
			"change": func(rt *rapid.T) {
				var changes []queue.Change
				for range rapid.IntRange(1, 4).Draw(rt, "n") {
					k := key.Draw(rt, "k")
					version[k]++
					lsn++
					changes = append(changes, change(k, lsn))
				}
				if _, err := f.enqueue(ctx, changes...); err != nil {
					rt.Fatal(err)
				}
			},
			"lease": func(rt *rapid.T) {
				tasks, err := f.q.Lease(ctx, f.claim(queue.Anyone, rapid.IntRange(1, 4).Draw(rt, "max")))
				if err != nil {
					rt.Fatal(err)
				}
				if len(tasks) == 0 {
					return
				}
				l := lease{tasks: tasks, saw: map[string]int{}}
				for _, task := range tasks {
					l.saw[task.RowKey] = version[task.RowKey]
				}
				leases = append(leases, l)
			},
			"finish": func(rt *rapid.T) {
				if len(leases) == 0 {
					rt.Skip()
				}
				i := rapid.IntRange(0, len(leases)-1).Draw(rt, "lease")
				l := leases[i]
				leases = append(leases[:i], leases[i+1:]...)
				action := rapid.SampledFrom([]queue.Action{queue.Done, queue.Again, queue.Later}).Draw(rt, "action")
				outcomes := make([]queue.Outcome, len(l.tasks))
				for j, task := range l.tasks {
					outcomes[j] = queue.Outcome{Task: task, Action: action, What: "embedded"}
				}
				done, err := f.q.Finish(ctx, 1, l.tasks[0].Lease, 0, outcomes)
				if err != nil {
					rt.Fatal(err)
				}
				if action == queue.Done && done.Done+done.Reopened == len(l.tasks) {
					for k, saw := range l.saw {
						looked[k] = max(looked[k], saw)
					}
				}
			},
			"lose": func(*rapid.T) {
				f.db.MustExec(`UPDATE embedsidecar.lease SET leased_until = now() - interval '1 s'`)
				f.db.MustExec(`UPDATE embedsidecar.task SET lost_leases = 0`)
			},
			"sweep": func(rt *rapid.T) {
				f.db.MustExec(`UPDATE embedsidecar.task SET due_at = now() WHERE state = 'retrying'`)
				if err := f.sweep(ctx); err != nil {
					rt.Fatal(err)
				}
			},
			"": func(rt *rapid.T) {
				open := map[string]bool{}
				for _, k := range testenv.Values[string](f.db, `SELECT row_key FROM embedsidecar.task WHERE state <> 'failed'`) {
					if open[k] {
						rt.Fatalf("row %s has two tasks", k)
					}
					open[k] = true
				}
				for k, v := range version {
					if looked[k] < v && !open[k] {
						rt.Fatalf("row %s changed %d times, was looked at up to %d, and has no task", k, v, looked[k])
					}
				}
			},
		})
	})
}
