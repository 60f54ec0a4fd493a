package queue_test

import (
	"context"
	"fmt"
	"os"
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
	db.MustExec(`INSERT INTO embedsidecar.installation (secret) VALUES ('\x00') ON CONFLICT DO NOTHING`)
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
	return queue.Claim{PipelineID: f.id, Generation: 1, Fingerprint: "f", Who: who, Worker: 1, Max: n, Lease: time.Hour}
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
	args := pgx.StrictNamedArgs{"mend": true, "due_after": time.Time{}, "dead_after": queue.DeadAfterLost}
	_, err := f.db.Pool.Exec(ctx, sqlfiles.Query("sweep_tasks"), args)
	return err
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
