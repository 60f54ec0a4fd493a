package queue_test

import (
	"slices"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// What holds tasks commits without a replica, which may be away: the stream waits for it. What makes a change durable
// waits for one.
func TestP5_WhoHoldsTasksWaitsForNoReplica(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.db.MustExec(`CREATE TABLE committed (how text)`)
	f.db.MustExec(`CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN INSERT INTO public.committed VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$`)
	f.db.MustExec(`CREATE CONSTRAINT TRIGGER noted AFTER INSERT OR UPDATE OR DELETE ON embedsidecar.task
		DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note()`)
	var tasks []queue.Task
	for _, step := range []struct {
		name, want string
		do         func() error
	}{
		{"enqueue", "on", func() error { _, err := f.enqueue(t.Context(), change("1", 10)); return err }},
		{"add", "local", func() error { return queue.Add(t.Context(), f.db.Pool, f.id, pipeline.Low, []string{"1", "2"}) }},
		{"finish", "local", func() error { tasks = f.lease(t, 10); f.finish(t, tasks, queue.Fail); return nil }},
		{"retry", "local", func() error { f.db.MustExec(`SELECT embedsidecar.retry_failed()`); return nil }},
		{"cancel", "local", func() error { f.db.MustExec(`SELECT embedsidecar.cancel('docs', '{1}')`); return nil }},
		{"requeue", "local", func() error { f.db.MustExec(`SELECT embedsidecar.requeue('docs')`); return nil }},
		{"sweep", "local", func() error {
			tasks = f.lease(t, 10)
			f.db.MustExec(`UPDATE embedsidecar.lease SET leased_until = now() - interval '1 s'`)
			return f.sweep(t.Context())
		}},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if got := testenv.Values[string](f.db, `SELECT DISTINCT how FROM committed`); !slices.Equal(got,
			[]string{step.want}) {
			t.Errorf("%s commits with synchronous_commit = %q, want %s", step.name, got, step.want)
		}
		f.db.MustExec(`DELETE FROM committed`)
	}
}
