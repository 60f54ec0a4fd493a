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

// ofAll finds out whether what failed for a batch fails for any: with what error try ends, which does the same
// without any row. nil means that some row is at fault. A trigger that refuses a row for lack of a privilege looks
// just like a missing GRANT.
func (w *Worker) ofAll(ctx context.Context, err error, try func(context.Context) error) error {
	switch rows.Fault(err) {
	case database.Data, database.Conflict, database.Canceled: // half of it, or the same again, may succeed
		return nil
	case database.Locked, database.Forbidden, database.Schema, database.Unavailable:
		return try(ctx)
	case database.Unjudged, database.Ended:
	}
	return err
}

// readNone reads the table as for a batch, with no row in hand.
func (w *Worker) readNone(ctx context.Context) error {
	_, err := w.table.Read(ctx, nil, 0)
	return err
}

// writeNone reads and writes the tables as for a batch, with no row in hand.
func (w *Worker) writeNone(ctx context.Context) error {
	// Before the transaction: one that waits for a second connection of the pool could wait for others that do the same.
	if err := w.readNone(ctx); err != nil {
		return err
	}
	return w.table.TryWrite(ctx)
}

// rowError is how a row ends whose statement failed for it alone. Only what is likely to be so for ever counts as an
// attempt.
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

// raisedBy is where a trigger raised an exception, in what the server says of it.
var raisedBy = regexp.MustCompile(`^PL/pgSQL function ([^()\n]+)\([^\n]*\) line (\d+)`)

// refusal describes why the database refused the row of an item.
func (w *Worker) refusal(it *item, err error) string {
	what := database.SQLState(err)
	if refusal, ok := errors.AsType[rows.RefusalError](err); ok {
		return refusal.Error()
	}
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if ok && pg.Code == pgerrcode.RaiseException { // a trigger's own words may be any of the row's
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

// unfits reports whether an error of a whole pipeline means that it does not fit its table any more.
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

// errParked means that the pipeline does not fit its table any more: its tasks wait.
var errParked = errors.New("the pipeline does not fit its table")

// quiet keeps what a server says out of the log: a user's trigger may have put a row's text into it.
func quiet(err error) any {
	if _, ok := errors.AsType[*pgconn.PgError](err); ok {
		return database.SQLState(err)
	}
	return err
}

// embedderError is an error of the embedder, to be told from those of the database.
type embedderError struct{ error }

func (e embedderError) Unwrap() error { return e.error }

// refusedWords tells people why tasks are refused; nil: they are not.
func refusedWords(err error) *string {
	if err == nil {
		return nil
	}
	words := database.Words(err)
	return &words
}

// codeOf is what a trace tells of an error: no message, which may hold a text.
func codeOf(err error) string {
	if err == nil {
		return ""
	}
	return database.SQLState(err)
}

// longestMessage is how many characters of somebody else's message are kept.
const longestMessage = 200

// oneLine is the beginning of a message, on one line.
func oneLine(message string, limit int) string {
	message = strings.Join(strings.Fields(message), " ")
	if runes := []rune(message); len(runes) > limit {
		return string(runes[:limit]) + "..."
	}
	return message
}

// lockedDelay is when a row that somebody else is changing is due again: soon, and less often the longer it takes.
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

// groupFailed ends a batch at a group of items that could not be read or embedded; rest comes after it.
func (w *Worker) groupFailed(ctx context.Context, group, rest []item, err error) error {
	if _, ok := errors.AsType[embedderError](err); !ok || ctx.Err() != nil {
		return err
	}
	if spent, is := errors.AsType[*spend.SpentError](err); is { // the rows wait in the queue as they were
		return spent
	}
	if len(rest) > 0 && ctx.Err() == nil {
		// These were not in the embedder.
		_, code := embed.Classify(err)
		if err := w.postpone(ctx, tasksOf(rest), embed.Transient, code, "the embedder failed on other rows of the batch",
			max(w.o.Service.Rest(), w.o.Retry.Initial/4)); err != nil {
			return err
		}
	}
	return w.embedderFailed(ctx, tasksOf(group), err)
}

// embedderFailed ends a batch that got no answer. The rows are innocent until they prove otherwise alone.
func (w *Worker) embedderFailed(ctx context.Context, tasks []queue.Task, err error) error {
	if ctx.Err() != nil || tasks[0].IsDirect() {
		return err
	}
	class, code := embed.Classify(err)
	w.o.Log.WarnContext(ctx, "embedder failed", "pipeline", w.o.Pipeline.Name, "class", string(class), "code", code,
		"tasks", len(tasks), "error", err)
	if class != embed.Crash {
		return w.postpone(ctx, tasks, class, code, "the embedder did not answer: "+oneLine(err.Error(), longestMessage),
			max(w.o.Service.Rest(), w.o.Retry.Initial/4))
	}
	w.stats.Crashed.Add(int64(len(tasks)))
	return w.blame(ctx, tasks, code, w.o.Service.Rest(), "the embedder died while it held this row",
		"the embedder died each time it held this row, also alone")
}

// panicked ends a batch in which a mistake of ours made the worker panic. Some row may have led to it, so they are
// tried alone then, and one that does it each time is a dead letter.
func (w *Worker) panicked(ctx context.Context, tasks []queue.Task) error {
	const message = "embedsidecar itself failed while it held this row: its log tells more"
	return w.blame(ctx, tasks, "panic", w.o.Retry.Initial, message, message)
}

// blame postpones a batch whose embedder or worker died; again is the message for a row that has been there each time.
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

// failure says how an item that could not be written ends.
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
		o.Message = text.Message // the code has a place of its own
	}
	if ok && text.RetryAfter > 0 && class != embed.Data {
		o.Delay = text.RetryAfter // it was asked for this, which may be more than a pause of ours ever is
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

// backoff is the pause before the next try: doubling, capped, with full jitter over its upper half.
func (w *Worker) backoff(attempt int) time.Duration {
	d := min(w.o.Retry.Initial<<min(max(attempt-1, 0), 20), w.o.Retry.Max)
	return sleep.Between(d/2, d)
}

// park lets tasks wait until the pipeline fits its table again, and says so to anyone who can look.
func (w *Worker) park(ctx context.Context, tasks []queue.Task, err error) error {
	w.o.Log.WarnContext(ctx, "pipeline parked", "pipeline", w.o.Pipeline.Name, "sqlstate", database.SQLState(err))
	if w.o.Broken != nil {
		w.o.Broken()
	}
	return w.postpone(ctx, tasks, embed.Configuration, "table", errParked.Error(), min(parkedPause, w.o.Retry.Max))
}

// postpone ends leases for a reason that is not the rows': it burns no attempt.
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

// noteOutcomes notes how rows have ended, and says so of those that are given up.
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
