package worker

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/internal/engine/spend"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
)

// ofAll reports whether a failure of a batch would occur for any row. It returns the error of try, which does the same
// without rows; nil means that a row is at fault. A trigger that rejects a row for lack of a privilege looks like a
// missing GRANT.
func (w *Worker) ofAll(ctx context.Context, err error, try func(context.Context) error) error {
	switch rows.Fault(err) {
	case database.Data, database.Conflict, database.Canceled: // half of the batch, or a retry, may succeed
		return nil
	case database.Locked, database.Forbidden, database.Schema, database.Unavailable:
		return database.Limited(ctx, longestWrite, try)
	case database.Unjudged, database.Ended:
	}
	return err
}

// readNone reads the table without rows.
func (w *Worker) readNone(ctx context.Context) error {
	_, err := w.table.Read(ctx, nil, 0)
	return err
}

// writeNone reads and writes the tables without rows.
func (w *Worker) writeNone(ctx context.Context) error {
	// Read before the transaction: needing a second connection inside it could deadlock the pool.
	if err := w.readNone(ctx); err != nil {
		return err
	}
	return w.table.TryWrite(ctx)
}

// rowError is the outcome of a row whose statement failed because of it. Only failures that are likely permanent count
// as attempts.
func (w *Worker) rowError(t queue.Task, err error, code, message string) *embed.TextError {
	e := &embed.TextError{Class: embed.Transient, RetryAfter: lockedDelay(t, time.Now()), Message: message}
	switch rows.Fault(err) {
	case database.Conflict, database.Canceled:
		e.Code, e.RetryAfter = "contended", 0
	case database.Locked:
		e.Code = "locked"
	case database.Unavailable:
		e.Code = "unavailable"
	case database.Unjudged, database.Ended, database.Forbidden, database.Schema, database.Data:
		e.Class, e.Code, e.RetryAfter = embed.Data, code, 0
	}
	return e
}

// tookTooLong reports whether a statement was cancelled. With one row alone, it will probably be again.
func tookTooLong(err error) bool { return rows.Fault(err) == database.Canceled }

// slowDelay returns the delay for a row that a statement took too long for. It grows with the age of the task.
func slowDelay(t queue.Task, now time.Time) time.Duration {
	return min(max(now.Sub(t.EnqueuedAt)/4, time.Second), 30*time.Second)
}

// raisedBy matches where a trigger raised an exception, in the server's context message.
var raisedBy = regexp.MustCompile(`^PL/pgSQL function ([^()\n]+)\([^\n]*\) line (\d+)`)

// refusal describes why the database rejected an item's row.
func (w *Worker) refusal(it *item, err error) string {
	what := database.SQLState(err)
	if refusal, ok := errors.AsType[rows.RefusalError](err); ok {
		return refusal.Error()
	}
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if ok && pg.Code == pgerrcode.RaiseException { // the trigger's message may contain row data
		if at := raisedBy.FindStringSubmatch(pg.Where); at != nil {
			what += ": raised by " + oneLine(at[1], longestMessage) + ", line " + at[2]
		}
		return what
	}
	if !ok || pg.Code != pgerrcode.ProgramLimitExceeded || w.o.Pipeline.Stored != pipeline.StoredSparse {
		return what
	}
	most := len(it.vector)
	for i := range it.chunks {
		most = max(most, len(it.chunks[i].Vector))
	}
	if most <= 2*pipeline.MaxSparseIndexed {
		return what
	}
	return fmt.Sprintf("%s: %d numbers of its sparse vector are not zero, and an HNSW index takes %d: drop the index, or have the model keep fewer", what, most/2, pipeline.MaxSparseIndexed)
}

// unfits reports whether an error means that the whole pipeline no longer fits its table.
func unfits(err error) bool {
	fault := rows.Fault(err)
	return fault == database.Schema || fault == database.Forbidden || errors.Is(err, rows.ErrOtherTable) ||
		errors.Is(err, rows.ErrOtherColumn) || errors.Is(err, rows.ErrTrigger) || errors.Is(err, rows.ErrOtherTriggers) ||
		errors.Is(err, rows.ErrOtherOwner)
}

// unfilled reports whether an embedding table has a NOT NULL column that we do not write: no row is at fault.
func (w *Worker) unfilled(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == pgerrcode.NotNullViolation && pg.ColumnName != "" && !w.table.OfUsers()
}

// errParked means that the pipeline no longer fits its table: its tasks wait.
var errParked = errors.New("the pipeline does not fit its table")

