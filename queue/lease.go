package queue

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/pipeline"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// A claim starts this far behind the last one, in places: places are taken before their transaction commits, so a lower one
// may still appear. What appears later than that is found when the lane runs empty or at the next reset.
const cursorSlack = 4096

// turns are the claims out of eight in which another lane than the most urgent goes first, so that none starves.
var turns = map[int]pipeline.Lane{3: pipeline.Normal, 5: pipeline.High, 7: pipeline.Low}

// cursorReset is how often the true oldest place is looked up.
const cursorReset = 2 * time.Second

// Claim says what a worker asks for.
type Claim struct {
	PipelineID int32
	Generation int32 // of the pipeline as the worker knows it; it gets nothing of another one
	Who        Who
	Worker     int64
	Max        int
	Lease      time.Duration
}

// Lease hands a worker up to Max tasks of a pipeline for the time of Lease: all of one batch, or a single one that must be
// tried alone. The most urgent lane goes first, but three claims of eight start with another one, so that a backfill
// cannot starve. It returns no tasks when nothing can be leased now.
//
// A statement that is broken off may have leased tasks all the same. So ctx should not end because somebody stops working; and what a lost
// connection has left is given back by the next Lease, of whatever pipeline.
func (q *Queue) Lease(ctx context.Context, l Claim) ([]Task, error) {
	if err := q.giveBackLost(ctx); err != nil {
		return nil, err
	}
	c, fresh, err := q.cursor(ctx, l.PipelineID)
	if err != nil {
		return nil, err
	}
	for {
		tasks, err := q.leaseFrom(ctx, c, l)
		if err != nil || len(tasks) > 0 || fresh {
			return tasks, err
		}
		// The lanes look empty behind the cursor. Look again from the true beginning before saying so.
		if c, err = q.resetCursor(ctx, l.PipelineID); err != nil {
			return nil, err
		}
		fresh = true
	}
}

func (q *Queue) leaseFrom(ctx context.Context, c cursor, l Claim) ([]Task, error) {
	if c.alone && l.Who == Anyone {
		tasks, err := q.claim(ctx, "lease_alone", pgx.StrictNamedArgs{
			"pipeline_id": l.PipelineID, "generation": l.Generation, "worker": l.Worker, "lease": l.Lease,
		})
		if len(tasks) > 0 {
			q.passOn(l.PipelineID)
		}
		if err != nil || len(tasks) > 0 {
			return tasks, err
		}
	}
	lanes := []pipeline.Lane{pipeline.Urgent, pipeline.High, pipeline.Normal, pipeline.Low}
	if first, ok := turns[c.claims%8]; ok {
		lanes = slices.Insert(lanes, 0, first)
	}
	for _, lane := range lanes {
		if c.place[lane] < 0 || l.Who == Express && lane == pipeline.Low {
			continue
		}
		tasks, err := q.claim(ctx, "lease_tasks", pgx.StrictNamedArgs{
			"pipeline_id": l.PipelineID, "generation": l.Generation, "worker": l.Worker, "lease": l.Lease, "lane": int16(lane),
			"max": l.Max, "cursor": c.place[lane],
		})
		if err != nil {
			return nil, err
		}
		if len(tasks) > 0 {
			q.advance(l.PipelineID, lane, tasks)
			if lane == pipeline.Low {
				q.passOn(l.PipelineID)
			}
			return tasks, nil
		}
	}
	return nil, nil
}

func (q *Queue) claim(ctx context.Context, query string, args pgx.StrictNamedArgs) (tasks []Task, err error) {
	token := rand.Int64() //nolint:gosec // nobody guesses at it: it need only be another one than those of the leases there are
	args["token"] = token
	defer func() {
		if err != nil {
			q.lose(token)
		}
	}()
	rows, err := q.db.Query(ctx, sqlfiles.Query(query), args)
	if err != nil {
		return nil, fmt.Errorf("lease tasks: %w", err)
	}
	tasks, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (t Task, err error) {
		var first, last pglogrepl.LSN
		err = row.Scan(&t.TaskID, &t.RowKey, &t.Gen, &t.Seq, &t.Lane, &t.LeaseToken, &t.Attempt, &t.Losses, &first, &last,
			&t.CommittedAt, &t.EnqueuedAt)
		t.FirstLSN, t.LastLSN = first, last
		return t, err
	})
	if err != nil {
		return nil, fmt.Errorf("lease tasks: %w", err)
	}
	return tasks, nil
}

