package queue

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// cursorSlack is how far behind the last claim the next one starts, in places. Places are assigned before commit, so a
// lower one may still appear. One that appears even later is found at the next reset.
const cursorSlack = 4096

// turns are the claims out of eight that start with another lane than the most urgent, so that no lane starves.
var turns = map[int]pipeline.Lane{3: pipeline.Normal, 5: pipeline.High, 7: pipeline.Low}

// cursorReset is how often the oldest place is looked up, wholeLook how often from the very beginning.
const (
	cursorReset = 2 * time.Second
	wholeLook   = 5 * time.Minute
)

// Claim is a worker's request for tasks.
type Claim struct {
	PipelineID int32
	// of the pipeline as known to the worker; the claim gets nothing if they changed
	Generation  int32
	Fingerprint string
	Who         Who
	Worker      int64
	Max         int
	Lease       time.Duration
	// Anywhere starts at a random place instead of the oldest.
	Anywhere bool
	Strict   bool // always take the most urgent lane that has a task
	// Keys are the rows whose tasks are wanted, even if no budget is left; nil: any.
	Keys []string
}

// Lease leases up to Max tasks of a pipeline: tasks of one batch, or a single one that must be tried alone. The most
// urgent lane goes first, but three claims of eight start with another lane so that a backfill cannot starve, unless
// Strict is set. It returns no tasks if none can be leased now.
//
// A canceled statement may still have leased tasks, so do not cancel ctx to stop work. The next Lease of any pipeline
// gives back leases left by a lost connection.
func (q *Queue) Lease(ctx context.Context, l Claim) ([]Task, error) {
	if err := q.leasing.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer q.leasing.Release(1)
	if err := q.giveBackLost(ctx); err != nil {
		return nil, err
	}
	if l.Keys != nil {
		if _, err := q.resetCursor(ctx, l.PipelineID); err != nil { // it makes the turn
			return nil, err
		}
		tasks, _, err := q.claim(ctx, pgx.StrictNamedArgs{"alone": false, "lane": -1, "max": l.Max, "cursor": 0}, l)
		return tasks, err
	}
	c, fresh, err := q.cursor(ctx, l.PipelineID)
	if err != nil {
		return nil, err
	}
	for {
		tasks, hidden, err := q.leaseFrom(ctx, c, l)
		if err != nil || len(tasks) > 0 || fresh {
			return tasks, err
		}
		next := lookAll
		if !hidden && !l.Anywhere {
			next = q.emptied(l, &c)
		}
		switch next {
		case lookNowhere:
			return nil, nil
		case lookAfter:
		case lookAll:
			// Look from the true beginning before reporting that the lanes are empty.
			if c, err = q.resetCursor(ctx, l.PipelineID); err != nil {
				return nil, err
			}
			fresh = true
		}
	}
}

// looked is where to look when the lanes are empty after a cursor.
type looked int

const (
	lookNowhere looked = iota // tasks before the cursor are found by a later look
	lookAfter                 // after the cursor again: a task arrived
	lookAll                   // from the true beginning
)

// emptied records that the lanes are empty after a cursor. When changes come one by one, the lanes are empty after
// each. So one timer wakes one claimer to look before the cursor, for all claims.
func (q *Queue) emptied(l Claim, c *cursor) looked {
	q.mu.Lock()
	defer q.mu.Unlock()
	now, ok := q.cursors[l.PipelineID]
	switch {
	case !ok || time.Since(now.reset) >= q.cursorReset:
		return lookAll
	case now.opens != c.opens:
		*c = *now
		return lookAfter
	}
	for lane, place := range now.place {
		if place >= 0 && (l.Who == Anyone || pipeline.Lane(lane) != pipeline.Low) {
			now.last[lane], now.place[lane] = place, -1
		}
	}
	if now.again == nil {
		now.again = time.AfterFunc(time.Until(now.reset.Add(q.cursorReset)), func() { q.lookAgain(l.PipelineID, now) })
	}
	return lookNowhere
}

// lookAgain wakes a claimer, which then looks from the true beginning.
func (q *Queue) lookAgain(pipelineID int32, c *cursor) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c.again = nil
	q.tellLocked(pipelineID, false)
}

