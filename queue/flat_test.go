package queue_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/queue"
)

// meter is a database that can say how many blocks each of its statements touched.
type meter struct {
	*pgxpool.Pool
	on      bool
	heard   func(name string)  // of a statement that was measured; may be nil
	touched map[string]float64 // by query file: the most of one execution
}

// note runs a statement once more, to be rolled back, and reads what it touched; first comes what says how it is
// planned.
func (m *meter) note(ctx context.Context, sql string, args []any, first ...string) error {
	name, _, found := strings.Cut(strings.TrimPrefix(sql, "-- "), ":")
	if !m.on || !found {
		return nil
	}
	tx, err := m.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	for _, s := range first {
		if _, err := tx.Exec(ctx, s); err != nil {
			return err
		}
	}
	var plan []byte
	if err := tx.QueryRow(ctx, "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+sql, args...).Scan(&plan); err != nil {
		return fmt.Errorf("explain %s: %w", name, err)
	}
	var parsed []struct{ Plan map[string]any }
	if err := json.Unmarshal(plan, &parsed); err != nil {
		return err
	}
	hit, _ := parsed[0].Plan["Shared Hit Blocks"].(float64)
	read, _ := parsed[0].Plan["Shared Read Blocks"].(float64)
	m.touched[name] = max(m.touched[name], hit+read)
	if m.heard != nil {
		m.heard(name)
	}
	return nil
}

func (m *meter) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := m.note(ctx, sql, args); err != nil {
		return failedRow{err}
	}
	return m.Pool.QueryRow(ctx, sql, args...)
}

func (m *meter) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := m.note(ctx, sql, args); err != nil {
		return pgconn.CommandTag{}, err
	}
	return m.Pool.Exec(ctx, sql, args...)
}

func (m *meter) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	var first []string
	for _, q := range b.QueuedQueries {
		if !strings.HasPrefix(q.SQL, "-- ") {
			first = append(first, q.SQL)
			continue
		}
		if err := m.note(ctx, q.SQL, q.Arguments, first...); err != nil {
			panic(err) // a test's own statement
		}
	}
	return m.Pool.SendBatch(ctx, b)
}

type failedRow struct{ err error }

func (f failedRow) Scan(...any) error { return f.err }

// TestLease_StaysFlatUnderAHeldSnapshot finishes tasks while somebody holds a snapshot, which keeps every index entry
// of theirs: no statement of the queue may walk over them. A million in a soak (EMBEDSIDECAR_FINISHED=1000000), fewer
// otherwise; what is linear shows in either.
func TestLease_StaysFlatUnderAHeldSnapshot(t *testing.T) {
	t.Parallel()
	total := 60_000
	if s := os.Getenv("EMBEDSIDECAR_FINISHED"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		total = n
	}
	const portion = 2000
	f := newFixture(t)
	ctx := t.Context()
	m := &meter{Pool: f.db.Pool, touched: map[string]float64{}}
	f.q = queue.New(m)
	f.q.SetLooks(2*time.Second, 24*time.Hour) // however slow the machine is: a whole look walks over all of them
	holder, err := f.db.Pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := holder.Exec(ctx, `SELECT 1`); err != nil { // now it has one
		t.Fatal(err)
	}
	lsn := uint64(100)
	round := func(n int) {
		t.Helper()
		changes := make([]queue.Change, n)
		for i := range changes {
			lsn++
			changes[i] = change(fmt.Sprint(lsn), lsn)
		}
		if _, err := f.enqueue(ctx, changes...); err != nil {
			t.Fatal(err)
		}
		for left := n; left > 0; {
			tasks := f.lease(t, 256)
			if len(tasks) == 0 {
				t.Fatalf("%d of %d tasks are not leased", left, n)
			}
			if err := f.q.Extend(ctx, tasks[0].Lease, 1e12); err != nil {
				t.Fatal(err)
			}
			left -= f.finish(t, tasks, queue.Done).Done
		}
		if tasks := f.lease(t, 256); len(tasks) != 0 { // the queue runs empty
			t.Fatalf("%d tasks too many", len(tasks))
		}
	}
	measure := func() map[string]float64 {
		t.Helper()
		for pass := range 5 {
			if pass == 2 { // the first resets walk over what was finished since the ones before
				m.on, m.touched = true, map[string]float64{}
			}
			f.q.Wake(f.id)
			round(1)
		}
		sweeping, cancel := context.WithCancel(ctx)
		defer cancel()
		sweeps := 0
		m.heard = func(name string) {
			if name == "sweep_tasks" {
				if sweeps++; sweeps > 1 { // the first begins from the beginning, once a minute
					cancel()
				}
			}
		}
		if err := f.q.RunSweeps(sweeping, time.Millisecond, nil, func(err error) { t.Error(err) }); err != nil {
			t.Fatal(err)
		}
		m.heard = nil
		if _, err := f.q.Backlog(ctx, f.id, 4000); err != nil {
			t.Fatal(err)
		}
		m.on = false
		return m.touched
	}
	for range 3 {
		round(portion)
	}
	start := measure()
	for done := 0; done < total; done += portion {
		round(portion)
	}
	end := measure()
	t.Logf("blocks at the start %v, after %d finished tasks %v", start, total, end)
	for _, name := range []string{
		"lease_tasks", "reset_cursor", "note_places", "make_turn", "extend_lease", "open_tasks", "finish_tasks", "take_turn",
		"sweep_tasks",
	} {
		if end[name] == 0 && start[name] > 0 {
			t.Errorf("%s was not measured", name)
		}
		// A tree of a million entries is a level higher than one of thousands. And when places were last passed, in the
		// middle of a portion on a slow machine, decides whether the entries of one are walked over.
		if end[name] > 2*start[name]+portion/10 {
			t.Errorf("%s touched %.0f blocks at the start, %.0f after %d finished tasks", name, start[name], end[name], total)
		}
	}
}

