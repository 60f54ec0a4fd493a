package queue_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/embedsidecar/embedsidecar/queue"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// hands are several people and a worker who act on the same rows at the same time.
type hands struct {
	f *fixture
	q *queue.Queue

	mu      sync.Mutex
	done    map[string]bool  // rows whose task a worker has finished
	entries map[string]int64 // by action: how many calls there were
	changed map[string]int64 // ... and how many rows they say they have changed
	errs    []error
}

// acted notes what a call of an action has answered.
func (h *hands) acted(action string, n int64, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.errs = append(h.errs, fmt.Errorf("%s: %w", action, err))
		return
	}
	h.entries[action]++
	h.changed[action] += n
}

// switches calls a function that answers with a word.
func (h *hands) switches(ctx context.Context, action, sql, done string) {
	var word string
	err := h.f.db.Pool.QueryRow(ctx, "SELECT embedsidecar."+sql).Scan(&word)
	n := int64(0)
	if word == done {
		n = 1
	}
	h.acted(action, n, err)
}

// rows calls a function that changes rows.
func (h *hands) rows(ctx context.Context, action, sql string) {
	var n int64
	err := h.f.db.Pool.QueryRow(ctx, "SELECT changed FROM embedsidecar."+sql).Scan(&n)
	h.acted(action, n, err)
}

// works leases and finishes: some are done, some fail, some are to be tried again.
func (h *hands) works(ctx context.Context, action queue.Action) {
	tasks, err := h.q.Lease(ctx, h.f.claim(queue.Anyone, 3))
	if err == nil && len(tasks) > 0 {
		outcomes := make([]queue.Outcome, len(tasks))
		for i, task := range tasks {
			outcomes[i] = queue.Outcome{
				Task: task, Action: action, What: "embedded", Class: "data", Code: "c", Message: "m", Delay: 1e12,
			}
		}
		_, err = h.q.Finish(ctx, 1, tasks[0].Lease, 0, outcomes)
	}
	if errors.Is(err, queue.ErrLeaseLost) {
		err = nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.errs = append(h.errs, fmt.Errorf("work: %w", err))
	}
	for _, task := range tasks {
		if action == queue.Done {
			h.done[task.RowKey] = true
		}
	}
}

// acts are what hands do. Each is about some of six rows.
var acts = map[string]func(h *hands, ctx context.Context, keys string){
	"pause":  func(h *hands, ctx context.Context, _ string) { h.switches(ctx, "pause", "pause('docs')", "paused") },
	"resume": func(h *hands, ctx context.Context, _ string) { h.switches(ctx, "resume", "resume('docs')", "resumed") },
	"cancel": func(h *hands, ctx context.Context, keys string) {
		h.rows(ctx, "cancel", "cancel('docs', '{"+keys+"}')")
	},
	"requeue": func(h *hands, ctx context.Context, keys string) {
		h.rows(ctx, "requeue", "requeue('docs', '{"+keys+"}')")
	},
	"requeue all": func(h *hands, ctx context.Context, _ string) { h.rows(ctx, "requeue", "requeue('docs')") },
	"retry":       func(h *hands, ctx context.Context, _ string) { h.rows(ctx, "retry", "retry_failed('docs')") },
	"discard":     func(h *hands, ctx context.Context, _ string) { h.rows(ctx, "discard", "discard_dead('docs')") },
	"reembed": func(h *hands, ctx context.Context, keys string) {
		h.rows(ctx, "reembed", "reembed('docs', '{"+keys+"}')")
	},
	"prioritise": func(h *hands, ctx context.Context, _ string) { h.rows(ctx, "prioritise", "prioritise('docs', 'high')") },
	"prioritise back": func(h *hands, ctx context.Context, keys string) {
		h.rows(ctx, "prioritise", "prioritise('docs', 'normal', '{"+keys+"}')")
	},
	"work":       func(h *hands, ctx context.Context, _ string) { h.works(ctx, queue.Done) },
	"work badly": func(h *hands, ctx context.Context, _ string) { h.works(ctx, queue.Fail) },
	"work later": func(h *hands, ctx context.Context, _ string) { h.works(ctx, queue.Later) },
	"drain": func(h *hands, ctx context.Context, _ string) {
		if _, err := h.f.db.Pool.Exec(ctx, "CALL embedsidecar.drain('docs', '0 s')"); err != nil {
			h.acted("drain", 0, err)
		}
	},
	"change": func(h *hands, ctx context.Context, keys string) {
		var changes []queue.Change
		for key := range strings.SplitSeq(keys, ",") {
			changes = append(changes, change(key, 10))
		}
		if _, err := h.f.enqueue(ctx, changes...); err != nil {
			h.acted("change", 0, err)
		}
	},
}