// leaseFrom claims after a cursor. hidden reports whether there are tasks that cannot be leased yet.
func (q *Queue) leaseFrom(ctx context.Context, c cursor, l Claim) (tasks []Task, hidden bool, err error) {
	if c.alone && l.Who == Anyone {
		args := pgx.StrictNamedArgs{"alone": true, "lane": 0, "max": 1, "cursor": 0}
		if tasks, hidden, err = q.claim(ctx, args, l); len(tasks) > 0 {
			q.passOn(l.PipelineID)
		}
		if err != nil || len(tasks) > 0 {
			return tasks, false, err
		}
	}
	lanes := []pipeline.Lane{pipeline.Urgent, pipeline.High, pipeline.Normal, pipeline.Low}
	if first, ok := turns[c.claims%8]; ok && !l.Strict {
		lanes = slices.Insert(slices.DeleteFunc(lanes, func(l pipeline.Lane) bool { return l == first }), 0, first)
	}
	for _, lane := range lanes {
		if c.place[lane] < 0 || l.Who == Express && lane == pipeline.Low {
			continue
		}
		args := pgx.StrictNamedArgs{"alone": false, "lane": int16(lane), "max": l.Max, "cursor": c.from(lane, l.Anywhere)}
		tasks, later, err := q.claim(ctx, args, l)
		if err != nil {
			return nil, false, err
		}
		hidden = hidden || later
		if len(tasks) > 0 {
			if !l.Anywhere {
				q.advance(l.PipelineID, lane, tasks)
			}
			if lane == pipeline.Low {
				q.passOn(l.PipelineID)
			}
			return tasks, false, nil
		}
	}
	return nil, hidden, nil
}

// claim takes the pipeline's turn and leases, in one round trip and one transaction. If it leases nothing, hidden
// reports whether there are tasks that cannot be leased yet.
func (q *Queue) claim(ctx context.Context, args pgx.StrictNamedArgs, l Claim) (tasks []Task, hidden bool, err error) {
	//nolint:gosec // nobody guesses at it: it need only be another one than those of the leases there are
	lease := Lease{PipelineID: l.PipelineID, Token: rand.Int64(), Work: &Work{Began: time.Now()}}
	args["token"], args["pipeline_id"], args["generation"], args["worker"], args["lease"] = lease.Token, l.PipelineID, l.Generation, l.Worker, l.Lease
	args["fingerprint"], args["keys"] = l.Fingerprint, l.Keys
	defer func() {
		if err != nil {
			q.lose(lease)
		}
	}()
	batch := &pgx.Batch{}
	database.PlanOnce(q.db, batch, 1)
	batch.Queue(sqlfiles.Query("take_turn"), pgx.StrictNamedArgs{"pipeline_id": l.PipelineID})
	batch.Queue(sqlfiles.Query("lease_tasks"), args).Query(func(rows pgx.Rows) error {
		tasks, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (t Task, err error) {
			t.Lease = lease
			var waited time.Duration
			err = row.Scan(&t.TaskID, &t.RowKey, &t.Gen, &t.Seq, &t.Lane, &t.Attempt, &t.Losses, &t.FirstLSN, &t.LastLSN,
				&t.CommittedAt, &waited, &t.Seen, &t.Lease.Place, &t.Lease.Life, &hidden)
			t.EnqueuedAt = time.Now().Add(-waited)
			return t, err
		})
		return err
	})
	if err := q.db.SendBatch(ctx, batch).Close(); err != nil {
		return nil, false, fmt.Errorf("lease tasks: %w", err)
	}
	if len(tasks) > 0 && tasks[0].TaskID == 0 {
		tasks = nil
	}
	return tasks, hidden, nil
}

// from returns where a claim in a lane starts.
func (c *cursor) from(lane pipeline.Lane, anywhere bool) int64 {
	if ahead := c.top - c.place[lane]; anywhere && ahead > 0 &&
		rand.IntN(2) == 0 { //nolint:gosec // chance is all that is asked of it; there may be none behind it: every other begins at the first
		return c.place[lane] + rand.Int64N(ahead) //nolint:gosec // as above
	}
	return c.place[lane]
}

// cursor returns where to claim from. fresh reports whether it was looked up now because the last look was too old.
func (q *Queue) cursor(ctx context.Context, pipelineID int32) (c cursor, fresh bool, err error) {
	q.mu.Lock()
	known := q.cursorLocked(pipelineID)
	if time.Since(known.reset) < q.cursorReset {
		known.claims++
		c = *known
		q.mu.Unlock()
		return c, false, nil
	}
	begins := known.resets == 0 && known.opens == 0
	q.mu.Unlock()
	if begins {
		if c, fresh, err = q.idle(ctx, pipelineID); fresh || err != nil {
			return c, fresh, err
		}
	}
	c, err = q.resetCursor(ctx, pipelineID)
	return c, true, err
}

