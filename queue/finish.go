package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// Action is what happens to a task when its lease ends.
type Action string

// The actions.
const (
	Done  Action = "done"     // complete: it moves to history
	Again Action = "todo"     // process again at once
	Later Action = "retrying" // process again after a delay
	Fail  Action = "failed"   // a dead letter: kept with its error until a user acts or the row changes
)

// Outcome is how one leased task ended.
type Outcome struct {
	Task    Task
	Action  Action
	What    string // for history: embedded, reused, unchanged, emptied, removed, failed, ...
	Attempt int16  // new number of attempts
	Losses  int16  // new number of losses
	Delay   time.Duration
	Lane    *pipeline.Lane // lane for the next try; nil: unchanged
	Class   string         // of the error, if there was one
	Code    string
	Message string // contains no row text
}

// Finished counts the outcomes of tasks.
type Finished struct {
	Done, Reopened, Retrying, Failed int
}

// QueueHold adds the first statement of a write-back. held reports whether the lease and the generation are still
// valid; both then stay valid until the transaction ends.
func QueueHold(batch *pgx.Batch, l Lease, generation int32, held *bool) {
	query, args := "hold_lease", pgx.StrictNamedArgs{
		"pipeline_id": l.PipelineID, "place": l.Place, "token": l.Token, "generation": generation, "life": l.Life,
	}
	if l.Direct != nil {
		query, args = "hold_epoch", pgx.StrictNamedArgs{
			"pipeline_id": l.PipelineID, "slot": l.Direct.Slot, "epoch": l.Direct.Epoch, "generation": generation,
			"life": l.Direct.Life, "timeout": fmt.Sprintf("%dms", l.Direct.Timeout.Milliseconds()),
		}
	}
	batch.Queue(sqlfiles.Query(query), args).Query(func(rows pgx.Rows) error {
		*held = rows.Next()
		return nil
	})
}

// finishArgs returns the arguments of finish_tasks. All outcomes belong to one lease. Generation 0 skips the check of
// the pipeline's generation.
func finishArgs(worker int64, l Lease, generation int32, outcomes []Outcome) pgx.StrictNamedArgs {
	ofError := func(o Outcome, text string) *string { // NULL without an error
		if o.Class == "" {
			return nil
		}
		return &text
	}
	return pgx.StrictNamedArgs{
		"worker": worker, "pipeline_id": l.PipelineID, "place": l.Place, "token": l.Token, "generation": generation,
		"life": l.Life, "took": l.Work.tookMS(),
		"task_ids": lists.Map(outcomes, func(o Outcome) int64 { return o.Task.TaskID }),
		"gens":     lists.Map(outcomes, func(o Outcome) int64 { return o.Task.Gen }),
		"actions":  lists.Map(outcomes, func(o Outcome) string { return string(o.Action) }),
		"outcomes": lists.Map(outcomes, func(o Outcome) string { return o.What }),
		"attempts": lists.Map(outcomes, func(o Outcome) int16 { return o.Attempt }),
		"losses":   lists.Map(outcomes, func(o Outcome) int16 { return o.Losses }),
		"delays":   lists.Map(outcomes, func(o Outcome) float64 { return o.Delay.Seconds() }),
		"classes":  lists.Map(outcomes, func(o Outcome) *string { return ofError(o, o.Class) }),
		"codes":    lists.Map(outcomes, func(o Outcome) *string { return ofError(o, o.Code) }),
		"messages": lists.Map(outcomes, func(o Outcome) *string { return ofError(o, o.Message) }),
		"lanes":    lists.Map(outcomes, func(o Outcome) *pipeline.Lane { return o.Lane }),
	}
}

// TellArgs returns the arguments of tell_history for changes without tasks.
func TellArgs(worker int64, l Lease, generation int32, outcomes []Outcome) pgx.StrictNamedArgs {
	return pgx.StrictNamedArgs{
		"worker": worker, "pipeline_id": l.PipelineID, "took": l.Work.tookMS(), "generation": generation,
		"row_keys":      lists.Map(outcomes, func(o Outcome) string { return o.Task.RowKey }),
		"outcomes":      lists.Map(outcomes, func(o Outcome) string { return o.What }),
		"committed_ats": lists.Map(outcomes, func(o Outcome) time.Time { return o.Task.CommittedAt }),
		"lsns":          lists.Map(outcomes, func(o Outcome) string { return o.Task.LastLSN.String() }),
	}
}

// QueueFinish adds the statement that ends the lease, the last one before the commit. It adds its outcomes to done.
func QueueFinish(batch *pgx.Batch, worker int64, l Lease, generation int32, outcomes []Outcome, done *Finished) {
	batch.Queue(sqlfiles.Query("finish_tasks"), finishArgs(worker, l, generation, outcomes)).
		Query(func(rows pgx.Rows) error {
			var (
				id    int64
				state Action
			)
			_, err := pgx.ForEachRow(rows, []any{&id, &state}, func() error {
				switch state {
				case Done:
					done.Done++
				case Again:
					done.Reopened++
				case Later:
					done.Retrying++
				case Fail:
					done.Failed++
				}
				return nil
			})
			return wrap.Errorf(err, "finish tasks")
		})
}

// Finish ends the lease of tasks without a write-back. Generation 0 skips the check of the pipeline's generation.
func (q *Queue) Finish(ctx context.Context, worker int64, l Lease, generation int32, outcomes []Outcome) (done Finished,
	err error,
) {
	if l.Direct != nil {
		return l.Direct.End(outcomes), nil
	}
	batch := &pgx.Batch{}
	database.PlanOnce(q.db, batch, len(outcomes))
	QueueFinish(batch, worker, l, generation, outcomes, &done)
	if err := q.db.SendBatch(ctx, batch).Close(); err != nil {
		return Finished{}, fmt.Errorf("finish %d tasks: %w", len(outcomes), err)
	}
	q.Note(l.PipelineID, outcomes, done)
	return done, nil
}

// History limits the history of tasks by age and approximate number of rows.
type History struct {
	Keep  time.Duration
	Rows  int64
	Bytes int64 // regardless of Keep and Rows
}

// DefaultHistory is the default limit. Its Bytes cannot be raised by configuration.
var DefaultHistory = History{Keep: pipeline.DefaultHistory, Rows: pipeline.DefaultHistoryRows, Bytes: 4 << 30}

// PruneHistory deletes history beyond h. History may exceed h for up to a minute.
func (q *Queue) PruneHistory(ctx context.Context, h History) error {
	_, err := q.db.Exec(ctx, "SELECT embedsidecar.prune_history($1, $2, $3)", h.Keep, h.Rows, h.Bytes)
	return wrap.Errorf(err, "prune history")
}