// statements counts what a queue sends, by query file.
type statements struct {
	*pgxpool.Pool
	sent map[string]int
}

func (s *statements) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	for _, q := range b.QueuedQueries {
		name, _, _ := strings.Cut(strings.TrimPrefix(q.SQL, "-- "), ":")
		s.sent[name]++
	}
	return s.Pool.SendBatch(ctx, b)
}

// Where changes come one by one the lanes run empty after each, and all places are not looked up for that.
func TestLease_ResetsNoOftenerThanItMust(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := &statements{f.db.Pool, map[string]int{}}
	f.q = queue.New(s)
	f.q.SetLooks(24*time.Hour, 24*time.Hour)
	for i := range 20 {
		if _, err := f.enqueue(t.Context(), change(fmt.Sprint(i), uint64(10+i))); err != nil {
			t.Fatal(err)
		}
		if done := f.finish(t, f.lease(t, 10), queue.Done); done.Done != 1 {
			t.Fatalf("change %d: %+v", i, done)
		}
		if tasks := f.lease(t, 10); len(tasks) > 0 {
			t.Fatalf("%d tasks too many", len(tasks))
		}
	}
	if s.sent["reset_cursor"] != 1 || s.sent["lease_tasks"] > 2*20 {
		t.Errorf("of 20 changes came %v", s.sent)
	}
}

// A task that somebody writes by hand with a place that is long passed is found when all of it is looked at.
func TestLease_LooksAtAllOfItNowAndThen(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for often, want := range map[time.Duration]int{24 * time.Hour: 0, 0: 1} {
		f.q = queue.New(f.db.Pool)
		f.q.SetLooks(0, often)
		for i := range 3 { // places are passed when who may have held one has ended, a thousand at a time
			f.db.MustExec(`SELECT setval('embedsidecar.task_seq', nextval('embedsidecar.task_seq') + 2000)`)
			if _, err := f.enqueue(t.Context(), change(fmt.Sprint(i), uint64(10+i))); err != nil {
				t.Fatal(err)
			}
			f.finish(t, f.lease(t, 10), queue.Done)
			f.lease(t, 10)
		}
		f.db.MustExec(`INSERT INTO embedsidecar.task (pipeline_id, row_key, lane, seq, xid, first_lsn, last_lsn, committed_at) VALUES ($1, 'late', 1, 1, '3', '0/1', '0/1', now())`, f.id)
		if got := f.lease(t, 10); len(got) != want {
			t.Errorf("with a whole look every %s %d tasks are found, want %d", often, len(got), want)
		}
		f.db.MustExec(`DELETE FROM embedsidecar.task`)
		f.db.MustExec(`DELETE FROM embedsidecar.lease`)
	}
}
