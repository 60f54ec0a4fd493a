package report

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/database"
)

// TaskStates are what a task may be shown as: stale is in progress, and the lease is over; finished is in the history.
var TaskStates = []string{"todo", "in_progress", "stale", "retrying", "failed", "cancelled", Finished}

// Finished is the state of tasks that have left the queue.
const Finished = "finished"

// Task is a row that waits, is being embedded, failed, was cancelled, or has been done, with the columns of the view
// tasks. It holds no text.
type Task struct {
	Pipeline    string     `json:"pipeline"`
	Key         string     `db:"row_key" json:"key"`
	State       string     `json:"state"`
	Priority    string     `json:"priority"`
	Attempt     int32      `json:"attempt"` // tries that failed because of the row itself
	Class       string     `db:"error_class" json:"class,omitempty"`
	Code        string     `db:"error_code" json:"code,omitempty"`
	Message     string     `db:"error_message" json:"message,omitempty"`
	CommittedAt time.Time  `json:"committed_at"` // of the oldest change that is not satisfied, or when a look was asked for
	AgeSeconds  Seconds    `json:"age_seconds"`
	CreatedAt   *time.Time `json:"created_at"`                     // of the task; null: there was none
	ScheduledAt *time.Time `json:"scheduled_at"`                   // when it is due, or was, if it waits or has waited for a time
	StartedAt   *time.Time `json:"started_at"`                     // of the try that runs, or else of the last one
	FinishedAt  *time.Time `json:"finished_at"`                    // of the last try; null: one runs, or none has ended
	LeasedBy    string     `json:"leased_by,omitempty"`            // or by whom it was finished
	ID          int64      `json:"task_id,omitempty" db:"task_id"` // absent: it is finished
	Outcome     string     `json:"outcome,omitempty"`              // of a finished one: embedded, reused, unchanged, failed and the like
	Cursor      string     `json:"cursor"`                         // for the page that begins behind it
}

// Seconds are an age.
type Seconds float64

// TaskColumn is one of the lists of tasks that people read. JSON has the fields of Task.
type TaskColumn struct {
	Name string            // in a terminal; behind > it is of numbers
	Page string            // its heading on the page of tasks; "": that shows it in a place of its own
	Of   func(t *Task) any // a text, a number, *time.Time or Seconds
}

// TaskColumns are all of them.
var TaskColumns = []TaskColumn{
	{"pipeline", "", func(t *Task) any { return t.Pipeline }},
	{"key", "", func(t *Task) any { return t.Key }},
	{"state", "", func(t *Task) any { return cmp.Or(t.Outcome, t.State) }},
	{"priority", "Priority", func(t *Task) any { return t.Priority }},
	{">tries", "Tries", func(t *Task) any { return t.Attempt }},
	{">age", "Age", func(t *Task) any { return t.AgeSeconds }},
	{"created", "", func(t *Task) any { return t.CreatedAt }},
	{"scheduled", "", func(t *Task) any { return t.ScheduledAt }},
	{"started", "", func(t *Task) any { return t.StartedAt }},
	{"finished", "", func(t *Task) any { return t.FinishedAt }},
	{"class", "", func(t *Task) any { return t.Class }},
	{"code", "", func(t *Task) any { return t.Code }},
	{"message", "", func(t *Task) any { return t.Message }},
}

// TaskFilter says which tasks are meant; what is zero does not matter.
type TaskFilter struct {
	States      []string
	Class, Code string
	Keys        []string
	OlderThan   time.Duration
}

// ErrCursor says that a cursor is not that of a task of the list.
var ErrCursor = errors.New("that is not the cursor of a task of this list")

// Tasks returns tasks of pipelines, the oldest first, or finished ones, the newest first: behind the one with the
// cursor after, or from the first on, at most so many.
func Tasks(ctx context.Context, db database.DB, pipelines []string, f TaskFilter, after string, limit int,
) ([]Task, error) {
	args := pgx.StrictNamedArgs{
		"pipelines": pipelines, "row_keys": f.Keys, "code": database.Given(f.Code),
		"older_than": database.Given(max(f.OlderThan, 0)), "max": limit,
	}
	if slices.Contains(f.States, Finished) {
		args["after"] = database.Given(after)
		list, err := collect(ctx, db, "list finished tasks", database.RowOfView[Task], "list_finished", args)
		if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == pgerrcode.InvalidParameterValue {
			err = ErrCursor
		}
		return list, err
	}
	number, err := strconv.ParseUint(cmp.Or(after, "0"), 10, 63)
	if err != nil {
		return nil, ErrCursor
	}
	args["states"], args["class"], args["after_task"], args["only"] = f.States, database.Given(f.Class), number, nil
	if len(f.Keys) == 0 {
		if args["only"], err = few(ctx, db, pipelines); err != nil {
			return nil, err
		}
	}
	return collect(ctx, db, "list tasks", database.RowOfView[Task], "list_tasks", args)
}

// few are the numbers of the tasks of pipelines that have few; nil: there are more. To find them by their order the
// server would read the tasks of all others.
func few(ctx context.Context, db database.DB, pipelines []string) ([]int64, error) {
	const mostTasks, mostPipelines = 200, 10
	if len(pipelines) > mostPipelines {
		return nil, nil
	}
	list, err := collect(ctx, db, "look for few tasks", pgx.RowTo[int64], "few_tasks",
		pgx.StrictNamedArgs{"pipelines": pipelines, "max": mostTasks + 1})
	if err != nil || len(list) > mostTasks {
		return nil, err
	}
	return append([]int64{}, list...), nil
}

// Action is an entry of the audit.
type Action struct {
	ID          int64          `json:"audit_id"`
	At          time.Time      `json:"acted_at"`
	FinishedAt  *time.Time     `json:"finished_at"` // null: a job that is under way
	Role        string         `json:"role"`
	SaidBy      string         `json:"said_by"` // who the program says it was asked by
	Address     string         `json:"client_addr,omitempty"`
	Application string         `json:"application"`
	Action      string         `json:"action"`
	Pipeline    string         `json:"pipeline"` // "": all
	Arguments   map[string]any `json:"arguments"`
	Result      string         `json:"result"`
	Changed     int64          `json:"changed"`
}

// Audit returns what was done before the entry with a number, the newest first: to these pipelines, or to whatever.
func Audit(ctx context.Context, db database.DB, pipelines []string, before int64, limit int) ([]Action, error) {
	if len(pipelines) == 0 {
		pipelines = nil
	}
	return collect(ctx, db, "read the audit", pgx.RowToStructByPos[Action], "audit_entries",
		pgx.StrictNamedArgs{"pipelines": pipelines, "before": before, "max": limit})
}
