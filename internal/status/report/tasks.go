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

// TaskStates are the displayed states of a task. stale is in_progress with an expired lease; finished is in the
// history.
var TaskStates = []string{"todo", "in_progress", "stale", "retrying", "failed", "cancelled", Finished}

// Finished is the state of tasks that have left the queue.
const Finished = "finished"

// Task is a row of the view tasks: a row that waits, is being embedded, failed, was cancelled, or is done. It holds no
// text.
type Task struct {
	Pipeline    string     `json:"pipeline"`
	Key         string     `db:"row_key" json:"key"`
	State       string     `json:"state"`
	Priority    string     `json:"priority"`
	Attempt     int32      `json:"attempt"` // attempts that failed because of the row itself
	Class       string     `db:"error_class" json:"class,omitempty"`
	Code        string     `db:"error_code" json:"code,omitempty"`
	Message     string     `db:"error_message" json:"message,omitempty"`
	CommittedAt time.Time  `json:"committed_at"` // of the oldest change not yet processed, or of the request
	AgeSeconds  Seconds    `json:"age_seconds"`
	CreatedAt   *time.Time `json:"created_at"`                     // of the task; null: there was none
	ScheduledAt *time.Time `json:"scheduled_at"`                   // when it is or was due, if scheduled for later
	StartedAt   *time.Time `json:"started_at"`                     // of the current attempt, or else of the last one
	FinishedAt  *time.Time `json:"finished_at"`                    // of the last attempt; null: running or none
	LeasedBy    string     `json:"leased_by,omitempty"`            // the worker that has it, or that finished it
	ID          int64      `json:"task_id,omitempty" db:"task_id"` // absent: finished
	Outcome     string     `json:"outcome,omitempty"`              // if finished: embedded, reused, failed ...
	Cursor      string     `json:"cursor"`                         // of the page after it
}

// Seconds is an age.
type Seconds float64

// TaskColumn is a column of the lists of tasks in the terminal and the dashboard. JSON has the fields of Task.
type TaskColumn struct {
	Name string            // heading in a terminal; > marks a column of numbers
	Page string            // heading on the page of tasks; "": the page shows it elsewhere
	Of   func(t *Task) any // a text, a number, *time.Time or Seconds
}

// TaskColumns lists the columns.
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

// TaskFilter selects tasks; zero fields select all.
type TaskFilter struct {
	States      []string
	Class, Code string
	Keys        []string
	OlderThan   time.Duration
}

// ErrCursor means that a cursor does not belong to a task of the list.
var ErrCursor = errors.New("that is not the cursor of a task of this list")

// Tasks returns at most limit tasks of pipelines, after the one with the cursor after: open ones, the oldest first, or
// finished ones, the newest first.
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

// few returns the numbers of the tasks of pipelines that have few, or nil if there are more. Finding these in task
// order would make the server read the tasks of all others.
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
	FinishedAt  *time.Time     `json:"finished_at"` // null: a job in progress
	Role        string         `json:"role"`
	SaidBy      string         `json:"said_by"` // the user that the program reported
	Address     string         `json:"client_addr,omitempty"`
	Application string         `json:"application"`
	Action      string         `json:"action"`
	Pipeline    string         `json:"pipeline"` // "": all pipelines
	Arguments   map[string]any `json:"arguments"`
	Result      string         `json:"result"`
	Changed     int64          `json:"changed"`
}

// Audit returns the actions before the entry with a number, the newest first: on these pipelines, or all.
func Audit(ctx context.Context, db database.DB, pipelines []string, before int64, limit int) ([]Action, error) {
	if len(pipelines) == 0 {
		pipelines = nil
	}
	return collect(ctx, db, "read the audit", pgx.RowToStructByPos[Action], "audit_entries",
		pgx.StrictNamedArgs{"pipelines": pipelines, "before": before, "max": limit})
}