// cursor returns where to claim from, looked up anew when the last look is too old; fresh tells whether it was.
func (q *Queue) cursor(ctx context.Context, pipelineID int32) (c cursor, fresh bool, err error) {
	q.mu.Lock()
	known, ok := q.cursors[pipelineID]
	if ok && time.Since(known.reset) < cursorReset {
		known.claims++
		c = *known
		q.mu.Unlock()
		return c, false, nil
	}
	q.mu.Unlock()
	c, err = q.resetCursor(ctx, pipelineID)
	return c, true, err
}

func (q *Queue) resetCursor(ctx context.Context, pipelineID int32) (cursor, error) {
	var (
		oldest []*int64
		alone  bool
	)
	err := q.db.QueryRow(ctx, sqlfiles.Query("reset_cursor"), pgx.StrictNamedArgs{"pipeline_id": pipelineID}).Scan(&oldest, &alone)
	if err != nil {
		return cursor{}, fmt.Errorf("find the oldest tasks of pipeline %d: %w", pipelineID, err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	c, ok := q.cursors[pipelineID]
	if !ok {
		c = &cursor{}
		q.cursors[pipelineID] = c
	}
	c.alone, c.reset = alone, time.Now()
	for lane, seq := range oldest {
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

// Waiting tells whether a pipeline had a task that waits to be leased by this kind of claimer when Lease last looked. After a Lease that
// returned none, which always looks anew, it means that the change is in the WAL but not visible to other sessions yet.
func (q *Queue) Waiting(pipelineID int32, who Who) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	c, ok := q.cursors[pipelineID]
	if !ok {
		return false
	}
	for lane, place := range c.place {
		if place >= 0 && (who == Anyone || pipeline.Lane(lane) != pipeline.Low) {
			return true
		}
	}
	return false
}

// Extend gives running leases another span of time from now.
func (q *Queue) Extend(ctx context.Context, worker int64, tokens []int64, lease time.Duration) error {
	_, err := q.db.Exec(ctx, sqlfiles.Query("extend_leases"), pgx.StrictNamedArgs{"worker": worker, "tokens": tokens, "lease": lease})
	if err != nil {
		return fmt.Errorf("extend %d leases: %w", len(tokens), err)
	}
	return nil
}

// GiveBack ends all leases of a worker without a result and without counting a try.
func (q *Queue) GiveBack(ctx context.Context, worker int64) error {
	_, err := q.db.Exec(ctx, sqlfiles.Query("give_back_tasks"), pgx.StrictNamedArgs{"worker": worker})
	if err != nil {
		return fmt.Errorf("give back the tasks of worker %d: %w", worker, err)
	}
	return nil
}

// GiveBackLease ends one lease without a result and without counting a try. If that fails, it is tried again before the next Lease.
func (q *Queue) GiveBackLease(ctx context.Context, token int64) error {
	err := q.giveBackLeases(ctx, []int64{token})
	if err != nil {
		q.lose(token)
	}
	return err
}

func (q *Queue) lose(tokens ...int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lost = append(q.lost, tokens...)
}

// giveBackLost gives back what was lost.
func (q *Queue) giveBackLost(ctx context.Context) error {
	q.mu.Lock()
	tokens := q.lost
	q.lost = nil
	q.mu.Unlock()
	if len(tokens) == 0 {
		return nil
	}
	err := q.giveBackLeases(ctx, tokens)
	if err != nil {
		q.lose(tokens...)
	}
	return err
}

func (q *Queue) giveBackLeases(ctx context.Context, tokens []int64) error {
	if _, err := q.db.Exec(ctx, sqlfiles.Query("give_back_leases"), pgx.StrictNamedArgs{"tokens": tokens}); err != nil {
		return fmt.Errorf("give back %d leases: %w", len(tokens), err)
	}
	return nil
}

// Add asks for a look at rows of a pipeline without a change in the WAL.
func Add(ctx context.Context, tx pgx.Tx, pipelineID int32, lane pipeline.Lane, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, sqlfiles.Query("add_tasks"),
		pgx.StrictNamedArgs{"pipeline_id": pipelineID, "lane": int16(lane), "row_keys": keys})
	if err != nil {
		return fmt.Errorf("add %d tasks: %w", len(keys), err)
	}
	return nil
}