// quiet keeps server messages out of the log: a user's trigger may put row text into them.
func quiet(err error) any {
	if _, ok := errors.AsType[*pgconn.PgError](err); ok {
		return database.SQLState(err)
	}
	return err
}

// embedderError marks an error of the embedder, as opposed to the database.
type embedderError struct{ error }

func (e embedderError) Unwrap() error { return e.error }

// refusedWords describes for users why tasks are refused; nil: they are not.
func refusedWords(err error) *string {
	if err == nil {
		return nil
	}
	words := database.Words(err)
	return &words
}

// codeOf returns an error's code for traces: its message may contain text.
func codeOf(err error) string {
	if err == nil {
		return ""
	}
	return database.SQLState(err)
}

// longestMessage is the maximum number of characters kept of a foreign message.
const longestMessage = 200

// oneLine returns the start of a message as one line.
func oneLine(message string, limit int) string {
	message = strings.Join(strings.Fields(message), " ")
	if runes := []rune(message); len(runes) > limit {
		return string(runes[:limit]) + "..."
	}
	return message
}

// storable makes a message fit the database's encoding.
func (w *Worker) storable(message string) string {
	if w.o.Storable == nil {
		return message
	}
	return w.o.Storable(message)
}

// lockedDelay returns the delay for a row locked by another session. It grows with the age of the task.
func lockedDelay(t queue.Task, now time.Time) time.Duration {
	return min(max(now.Sub(t.EnqueuedAt)/10, 50*time.Millisecond), 5*time.Second)
}

// lookFailed ends a batch whose rows could not be read.
func (w *Worker) lookFailed(ctx context.Context, tasks []queue.Task, err error) error {
	switch {
	case rows.Fault(err) == database.Locked:
		return w.postpone(ctx, tasks, embed.Transient, "locked", "the table is locked by another session",
			lockedDelay(tasks[0], time.Now()))
	case unfits(err):
		return w.park(ctx, tasks, err)
	}
	return err
}

// groupFailed ends a batch after a group of items could not be read or embedded; rest follows the group.
func (w *Worker) groupFailed(ctx context.Context, group, rest []item, err error) error {
	if _, ok := errors.AsType[embedderError](err); !ok || ctx.Err() != nil {
		return err
	}
	if spent, is := errors.AsType[*spend.SpentError](err); is { // the rows stay in the queue unchanged
		return spent
	}
	if len(rest) > 0 && ctx.Err() == nil {
		// The embedder did not hold these rows.
		_, code := embed.Classify(err)
		if err := w.postpone(ctx, tasksOf(rest), embed.Transient, code, "the embedder failed on other rows of the batch",
			max(w.o.Service.Rest(), w.o.Retry.Initial/4)); err != nil {
			return err
		}
	}
	return w.embedderFailed(ctx, tasksOf(group), err)
}

// embedderFailed ends a batch without an answer. A row counts as the cause only once it fails alone.
func (w *Worker) embedderFailed(ctx context.Context, tasks []queue.Task, err error) error {
	if ctx.Err() != nil || tasks[0].IsDirect() {
		return err
	}
	class, code := embed.Classify(err)
	w.o.Log.WarnContext(ctx, "embedder failed", "pipeline", w.o.Pipeline.Name, "class", string(class), "code", code,
		"tasks", len(tasks), "error", err)
	if class != embed.Crash {
		message := w.storable("the embedder did not answer: " + oneLine(err.Error(), longestMessage))
		return w.postpone(ctx, tasks, class, code, message, max(w.o.Service.Rest(), w.o.Retry.Initial/4))
	}
	w.stats.Crashed.Add(int64(len(tasks)))
	return w.blame(ctx, tasks, code, w.o.Service.Rest(), "the embedder crashed while it processed this row",
		"the embedder crashed each time it processed this row, even alone")
}

// panicked ends a batch that made the worker panic. A row may be the cause, so they are tried alone; one that fails
// each time becomes a dead letter.
func (w *Worker) panicked(ctx context.Context, tasks []queue.Task) error {
	const message = "embedsidecar itself failed while it processed this row: see its log"
	return w.blame(ctx, tasks, "panic", w.o.Retry.Initial, message, message)
}