// TestP2_OppositeActionsAtOnce: pause against drain, cancel against a lease, retry against discard, all at once and in
// every order. Nothing is refused or waits for ever, no row is lost, each is in one of the states that there are, the
// audit has every call with what it changed, and in the end a drain ends empty.
func TestP2_OppositeActionsAtOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	names := rapid.SampledFrom(slices.Sorted(maps.Keys(acts)))
	rapid.Check(t, func(rt *rapid.T) {
		ctx := t.Context()
		f.db.MustExec(`TRUNCATE embedsidecar.task, embedsidecar.lease, embedsidecar.audit_log`)
		h := &hands{
			f: f, q: queue.New(direct{f.db.Pool}), done: map[string]bool{},
			entries: map[string]int64{}, changed: map[string]int64{},
		}
		for i := 1; i <= 6; i++ {
			state := rapid.SampledFrom([]string{"todo", "todo", "retrying", "failed", "cancelled"}).Draw(rt, "state")
			f.db.MustExec(`INSERT INTO embedsidecar.task (pipeline_id, row_key, state, lane, xid, first_lsn, last_lsn, committed_at, due_at)
				VALUES ($1, $2, $3::text::embedsidecar.task_state, 1, '3', '0/6', '0/6', now(), CASE $3::text WHEN 'retrying' THEN now() + interval '1 h' END)`, f.id, fmt.Sprint(i), state)
		}
		keys := rapid.SampledFrom([]string{"1,2,3", "4,5,6", "1,6", "2,3,4,5", "1,2,3,4,5,6", "6,5,4,3,2,1"})
		var all sync.WaitGroup
		for range 4 {
			var mine, about []string
			for range rapid.IntRange(1, 4).Draw(rt, "acts") {
				mine, about = append(mine, names.Draw(rt, "act")), append(about, keys.Draw(rt, "keys"))
			}
			all.Go(func() {
				for i, name := range mine {
					acts[name](h, ctx, about[i])
				}
			})
		}
		all.Wait()
		h.holds(rt)
	})
}

// holds looks at what must hold whatever was done.
func (h *hands) holds(rt *rapid.T) {
	f := h.f
	for _, err := range h.errs {
		rt.Errorf("refused: %v", err)
	}
	here := testenv.Values[string](f.db, `SELECT row_key FROM embedsidecar.task ORDER BY row_key`)
	for i := 1; i <= 6; i++ {
		if key := fmt.Sprint(i); !slices.Contains(here, key) && !h.done[key] {
			rt.Errorf("row %s is lost: it has no task, and nobody has finished it", key)
		}
	}
	if n := testenv.Value[int](f.db, `SELECT count(*) FROM embedsidecar.task WHERE (state = 'retrying') <> (due_at IS NOT NULL)
		OR state = 'todo' AND error_code IS NOT NULL`); n != 0 {
		rt.Errorf("%d tasks are neither in one state nor in another", n)
	}
	var names []string
	for name := range h.entries {
		names = append(names, fmt.Sprintf("%s %d %d", name, h.entries[name], h.changed[name]))
	}
	slices.Sort(names)
	audit := testenv.Values[string](f.db, `SELECT concat_ws(' ', action, count(*), sum(changed)) FROM embedsidecar.audit_log GROUP BY action ORDER BY 1`)
	if !slices.Equal(audit, names) {
		rt.Errorf("the audit has %q, and what was answered is %q", audit, names)
	}
	off := h.changed["pause"] - h.changed["resume"]
	if on := testenv.Value[bool](f.db, `SELECT enabled FROM embedsidecar.pipeline`); off != 0 && off != 1 || on != (off == 0) {
		rt.Errorf("it was paused %d times more often than resumed, and is at work: %t", off, on)
	}
	// Taken back, all of it is worked, and nothing is left.
	f.db.MustExec(`SELECT embedsidecar.resume('docs'), embedsidecar.retry_failed('docs'), embedsidecar.requeue('docs')`)
	f.db.MustExec(`UPDATE embedsidecar.lease SET leased_until = '-infinity'`)
	q := queue.New(direct{f.db.Pool})
	for range 100 {
		tasks, err := q.Lease(rt.Context(), f.claim(queue.Anyone, 10))
		if err != nil {
			rt.Fatal(err)
		}
		if len(tasks) == 0 {
			break
		}
		outcomes := make([]queue.Outcome, len(tasks))
		for i, task := range tasks {
			outcomes[i] = queue.Outcome{Task: task, Action: queue.Done, What: "embedded"}
		}
		if _, err := q.Finish(rt.Context(), 1, tasks[0].Lease, 0, outcomes); err != nil {
			rt.Fatal(err)
		}
	}
	if left := testenv.Value[int64](f.db, `SELECT remaining FROM embedsidecar.drain_state(ARRAY[$1::integer], 'FFFFFFFF/FFFFFFFF')`, f.id); left != 0 {
		rt.Errorf("%d rows are left in the end", left)
	}
}
