package queue_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/queue"
	"github.com/embedsidecar/embedsidecar/testenv"
)

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
	testenv.Eventually(t, 5*time.Minute, func() (bool, string) {
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

// The table itself holds attempts between 0 and the most that may be configured.
func TestFinish_AttemptsHaveBounds(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if _, err := f.enqueue(t.Context(), change("1", 10)); err != nil {
		t.Fatal(err)
	}
	for attempt, fits := range map[int]bool{-1: false, 0: true, 1000: true, 1001: false} {
		_, err := f.db.Pool.Exec(t.Context(), "UPDATE embedsidecar.task SET attempt = $1", attempt)
		if fits != (err == nil) {
			t.Errorf("%d attempts: %v", attempt, err)
		}
	}
}
