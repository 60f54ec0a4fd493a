package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
)

// process takes leased tasks to their end. It returns an error only if the batch as a whole could not be finished.
// Should the database refuse a statement that no row was thought to be able to break, the batch is halved all the
// same: one row must not hold up the rest.
func (w *Worker) process(ctx context.Context, tasks []queue.Task) error {
	err := w.attempt(ctx, tasks)
	if rows.Fault(err) != database.Data {
		return err
	}
	if len(tasks) == 1 {
		w.o.Log.WarnContext(ctx, "row refused", "pipeline", w.o.Pipeline.Name, "error", quiet(err))
		it := item{task: tasks[0], action: broken, err: &embed.TextError{
			Class: embed.Data, Code: "refused",
			Message: database.SQLState(err),
		}}
		return w.end(ctx, tasks[0].Lease, []queue.Outcome{w.failure(&it)})
	}
	half := len(tasks) / 2
	err = w.process(ctx, tasks[:half])
	if errors.Is(err, queue.ErrLeaseLost) {
		return err
	}
	return errors.Join(err, w.process(ctx, tasks[half:]))
}

func (w *Worker) attempt(ctx context.Context, tasks []queue.Task) error {
	room, err := w.room(ctx, w.way.most)
	if err != nil {
		return err
	}
	defer room.release()
	items, err := w.look(ctx, tasks, w.way.limit)
	if err != nil {
		return w.lookFailed(ctx, tasks, err)
	}
	return w.work(ctx, items, room)
}

