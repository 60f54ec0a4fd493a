package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// live changes rows like an application would, one statement and transaction at a time, and measures how long after
// each commit the vector of the new text is there to be read.
type live struct {
	dsn   string
	tough bool        // the server comes and goes: try again
	bored func() bool // there is little left to do: many rows may be edited at once
	rng   *rand.Rand

	texts   map[int32]pkg // every text as it was first, by id
	reserve []pkg         // not loaded: to be inserted
	ids     []int32       // in the table
	deleted []int32
	edited  []int32 // those whose text is not the first one

	mu      sync.Mutex
	pending map[int32]time.Time // changed rows whose vector is not there yet, with the time of their commit
	took    []time.Duration
	counts  changeCounts
	lost    int // changes of which nobody knows, because the server went away
}

// changeCounts counts what was done.
type changeCounts struct {
	edited, inserted, deleted, moved, undone, returned, revised int
}

func (c changeCounts) String() string {
	text := fmt.Sprintf("%d edits, %d inserts, %d deletes, %d edits undone, %d deleted rows put back, %d changes of a column that is not embedded",
		c.edited, c.inserted, c.deleted, c.undone, c.returned, c.moved)
	if c.revised > 0 {
		text += fmt.Sprintf(", %d edits of %d rows at once", c.revised, bulk)
	}
	return text
}

// bulk is how many rows an edit of many changes.
const bulk = 250

func newLive(dsn string, loaded, reserve []pkg, tough bool) *live {
	l := &live{
		dsn: dsn, tough: tough, rng: rand.New(rand.NewPCG(2, 2)), reserve: reserve,
		texts: map[int32]pkg{}, pending: map[int32]time.Time{},
	}
	for _, p := range loaded {
		l.texts[p.id] = p
		l.ids = append(l.ids, p.id)
	}
	for _, p := range reserve {
		l.texts[p.id] = p
	}
	return l
}

// run makes a change each time the ticker ticks, until it has made enough (0: no end), then waits for the last vectors.
// It returns when all is done or when ctx ends, without an error in that case. stop asks it to make no more.
func (l *live) run(ctx context.Context, every time.Duration, enough int, stop <-chan struct{}) error {
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	watched := make(chan error, 1)
	go func() { watched <- l.watch(watching) }()
	err := l.change(ctx, every, enough, stop)
	if err == nil {
		err = l.settle(ctx, watched)
	}
	cancel()
	return errors.Join(err, <-watched)
}

// settle waits until nothing is pending, or the watcher ended.
func (l *live) settle(ctx context.Context, watched chan error) error {
	const timeout = 5 * time.Minute
	limit := time.NewTimer(timeout)
	defer limit.Stop()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for {
		l.mu.Lock()
		left := len(l.pending)
		l.mu.Unlock()
		if left == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-watched:
			watched <- err
			return nil
		case <-limit.C:
			return fmt.Errorf("the vectors of %d changed rows were not there after %s", left, timeout)
		case <-poll.C:
		}
	}
}

// change makes the changes.
func (l *live) change(ctx context.Context, every time.Duration, enough int, stop <-chan struct{}) error {
	var conn *pgx.Conn
	defer func() { leave(ctx, conn) }()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for done := 0; enough == 0 || done < enough; {
		select {
		case <-ctx.Done():
			return nil
		case <-stop:
			return nil
		case <-tick.C:
		}
		var err error
		if conn == nil || conn.IsClosed() {
			conn, err = l.connect(ctx)
		}
		if err == nil {
			err = l.one(ctx, conn)
			done++
		}
		if err != nil && ctx.Err() == nil {
			if !l.tough {
				return fmt.Errorf("change a row: %w", err)
			}
			leave(ctx, conn)
			conn = nil
		}
	}
	return nil
}

func (l *live) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return pgx.Connect(ctx, l.dsn)
}

// leave closes a connection, also after ctx has ended. There may be none.
func leave(ctx context.Context, conn *pgx.Conn) {
	if conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// reviseAll gives each row a text that it never had.
const reviseAll = `UPDATE public.packages SET summary = regexp_replace(summary, ' \(revision \d+\)$', '') || $2 WHERE id = ANY ($1)`

const setSummary = "UPDATE public.packages SET summary = $2 WHERE id = $1"

// one makes one change, of a kind drawn by chance.
func (l *live) one(ctx context.Context, conn *pgx.Conn) error {
	n := &l.counts
	switch draw := l.rng.IntN(100); {
	case draw < 5 && l.bored != nil && l.bored():
		return l.revise(ctx, conn)
	case draw < 40:
		id, with := l.draw(), l.texts[l.draw()]
		l.edited = append(l.edited, id)
		return l.measured(ctx, conn, id, &n.edited, setSummary, id, l.texts[id].summary+", "+with.summary)
	case draw < 60 && len(l.reserve) > 0:
		p := l.reserve[len(l.reserve)-1]
		l.reserve = l.reserve[:len(l.reserve)-1]
		return l.insert(ctx, conn, p, &n.inserted)
	case draw < 70 && len(l.ids) > 0:
		id := l.draw()
		if _, err := l.exec(ctx, conn, &n.deleted, "DELETE FROM public.packages WHERE id = $1", id); err != nil {
			return err
		}
		l.forget(id)
		l.deleted = append(l.deleted, id)
		return nil
	case draw < 80 && len(l.deleted) > 0:
		id := l.deleted[0]
		l.deleted = l.deleted[1:]
		return l.insert(ctx, conn, l.texts[id], &n.returned)
	case draw < 85 && len(l.edited) > 0 && !l.waits(l.edited[0]):
		id := l.edited[0]
		l.edited = slices.DeleteFunc(l.edited, func(other int32) bool { return other == id })
		return l.measured(ctx, conn, id, &n.undone, setSummary, id, l.texts[id].summary)
	default:
		id := l.draw()
		_, err := l.exec(ctx, conn, &n.moved, "UPDATE public.packages SET section = 'moved/' || section WHERE id = $1", id)
		return err
	}
}

// draw returns a row that waits for no vector.
func (l *live) draw() int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		id := l.ids[l.rng.IntN(len(l.ids))]
		if _, waits := l.pending[id]; !waits {
			return id
		}
	}
}

