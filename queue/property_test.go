package queue_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// Which test proves which property of the queue is in docs/architecture.md.

// held is a lease of the model.
type held struct {
	tasks   []queue.Task
	changed map[string]bool // since it was leased
	over    bool            // its time is over
	gone    bool            // and somebody has taken it back
}

// model is what the queue must be.
type model struct {
	state  map[string]string // of the tasks there are: todo, retrying, failed, cancelled
	leases []*held
	acts   []string // what the audit must say, the oldest first
}

// leased returns the tasks under leases that nobody has taken back, those whose time is over or the others.
func (m *model) leased(over bool) map[string]bool {
	keys := map[string]bool{}
	for _, l := range m.leases {
		for _, t := range l.tasks {
			if !l.gone && l.over == over {
				keys[t.RowKey] = true
			}
		}
	}
	return keys
}

// is returns what the view tasks must show of each task.
func (m *model) is() map[string]string {
	shown := maps.Clone(m.state)
	for over, word := range map[bool]string{true: "stale", false: "in_progress"} {
		for key := range m.leased(over) {
			if shown[key] == "todo" {
				shown[key] = word
			}
		}
	}
	return shown
}

// touch notes that a task is another one now than the one that was leased.
func (m *model) touch(key string) {
	for _, l := range m.leases {
		l.changed[key] = true
	}
}

// Whatever is done in whatever order, by workers, people and new processes: what the views count is what is there, each
// task is in one of the named states, a lease that is over is told as stale until it is taken back, a process that
// begins anew finds all of it, and each action has its entry of the audit with the number of rows.
func TestProperty_CountersEqualTheTablesAndAuditIsComplete(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	keys := []string{"a", "b", "c", "d", "e"}
	rapid.Check(t, func(rt *rapid.T) {
		f.db.MustExec(`DELETE FROM embedsidecar.task; DELETE FROM embedsidecar.lease; DELETE FROM embedsidecar.audit_log`)
		f.q = queue.New(direct{f.db.Pool})
		f.q.SetLooks(0, 0)
		m := &model{state: map[string]string{}}
		some := func() []string {
			return rapid.SliceOfNDistinct(rapid.SampledFrom(keys), 1, 3, rapid.ID[string]).Draw(rt, "keys")
		}
		// act calls a function of the schema and notes what it must have changed.
		act := func(name, sql string, args []any, states []string, to string, of []string) {
			n := 0
			for key, state := range m.state {
				if slices.Contains(states, state) && (of == nil || slices.Contains(of, key)) {
					m.state[key] = to
					n++
				}
			}
			if got := testenv.Value[int](f.db, sql, args...); got != n {
				rt.Fatalf("%s changed %d rows, want %d", name, got, n)
			}
			m.acts = append(m.acts, fmt.Sprint(name, " ", n))
		}
		steps := map[string]func(){
			"change": func() {
				for _, key := range some() {
					if _, err := f.enqueue(t.Context(), change(key, 10)); err != nil {
						rt.Fatal(err)
					}
					m.state[key] = "todo"
					m.touch(key)
				}
			},
			"lease": func() {
				if tasks := f.lease(t, rapid.IntRange(1, 3).Draw(rt, "max")); len(tasks) > 0 {
					m.leases = append(m.leases, &held{tasks: tasks, changed: map[string]bool{}})
				}
			},
			"finish": func() { m.finish(t, rt, f) },
			"run out": func() {
				f.db.MustExec(`UPDATE embedsidecar.lease SET leased_until = now() - interval '1 s'`)
				for _, l := range m.leases {
					l.over = true
				}
			},
			"sweep": func() {
				if err := f.sweep(t.Context()); err != nil {
					rt.Fatal(err)
				}
				for _, l := range m.leases {
					l.gone = l.gone || l.over
				}
			},
			"new process": func() {
				f.q = queue.New(direct{f.db.Pool})
				f.q.SetLooks(0, 0)
			},
			"cancel": func() {
				of := some()
				act("cancel", `SELECT changed::integer FROM embedsidecar.cancel('docs', $1)`, []any{of}, []string{"todo", "retrying", "failed"}, "cancelled", of)
			},
			"retry": func() {
				act("retry", `SELECT changed::integer FROM embedsidecar.retry_failed('docs')`, nil, []string{"retrying", "failed"}, "todo", nil)
			},
			"discard": func() {
				act("discard", `SELECT changed::integer FROM embedsidecar.discard_dead('docs')`, nil, []string{"failed"}, "cancelled", nil)
			},
			"requeue": func() {
				for key, state := range m.state {
					if state == "cancelled" {
						m.touch(key)
					}
				}
				act("requeue", `SELECT changed::integer FROM embedsidecar.requeue('docs')`, nil, []string{"cancelled"}, "todo", nil)
			},
		}
		names := slices.Sorted(maps.Keys(steps))
		for _, name := range rapid.SliceOfN(rapid.SampledFrom(names), 1, 14).Draw(rt, "steps") {
			steps[name]()
		}
		m.compare(rt, f)
	})
}