// work takes items whose rows were looked at to their end.
func (w *Worker) work(ctx context.Context, items []item, room *room) error {
	if err := reached(items[0].task, "after-read"); err != nil {
		return err
	}
	if err := w.decideAll(ctx, items); err != nil {
		return err
	}
	items, err := w.writable(ctx, items)
	if err != nil || len(items) == 0 {
		return err
	}
	return w.way.embed(ctx, items, room, items[0].task.Alone())
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

// look reads the rows of tasks, with up to so many bytes of texts (read). A row whose text expression fails (a
// division by zero, a bad cast) is found by halving, and so is a key that no row can have: it was written when the
// key was of another type.
func (w *Worker) look(ctx context.Context, tasks []queue.Task, texts int) ([]item, error) {
	keys := lists.Map(tasks, func(t queue.Task) string { return t.RowKey })
	began := time.Now()
	found, err := w.table.Read(ctx, keys, texts)
	w.traceOf(ctx).Read(keys, began, codeOf(err))
	if err == nil {
		items := make([]item, len(tasks))
		for i := range tasks {
			items[i] = item{task: tasks[i], row: found[i]}
		}
		return items, nil
	}
	if all := w.ofAll(ctx, err, w.readNone); all != nil {
		return nil, all
	}
	if len(tasks) == 1 {
		if !w.table.IsKey(ctx, keys[0]) {
			return []item{{task: tasks[0], row: rows.Row{Key: keys[0]}, nobody: true}}, nil
		}
		unreadable := w.rowError(tasks[0], err, "unreadable", database.SQLState(err))
		return []item{{task: tasks[0], action: broken, err: unreadable}}, nil
	}
	half := len(tasks) / 2
	first, err := w.look(ctx, tasks[:half], texts)
	if err != nil {
		return nil, err
	}
	second, err := w.look(ctx, tasks[half:], texts)
	if err != nil {
		return nil, err
	}
	return append(first, second...), nil
}

// decide says what each item needs before any embedder is asked.
func (w *Worker) decide(items []item) {
	for i := range items {
		it := &items[i]
		r := &it.row
		if r.Broken {
			w.stats.Sanitised.Add(1)
		}
		switch {
		case it.action == broken:
		case !r.Found:
			it.action = gone
		case r.Key != r.Actual && len(r.Actual) > pipeline.MaxKey:
			it.action = empty // no change of it is looked at any more
		case r.Key != r.Actual:
			it.action = alias
		case w.table.Unchanged(r), w.settled(it):
			it.action = nothing
		case !r.Wanted():
			it.action = empty
		case w.table.Holds(r) && (r.ExactText() || r.Ignored()):
			it.action = relabel
		case r.Hashed && w.table.Skips(r, it.task.Seen):
			it.action = skip
		default:
			it.action = vectorIn
		}
	}
}

// decideAll decides, and asks for a look at rows under the present spelling of their key.
func (w *Worker) decideAll(ctx context.Context, items []item) error {
	w.decide(items)
	return w.lookAgain(ctx, items)
}

// settled reports whether it is known that the row, as it is, needs no new vector, and nothing has come since: the same
// change may be read from the WAL more than once.
func (w *Worker) settled(it *item) bool {
	return w.table.Skipped(&it.row) && (it.task.Seen != nil || it.task.LastLSN <= it.row.SkippedAt)
}

// lookAgain asks for a look at rows under the present spelling of their key. It comes before the write-back, in a
// transaction of its own: added to one that holds tasks already, it could deadlock with an enqueue.
func (w *Worker) lookAgain(ctx context.Context, items []item) error {
	var keys []string
	for i := range items {
		if items[i].action == alias {
			keys = append(keys, items[i].row.Actual)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	if err := w.store.lookAgain(ctx, keys); err != nil {
		return fmt.Errorf("look again at %s: %w", w.describe(len(keys)), err)
	}
	w.tasks.Wake(w.o.Pipeline.ID)
	return nil
}

// embed asks for the vectors of the items that need one and have none yet.
func (w *Worker) embed(ctx context.Context, items []item, alone bool) error {
	var (
		texts  []string
		places []int
	)
	for i := range items {
		if items[i].action == vectorIn && items[i].vector == nil {
			texts = append(texts, items[i].row.Text)
			items[i].sent = true
			places = append(places, i)
		}
	}
	if len(texts) == 0 {
		return nil
	}
	if err := reached(items[0].task, "before-embed"); err != nil {
		return err
	}
	results, err := w.paid(ctx, items[0].task, texts, func() ([]embed.Result, error) {
		return w.vectors(ctx, items, texts, alone)
	})
	if err != nil {
		return err
	}
	for j, result := range results {
		it := &items[places[j]]
		it.paid = result.Sent
		switch {
		case result.Err != nil:
			it.action, it.err = broken, result.Err
		case result.Empty:
			it.action = empty
		default:
			it.vector = result.Vector
		}
	}
	return nil
}

// paid has texts embedded as far as budgets allow. What is worked at once is paid for where it is sent.
func (w *Worker) paid(ctx context.Context, task queue.Task, texts []string,
	send func() ([]embed.Result, error),
) ([]embed.Result, error) {
	if task.IsDirect() {
		return send()
	}
	return w.spend(ctx, texts, send)
}

func (w *Worker) spend(ctx context.Context, texts []string, send func() ([]embed.Result, error),
) ([]embed.Result, error) {
	call, err := w.o.Book.Ask(ctx, w.o.Pipeline, texts)
	if err != nil {
		return nil, err
	}
	results, err := send()
	if lost := call.End(ctx, embed.Sent(results, texts), err); lost != nil {
		w.o.Log.WarnContext(ctx, "counted as the most that the call can have cost", "pipeline", w.o.Pipeline.Name,
			"error", quiet(lost))
	}
	return results, err
}

// vectors asks the embedder for texts of items, and notes how long that took and what was paid for.
func (w *Worker) vectors(ctx context.Context, items []item, texts []string, alone bool) ([]embed.Result, error) {
	began := time.Now()
	var (
		results []embed.Result
		err     error
	)
	if items[0].task.IsDirect() {
		results, err = w.embedBriefly(ctx, texts)
	} else {
		results, err = w.o.Service.Embed(ctx, embed.Document, texts, alone)
		w.countTokens(texts, results, items[0].task.Lane == pipeline.Low)
	}
	w.embedding.Add(int64(time.Since(began)))
	w.traceEmbedded(ctx, items, began, len(texts), results, err)
	return results, err
}

// countTokens notes what was paid for, and what was not.
func (w *Worker) countTokens(texts []string, results []embed.Result, bulk bool) {
	tokens := 0
	defer func() { w.o.Limit.Spend(time.Now(), bulk, 0, tokens) }()
	for i := range results {
		switch {
		case results[i].Sent:
			w.stats.Tokens.Add(int64(results[i].Tokens))
			tokens += results[i].TokensOf(texts[i])
			w.stats.Sent.Add(1)
			if results[i].Truncated {
				w.stats.Cut.Add(1)
			}
		case results[i].Vector != nil:
			w.stats.Remembered.Add(1)
		}
	}
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
	return w.lost(ctx, tasks, code, w.o.Service.Rest(), "the embedder died while it held this row",
		"the embedder died each time it held this row, also alone")
}

// panicked ends a batch in which a mistake of ours made the worker panic. Some row may have led to it, so they are
// tried alone then, and one that does it each time is a dead letter.
func (w *Worker) panicked(ctx context.Context, tasks []queue.Task) error {
	const message = "embedsidecar itself failed while it held this row: its log tells more"
	return w.lost(ctx, tasks, "panic", w.o.Retry.Initial, message, message)
}

// lost postpones a batch whose embedder or worker died; again is the message for a row that has been there each time.
func (w *Worker) lost(ctx context.Context, tasks []queue.Task, code string, delay time.Duration, message, again string,
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

// told notes how rows have ended, and says so of those that are given up.
func (w *Worker) told(ctx context.Context, outcomes []queue.Outcome, done queue.Finished) {
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
	w.told(ctx, outcomes, done)
	return nil
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

// room waits until there is room for so many bytes of text. Anyone who holds some must not ask for more.
func (w *Worker) room(ctx context.Context, size int) (*room, error) {
	r, there := w.roomNow(size)
	if there {
		return r, nil
	}
	err := w.o.Budget.free.Acquire(ctx, r.size)
	return r, wrap.Errorf(err, "wait for room for %d bytes of text", size)
}

// roomNow is room without a wait: it may not be there.
func (w *Worker) roomNow(size int) (r *room, there bool) {
	if w.outside.CompareAndSwap(false, true) {
		return &room{budget: w.o.Budget, outside: &w.outside}, true
	}
	r = &room{budget: w.o.Budget, size: min(int64(size), w.o.Budget.size)}
	return r, w.o.Budget.free.TryAcquire(r.size)
}