// idle reports whether a newly started pipeline had no task in a recent look at all pipelines, and none was reported
// since. One look serves the thousand pipelines that may start together.
func (q *Queue) idle(ctx context.Context, pipelineID int32) (c cursor, idle bool, err error) {
	q.looking.Lock()
	defer q.looking.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	if known := q.cursorLocked(pipelineID); !known.idle && (q.seen == nil || time.Since(q.seen.at) > seenFor) {
		now := &seen{at: time.Now()}
		q.seen = now
		q.mu.Unlock()
		batch := &pgx.Batch{}
		database.PlanOnce(q.db, batch, 1)
		batch.Queue(sqlfiles.Query("busy_pipelines")).Query(func(rows pgx.Rows) (err error) {
			now.busy, err = pgx.CollectRows(rows, pgx.RowTo[int32])
			return err
		})
		err = q.db.SendBatch(ctx, batch).Close()
		q.mu.Lock()
		if err != nil || q.seen != now {
			q.seen = nil
			return c, false, wrap.Errorf(err, "look for tasks")
		}
	}
	known := q.cursorLocked(pipelineID)
	if q.seen != nil && !known.idle {
		_, busy := slices.BinarySearch(q.seen.busy, pipelineID)
		known.idle = !busy
	}
	return *known, known.idle && known.opens == 0 && known.resets == 0, nil
}

func (q *Queue) resetCursor(ctx context.Context, pipelineID int32) (cursor, error) {
	q.mu.Lock()
	before := *q.cursorLocked(pipelineID)
	q.mu.Unlock()
	// From time to time look at everything: another program may have written to the table without maintaining places.
	all := time.Since(before.whole) > q.wholeLook
	var (
		top   int64
		free  []*int64
		alone bool
	)
	// note_places runs under the turn, in a short transaction of its own, so that no claim waits for the look. The look
	// sees everything committed before.
	one := pgx.StrictNamedArgs{"pipeline_id": pipelineID}
	note, look := &pgx.Batch{}, &pgx.Batch{}
	database.PlanOnce(q.db, note, 1)
	for _, name := range []string{"make_turn", "take_turn", "note_places"} {
		note.Queue(sqlfiles.Query(name), one)
	}
	database.PlanOnce(q.db, look, 1)
	look.Queue(sqlfiles.Query("reset_cursor"), pgx.StrictNamedArgs{"pipeline_id": pipelineID, "whole": all}).
		Query(func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&free, &alone, &top}, func() error { return nil })
			return err
		})
	err := q.db.SendBatch(ctx, note).Close()
	if err == nil {
		err = q.db.SendBatch(ctx, look).Close()
	}
	if err != nil {
		return cursor{}, fmt.Errorf("find the oldest tasks of pipeline %d: %w", pipelineID, err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.cursorLocked(pipelineID) // a new one, if Forget was called meanwhile
	if c.resets != before.resets {
		// Another look ended meanwhile, and this one may be older: keep what either has found.
		late := *c
		late.alone = late.alone || alone
		for lane, seq := range free {
			if seq != nil && (late.place[lane] < 0 || *seq-1 < late.place[lane]) {
				late.place[lane] = *seq - 1
			}
		}
		*c = late
		return late, nil
	}
	c.resets++
	if all {
		c.whole = time.Now()
	}
	c.top, c.alone, c.reset = top, alone, time.Now()
	if c.opens != before.opens {
		c.reset = time.Time{} // tasks that arrived during the look may have been missed
	}
	for lane, seq := range free {
		if c.place[lane] >= 0 {
			c.last[lane] = c.place[lane]
		}
		c.place[lane] = -1
		if seq != nil {
			c.place[lane] = *seq - 1
		}
	}
	return *c, nil
}

// Backlog returns the number of open tasks in a pipeline's low lane, counted up to twice limit.
func (q *Queue) Backlog(ctx context.Context, pipelineID int32, limit int) (open int, err error) {
	q.mu.Lock()
	from := q.dueFrom
	q.mu.Unlock()
	batch := &pgx.Batch{}
	database.PlanOnce(q.db, batch, 1)
	batch.Queue(sqlfiles.Query("open_tasks"), pgx.StrictNamedArgs{
		"pipeline_id": pipelineID, "max": limit, "due_after": from,
	}).QueryRow(func(row pgx.Row) error { return row.Scan(&open) })
	err = q.db.SendBatch(ctx, batch).Close()
	return open, wrap.Errorf(err, "count open tasks")
}

func (q *Queue) advance(pipelineID int32, lane pipeline.Lane, tasks []Task) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c, ok := q.cursors[pipelineID]
	if !ok {
		return
	}
	for _, t := range tasks {
		c.place[lane] = max(c.place[lane], t.Seq-cursorSlack)
	}
}