// blame postpones a batch whose embedder or worker crashed; again is the message for a row that was involved each time.
func (w *Worker) blame(ctx context.Context, tasks []queue.Task, code string, delay time.Duration, message, again string,
) error {
	return w.end(ctx, tasks[0].Lease, lists.Map(tasks, func(t queue.Task) queue.Outcome {
		o := queue.Outcome{
			Task: t, Action: queue.Later, What: "lost", Attempt: t.Attempt, Losses: t.Losses + 1, Delay: delay,
			Class: string(embed.Crash), Code: code, Message: message,
		}
		if o.Losses >= queue.DeadAfter {
			o.Action, o.What, o.Message = queue.Fail, "failed", again
		}
		return o
	}))
}

// failure returns the outcome of an item that could not be written.
func (w *Worker) failure(it *item) queue.Outcome {
	class, code := embed.Classify(it.err)
	o := queue.Outcome{
		Task: it.task, Action: queue.Later, What: "retried", Attempt: it.task.Attempt, Losses: it.task.Losses,
		Class: string(class), Code: code, Message: it.err.Error(),
	}
	if class == embed.Data {
		o.Attempt++
	}
	o.Delay = w.backoff(int(o.Attempt))
	text, ok := errors.AsType[*embed.TextError](it.err)
	if ok {
		o.Message = text.Message // the code has its own field
	}
	o.Message = w.storable(o.Message)
	if ok && text.RetryAfter > 0 && class != embed.Data {
		o.Delay = text.RetryAfter // requested by the embedder; it may exceed our maximum delay
	}
	if it.slow { // whenever it is tried with others, they wait for it
		o.Losses, o.Delay = max(o.Losses, queue.AloneAfter), max(o.Delay, slowDelay(it.task, time.Now()))
	}
	if class == embed.Data && int(o.Attempt) >= w.o.Retry.MaxAttempts {
		o.Action, o.What = queue.Fail, "failed"
		return o
	}
	o.Lane = w.o.Retry.Lane
	if !it.task.IsDirect() {
		w.stats.Retried.Add(1)
	}
	return o
}

// backoff returns the delay before the next attempt: exponential, capped, with jitter over its upper half.
func (w *Worker) backoff(attempt int) time.Duration {
	d := min(w.o.Retry.Initial<<min(max(attempt-1, 0), 20), w.o.Retry.Max)
	return sleep.Between(d/2, d)
}

// park postpones tasks until the pipeline fits its table again, and reports it.
func (w *Worker) park(ctx context.Context, tasks []queue.Task, err error) error {
	w.o.Log.WarnContext(ctx, "pipeline parked", "pipeline", w.o.Pipeline.Name, "sqlstate", database.SQLState(err))
	if w.o.Broken != nil {
		w.o.Broken()
	}
	return w.postpone(ctx, tasks, embed.Configuration, "table", errParked.Error(), min(parkedPause, w.o.Retry.Max))
}

// postpone ends leases for a reason outside the rows: it does not count as an attempt.
func (w *Worker) postpone(ctx context.Context, tasks []queue.Task, class embed.Class, code, message string,
	delay time.Duration,
) error {
	w.stats.Retried.Add(int64(len(tasks)))
	return w.end(ctx, tasks[0].Lease, lists.Map(tasks, func(t queue.Task) queue.Outcome {
		return queue.Outcome{
			Task: t, Action: queue.Later, What: "postponed", Attempt: t.Attempt, Losses: t.Losses,
			Class: string(class), Code: code, Message: message, Delay: delay,
		}
	}))
}

func (w *Worker) end(ctx context.Context, lease queue.Lease, outcomes []queue.Outcome) error {
	done, err := w.tasks.Finish(ctx, w.o.ID, lease, 0, outcomes)
	if err != nil {
		return err
	}
	w.stats.Failed.Add(int64(done.Failed))
	if done == (queue.Finished{}) {
		return w.overdue(len(outcomes))
	}
	w.noteOutcomes(ctx, outcomes, done)
	return nil
}

// noteOutcomes records the outcomes of rows and logs those that became dead letters.
func (w *Worker) noteOutcomes(ctx context.Context, outcomes []queue.Outcome, done queue.Finished) {
	outcomes[0].Task.Lease.Work.Note(outcomes)
	w.traceEnded(ctx, outcomes)
	if done.Failed == 0 {
		return
	}
	at := slices.IndexFunc(outcomes, func(o queue.Outcome) bool { return o.Action == queue.Fail })
	first := &outcomes[max(at, 0)]
	w.o.Log.WarnContext(ctx, "rows given up: they are dead letters now", "pipeline", w.o.Pipeline.Name,
		"rows", done.Failed, "first_key", first.Task.RowKey, "attempts", first.Attempt, "class", first.Class,
		"code", first.Code)
}
