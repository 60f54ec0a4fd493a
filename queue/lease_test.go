package queue_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
	"github.com/embedsidecar/embedsidecar/testenv"
)

func TestLease_WaitsUntilTheChangeIsVisible(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tx, xid := f.db.Open()
	hidden := change("1", 10)
	hidden.XID = xid
	if _, err := f.enqueue(t.Context(), hidden, change("2", 10)); err != nil {
		t.Fatal(err)
	}
	if got := f.lease(t, 10); len(got) != 1 || got[0].RowKey != "2" {
		t.Errorf("leased %v, want only what is visible", got)
	}
	if f.q.MostUrgent(f.id, queue.Anyone) < 0 {
		t.Error("a task that is not visible yet does not wait")
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := f.lease(t, 10); len(got) != 1 || got[0].RowKey != "1" {
		t.Errorf("leased %v, want the rest", got)
	}
}

// TestP1_TheLastChangeOfARowIsWaitedForInAnyOrder: changes that were not processed directly may come out of order. A
// worker must not read the row before its last change is visible.
func TestP1_TheLastChangeOfARowIsWaitedForInAnyOrder(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tx, xid := f.db.Open()
	hidden := change("1", 20)
	hidden.XID, hidden.Later = xid, true
	if _, err := f.enqueue(t.Context(), hidden, change("1", 10)); err != nil {
		t.Fatal(err)
	}
	if got := f.lease(t, 10); len(got) != 0 {
		t.Errorf("leased %v before its last change is visible", got)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := f.lease(t, 10); len(got) != 1 || got[0].FirstLSN != 10 || got[0].LastLSN != 20 {
		t.Errorf("leased %v, want the row", got)
	}
}

// TestP5_ThoseWhoAskForTasksLeaveConnectionsToOthers: workers of many pipelines share a pool with who loads pipelines,
// answers questions and reports that the sidecar lives.
func TestP5_ThoseWhoAskForTasksLeaveConnectionsToOthers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	config := f.db.Pool.Config()
	config.MaxConns = 4
	config.ConnConfig.RuntimeParams["lock_timeout"] = "200ms"
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	f.q = queue.New(pool)
	if _, err := f.enqueue(t.Context(), change("1", 10)); err != nil {
		t.Fatal(err)
	}
	f.db.MustExec("INSERT INTO embedsidecar.turn (pipeline_id) VALUES ($1) ON CONFLICT DO NOTHING", f.id)
	held, err := f.db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Rollback(t.Context()) }()
	if _, err := held.Exec(t.Context(), "SELECT FROM embedsidecar.turn FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	var asking sync.WaitGroup
	for range 3 * config.MaxConns {
		asking.Go(func() { _, _ = f.q.Lease(t.Context(), f.claim(queue.Anyone, 1)) }) // they give up: the turn is held
	}
	done := make(chan struct{})
	go func() { asking.Wait(); close(done) }()
	most := int32(0)
	for waiting := true; waiting; {
		select {
		case <-done:
			waiting = false
		case <-time.After(time.Millisecond):
			most = max(most, pool.Stat().AcquiredConns())
		}
	}
	if most != config.MaxConns-1 {
		t.Errorf("they took up to %d of %d connections, want one left", most, config.MaxConns)
	}
}

func TestLease_GivesNothingToAnOlderGenerationOrAnotherModelNorWhileSwitchedOff(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if _, err := f.enqueue(t.Context(), change("1", 10)); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		`UPDATE embedsidecar.pipeline SET generation = 2`,
		`UPDATE embedsidecar.pipeline SET generation = 1, fingerprint = 'of another model'`,
		`UPDATE embedsidecar.pipeline SET fingerprint = 'f', enabled = false`,
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
	if f.q.MostUrgent(f.id, queue.Express) >= 0 {
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

func TestLease_ManyWaitingTasksCostNoMore(t *testing.T) {
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
			"generation": 1, "fingerprint": "f", "alone": alone, "lane": 0, "cursor": 1000, "max": 256,
			"keys": nil,
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

// How long a task waits is measured by the server's clock alone: this host's may be another one. A worker that took a
// new task for an old one would write the vector of a text that its row has no longer.
func TestP3_ATaskWaitsByTheServersClock(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.db.MustExec(`CREATE SCHEMA ahead`)
	for _, clock := range []string{"now", "clock_timestamp"} {
		f.db.MustExec(`CREATE FUNCTION ahead.` + clock + `() RETURNS timestamptz LANGUAGE sql
			AS 'SELECT pg_catalog.` + clock + `() + interval ''1 h'''`)
	}
	config := f.db.Pool.Config()
	config.ConnConfig.RuntimeParams["search_path"] = "ahead, pg_catalog"
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	f.q = queue.New(direct{pool})
	if _, err := f.enqueue(t.Context(), change("a", 1)); err != nil {
		t.Fatal(err)
	}
	f.db.MustExec(`UPDATE embedsidecar.task SET enqueued_at = now() + interval '50 min'`)
	task := f.lease(t, 1)[0]
	if waited := time.Since(task.EnqueuedAt).Round(time.Minute); waited != 10*time.Minute {
		t.Errorf("it waits for %s, want 10m", waited)
	}
}