// MostUrgent returns the most urgent lane in which a task waited for this kind of claimer at the last look or since
// then; negative: none. After a Lease without tasks, it means that the change is in the WAL but not visible to other
// sessions yet.
func (q *Queue) MostUrgent(pipelineID int32, who Who) pipeline.Lane {
	q.mu.Lock()
	defer q.mu.Unlock()
	c, ok := q.cursors[pipelineID]
	if !ok {
		return -1
	}
	for lane := pipeline.Urgent; lane >= pipeline.Low; lane-- {
		if c.place[lane] >= 0 && (who == Anyone || lane != pipeline.Low) {
			return lane
		}
	}
	return -1
}

// Extend extends a lease to the given duration from now.
func (q *Queue) Extend(ctx context.Context, l Lease, lease time.Duration) error {
	_, err := q.db.Exec(ctx, sqlfiles.Query("extend_lease"),
		pgx.StrictNamedArgs{"pipeline_id": l.PipelineID, "place": l.Place, "token": l.Token, "lease": lease})
	return wrap.Errorf(err, "extend a lease")
}

// GiveBack ends all leases of a worker without a result or an attempt.
func (q *Queue) GiveBack(ctx context.Context, worker int64) error {
	_, err := q.db.Exec(ctx, sqlfiles.Query("give_back_worker"), pgx.StrictNamedArgs{"worker": worker})
	return wrap.Errorf(err, "give back the tasks of worker %d", worker)
}

// GiveBackLease ends one lease without a result or an attempt. If it fails, the next Lease tries again.
func (q *Queue) GiveBackLease(ctx context.Context, l Lease) error {
	err := q.giveBackLeases(ctx, []Lease{l})
	if err != nil {
		q.lose(l)
	}
	return err
}

func (q *Queue) lose(leases ...Lease) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lost = append(q.lost, leases...)
}

// giveBackLost gives back the lost leases.
func (q *Queue) giveBackLost(ctx context.Context) error {
	q.mu.Lock()
	leases := q.lost
	q.lost = nil
	q.mu.Unlock()
	if len(leases) == 0 {
		return nil
	}
	err := q.giveBackLeases(ctx, leases)
	if err != nil {
		q.lose(leases...)
	}
	return err
}

func (q *Queue) giveBackLeases(ctx context.Context, leases []Lease) error {
	n := len(leases)
	ids, tokens, places := make([]int32, n), make([]int64, n), make([]int64, n)
	for i, l := range leases {
		ids[i], tokens[i], places[i] = l.PipelineID, l.Token, l.Place
	}
	_, err := q.db.Exec(ctx, sqlfiles.Query("give_back_leases"), pgx.StrictNamedArgs{
		"pipeline_ids": ids, "tokens": tokens, "places": places,
	})
	if err != nil {
		return fmt.Errorf("give back %d leases: %w", n, err)
	}
	q.Wake(ids...)
	return nil
}

// Add creates tasks for rows without a change in the WAL. It ignores keys that are too long.
func Add(ctx context.Context, db database.DB, pipelineID int32, lane pipeline.Lane, keys []string) error {
	keys = slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return len(key) > pipeline.MaxKey })
	if len(keys) == 0 {
		return nil
	}
	batch := &pgx.Batch{}
	QueueLocally(batch)
	QueueAdd(batch, pipelineID, lane, keys, false)
	return wrap.Errorf(db.SendBatch(ctx, batch).Close(), "add %d tasks", len(keys))
}

// QueueLocally starts a batch that is its own transaction and takes locks that the stream may need: its commit does not
// wait for replicas.
func QueueLocally(batch *pgx.Batch) { batch.Queue(sqlfiles.Query("commit_locally")) }

// QueueAdd adds the statement of Add to such a batch, as its last one: the stream may wait for these locks, so the
// commit must follow immediately. With scan it adds tasks only if the batch has advanced the pipeline's scan.
func QueueAdd(batch *pgx.Batch, pipelineID int32, lane pipeline.Lane, keys []string, scan bool) {
	batch.Queue(sqlfiles.Query("add_tasks"), pgx.StrictNamedArgs{
		"pipeline_id": pipelineID, "lane": int16(lane),
		"row_keys": keys, "scan": scan,
	})
}

// VoidLeases ends all leases of a slot's pipelines and returns the pipelines. It does not wait for workers.
func VoidLeases(ctx context.Context, db database.Reader, slot string) (pipelines []int32, err error) {
	args := pgx.StrictNamedArgs{"slot": slot}
	pipelines, err = database.Collect(ctx, db, "void_leases", pgx.RowTo[int32], args)
	return pipelines, wrap.Errorf(err, "void leases")
}
