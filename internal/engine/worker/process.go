package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
)

// process completes leased tasks. It returns an error only if the batch as a whole could not be finished. If the
// database rejects a statement, the batch is halved even if no row should be able to cause that, so that one row cannot
// block the rest.
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
	room, err := w.room(ctx, w.most)
	if err != nil {
		return err
	}
	defer room.release()
	items, err := w.look(ctx, tasks, w.limit)
	if err != nil {
		return w.lookFailed(ctx, tasks, err)
	}
	return w.work(ctx, items, room)
}

// work completes items whose rows were read.
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
	if w.chunks != nil {
		return w.embedChunks(ctx, items, room)
	}
	return w.embedTexts(ctx, items, room)
}

// look reads the rows of tasks with up to texts bytes of text. A row whose text expression fails (division by zero, bad
// cast) is found by halving. So is a key that is no longer valid because the key's type changed.
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
		return []item{{task: tasks[0], action: broken, err: unreadable, slow: tookTooLong(err)}}, nil
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

// decide sets the action of each item, before any embedding.
func (w *Worker) decide(items []item) {
	for i := range items {
		it := &items[i]
		r := &it.row
		if r.Broken {
			w.stats.Sanitised.Add(1)
		}
		if w.doubtful(it) {
			it.doubted, r.LedgerText, r.LedgerVector = r.LedgerText, nil, nil
		}
		switch {
		case it.action == broken:
		case !r.Found:
			it.action = gone
		case r.Key != r.Actual && len(r.Actual) > pipeline.MaxKey:
			it.action = empty // changes of such a row are not processed
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

// doubtful reports whether an adopted vector may be of another text than the ledger says: that text was read after the
// set-up, when joined rows may have been changed already. Such a change comes through the stream, with a time before
// the adoption, unless the server's clock was set. A ledger that an earlier set-up left has no source hash.
func (w *Worker) doubtful(it *item) bool {
	const clocks = time.Hour
	p, r := w.o.Pipeline, &it.row
	return len(p.Joins) > 0 && !p.Chunking.On() && len(r.LedgerSource) > 0 && !r.Adopted.IsZero() &&
		it.task.FirstLSN != 0 && it.task.CommittedAt.Before(r.Adopted.Add(clocks))
}

// settled reports whether the row is unchanged since it was found to need no new vector, and no later change arrived:
// the WAL may repeat a change.
func (w *Worker) settled(it *item) bool {
	return w.table.Skipped(&it.row) && (it.task.Seen != nil || it.task.LastLSN <= it.row.SkippedAt)
}

// decideAll decides, and adds tasks for rows under the current spelling of their key. That uses its own transaction
// before the write-back: in one that already holds tasks, it could deadlock with an enqueue.
func (w *Worker) decideAll(ctx context.Context, items []item) error {
	w.decide(items)
	var keys []string
	for i := range items {
		if items[i].action == alias {
			keys = append(keys, items[i].row.Actual)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	if err := w.store.addTasks(ctx, keys); err != nil {
		return fmt.Errorf("queue %s again: %w", w.describe(len(keys)), err)
	}
	w.tasks.Wake(w.o.Pipeline.ID)
	return nil
}

// embed requests the vectors of items that need one and have none.
func (w *Worker) embed(ctx context.Context, items []item) error {
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
	call := func() ([]embed.Result, error) { return w.callEmbedder(ctx, items, texts) }
	var (
		results []embed.Result
		err     error
	)
	if items[0].task.IsDirect() {
		results, err = call() // embedBriefly checks the budget
	} else {
		results, err = w.withinBudget(ctx, texts, call)
	}
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

// withinBudget calls the embedder if the budgets allow it.
func (w *Worker) withinBudget(ctx context.Context, texts []string, call func() ([]embed.Result, error),
) ([]embed.Result, error) {
	paid, err := w.o.Book.Ask(ctx, w.o.Pipeline, texts)
	if err != nil {
		return nil, err
	}
	results, err := call()
	if lost := paid.End(ctx, embed.Sent(results, texts), err); lost != nil {
		w.o.Log.WarnContext(ctx, "embedder call counted at its maximum cost", "pipeline", w.o.Pipeline.Name,
			"error", quiet(lost))
	}
	return results, err
}

// callEmbedder embeds texts of items and records the time and cost.
func (w *Worker) callEmbedder(ctx context.Context, items []item, texts []string) ([]embed.Result, error) {
	began := time.Now()
	var (
		results []embed.Result
		err     error
	)
	if items[0].task.IsDirect() {
		results, err = w.embedBriefly(ctx, texts)
	} else {
		results, err = w.o.Service.Embed(ctx, embed.Document, texts, items[0].task.Alone())
		w.countTokens(texts, results, items[0].task.Lane == pipeline.Low)
	}
	w.embedding.Add(int64(time.Since(began)))
	w.traceEmbedded(ctx, items, began, len(texts), results, err)
	return results, err
}

// countTokens counts texts that were paid for, and texts answered from the cache.
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

// room waits for room for that many bytes of text. The caller must not hold any yet.
func (w *Worker) room(ctx context.Context, size int) (*room, error) {
	r, there := w.roomNow(size)
	if there {
		return r, nil
	}
	err := w.o.Budget.free.Acquire(ctx, r.size)
	return r, wrap.Errorf(err, "wait for room for %d bytes of text", size)
}

// roomNow is room without waiting: there may be none.
func (w *Worker) roomNow(size int) (r *room, there bool) {
	if w.outside.CompareAndSwap(false, true) {
		return &room{budget: w.o.Budget, outside: &w.outside}, true
	}
	r = &room{budget: w.o.Budget, size: min(int64(size), w.o.Budget.size)}
	return r, w.o.Budget.free.TryAcquire(r.size)
}