// finish ends a lease of the model and of the queue.
func (m *model) finish(t *testing.T, rt *rapid.T, f *fixture) {
	t.Helper()
	if len(m.leases) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.leases)-1).Draw(rt, "lease")
	l := m.leases[i]
	m.leases = slices.Delete(m.leases, i, i+1)
	action := rapid.SampledFrom([]queue.Action{queue.Done, queue.Later, queue.Fail}).Draw(rt, "action")
	outcomes := make([]queue.Outcome, len(l.tasks))
	for j, task := range l.tasks {
		outcomes[j] = queue.Outcome{Task: task, Action: action, What: "x", Delay: time.Hour}
		switch state := m.state[task.RowKey]; {
		case l.gone:
		case l.changed[task.RowKey] && state == "cancelled": // since it has changed
		case l.changed[task.RowKey]:
			m.state[task.RowKey] = "todo"
		case action == queue.Done:
			delete(m.state, task.RowKey)
		case state != "cancelled":
			m.state[task.RowKey] = string(action)
		}
	}
	if _, err := f.q.Finish(t.Context(), 1, l.tasks[0].Lease, 0, outcomes); err != nil {
		rt.Fatal(err)
	}
}

// compare compares the views with the model.
func (m *model) compare(rt *rapid.T, f *fixture) {
	shown := m.is()
	type task struct{ RowKey, State string }
	got := map[string]string{}
	for _, row := range testenv.Rows[task](f.db, `SELECT row_key, state FROM embedsidecar.tasks`) {
		got[row.RowKey] = row.State
	}
	if !maps.Equal(got, shown) {
		rt.Fatalf("tasks are %v, want %v", got, shown)
	}
	count := func(states ...string) (n int) {
		for _, state := range shown {
			if slices.Contains(states, state) {
				n++
			}
		}
		return n
	}
	want := fmt.Sprint(count("todo", "stale"), len(m.leased(false)), count("retrying"), count("failed"),
		count("cancelled"), len(shown),
		count("todo", "stale", "in_progress", "retrying"))
	if got := testenv.Value[string](f.db, `SELECT concat_ws(' ', pending, running, retrying, failed, cancelled,
		(SELECT coalesce(sum(rows), 0) FROM embedsidecar.lanes), embedsidecar.backlog()) FROM embedsidecar.status`); got != want {
		rt.Fatalf("counted are %s, want %s of %v", got, want, shown)
	}
	if got := testenv.Values[string](f.db, `SELECT action || ' ' || changed FROM embedsidecar.audit ORDER BY audit_id`); !slices.Equal(got, m.acts) {
		rt.Fatalf("the audit says %q, want %q", got, m.acts)
	}
}

// Whatever waits in whatever lanes: a lane's tasks go in their order, five claims of eight take the most urgent lane
// that has any, and no lane that has some waits for more than eight claims.
func TestProperty_PrioritiesOrderAndNoLaneStarves(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	rapid.Check(t, func(rt *rapid.T) {
		f.db.MustExec(`DELETE FROM embedsidecar.task; DELETE FROM embedsidecar.lease`)
		f.q = queue.New(direct{f.db.Pool})
		waiting := map[pipeline.Lane][]string{}
		var changes []queue.Change
		for i, lane := range rapid.SliceOfN(rapid.IntRange(0, 3), 1, 24).Draw(rt, "lanes") {
			c := change(fmt.Sprintf("%03d", i), 10)
			c.Lane = pipeline.Lane(lane)
			changes = append(changes, c)
			waiting[c.Lane] = append(waiting[c.Lane], c.RowKey)
		}
		if _, err := f.enqueue(t.Context(), changes...); err != nil {
			rt.Fatal(err)
		}
		waits := map[pipeline.Lane]int{}
		other := 0
		for claims := 1; len(waiting) > 0; claims++ {
			tasks := f.lease(t, 1)
			if len(tasks) != 1 {
				rt.Fatalf("nothing is leased, and %v wait", waiting)
			}
			lane := tasks[0].Lane
			if first := waiting[lane][0]; first != tasks[0].RowKey {
				rt.Fatalf("lane %d: %s goes before %s", lane, tasks[0].RowKey, first)
			}
			if lane != slices.Max(slices.Collect(maps.Keys(waiting))) {
				other++
			}
			if other > 3*((claims+7)/8) {
				rt.Fatalf("%d claims of %d went past the most urgent lane", other, claims)
			}
			for l := range waiting {
				if waits[l]++; waits[l] > 8 && l != lane {
					rt.Fatalf("lane %d has waited for %d claims", l, waits[l])
				}
			}
			waits[lane] = 0
			if waiting[lane] = waiting[lane][1:]; len(waiting[lane]) == 0 {
				delete(waiting, lane)
			}
		}
	})
}