// waits reports whether a row's vector is still waited for.
func (l *live) waits(id int32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, waits := l.pending[id]
	return waits
}

// forget notes that a row is not there.
func (l *live) forget(id int32) {
	same := func(other int32) bool { return other == id }
	l.ids, l.edited = slices.DeleteFunc(l.ids, same), slices.DeleteFunc(l.edited, same)
}

func (l *live) insert(ctx context.Context, conn *pgx.Conn, p pkg, count *int) error {
	err := l.measured(ctx, conn, p.id, count,
		"INSERT INTO public.packages (id, name, section, summary) VALUES ($1, $2, $3, $4)",
		p.id, p.name, p.section, p.summary)
	if err == nil {
		l.ids = append(l.ids, p.id)
	}
	return err
}

// revise edits many rows in one transaction. Their vectors are not waited for one by one.
func (l *live) revise(ctx context.Context, conn *pgx.Conn) error {
	ids := make([]int32, bulk)
	for i := range ids {
		ids[i] = l.draw()
	}
	_, err := l.exec(ctx, conn, &l.counts.revised, reviseAll, ids, fmt.Sprintf(" (revision %d)", l.counts.revised+1))
	return err
}

// measured makes a change whose vector is waited for.
func (l *live) measured(ctx context.Context, conn *pgx.Conn, id int32, count *int, sql string, args ...any) error {
	changed, err := l.exec(ctx, conn, count, sql, args...)
	if err != nil {
		return err
	}
	if !changed { // deleted by a statement whose answer was lost
		l.forget(id)
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending[id] = time.Now()
	return nil
}

// exec makes a change and reports whether there was a row to change.
func (l *live) exec(ctx context.Context, conn *pgx.Conn, count *int, sql string, args ...any) (changed bool,
	err error,
) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	tag, err := conn.Exec(ctx, sql, args...)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.lost++
		return false, err
	}
	*count++
	return tag.RowsAffected() > 0, nil
}

// arrived tells which of some rows have the vector of their present text. The hash is computed here, from the row:
// what the sidecar says of it is not asked, only which text the vector is of, which it writes in the same
// transaction.
const arrived = `SELECT p.id
FROM   public.packages AS p
       JOIN embedsidecar.ledger AS l ON l.row_key = p.id::text
       JOIN embedsidecar.pipeline AS s ON s.pipeline_id = l.pipeline_id AND s.name = '` + pipelineName + `'
WHERE  p.id = ANY ($1) AND p.embedding IS NOT NULL
       AND l.text_hash = sha256(convert_to(p.name || E'\n\n' || p.summary, 'UTF8'))`

// watch looks for vectors that are waited for, the more often the younger the youngest change is.
func (l *live) watch(ctx context.Context) error {
	const shortest, longest, share = time.Millisecond, 50 * time.Millisecond, 50
	var conn *pgx.Conn
	defer func() { leave(ctx, conn) }()
	pause := time.NewTimer(shortest)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-pause.C:
		}
		var err error
		if conn == nil || conn.IsClosed() {
			conn, err = l.connect(ctx)
		}
		youngest := longest * share
		if err == nil {
			youngest, err = l.look(ctx, conn)
		}
		if err != nil && ctx.Err() == nil {
			if !l.tough {
				return fmt.Errorf("look for vectors: %w", err)
			}
			leave(ctx, conn)
			conn = nil
		}
		pause.Reset(min(max(youngest/share, shortest), longest))
	}
}

// look notes the vectors that have arrived and returns the age of the youngest change that still waits.
func (l *live) look(ctx context.Context, conn *pgx.Conn) (youngest time.Duration, err error) {
	l.mu.Lock()
	ids := make([]int32, 0, len(l.pending))
	for id, at := range l.pending {
		ids = append(ids, id)
		if age := time.Since(at); youngest == 0 || age < youngest {
			youngest = age
		}
	}
	l.mu.Unlock()
	if len(ids) == 0 {
		return 0, nil
	}
	rows, err := conn.Query(ctx, arrived, ids)
	if err != nil {
		return 0, err
	}
	there, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	if err != nil {
		return 0, err
	}
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range there {
		l.took = append(l.took, now.Sub(l.pending[id]))
		delete(l.pending, id)
	}
	return youngest, nil
}

// latencies returns how long the vectors took that arrived since the last call, shortest first.
func (l *live) latencies() []time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	took := l.took
	l.took = nil
	slices.Sort(took)
	return took
}

// percentile returns the value below which p of 100 sorted values lie.
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)*p/100, len(sorted)-1)]
}
