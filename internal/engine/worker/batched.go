package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/internal/engine/spend"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
)

// mostJobs is the maximum number of unfinished jobs of a pipeline before its scan waits.
const mostJobs = 8

// gathers reports whether the rows found by a scan step go into a batch job. Rows compared because of single changes do
// not: they are live.
func (s *Scan) gathers(st *scanState) bool {
	return s.w.o.Jobs != nil && s.w.o.Pipeline.Batch.On() && st.Phase == phaseRows && !st.Parts
}

// jobsFull reports whether enough jobs are unfinished. It closes the gathered job if it has too many rows.
func (s *Scan) jobsFull(ctx context.Context) (bool, error) {
	_, under, gathered, err := s.w.o.Jobs.Open(ctx)
	if err == nil && gathered > int64(max(s.w.o.Pipeline.Batch.Rows(), embed.MaxJobTexts)) {
		err = s.w.o.Jobs.Close(ctx)
	}
	return under >= mostJobs, err
}

// jobsLeft reports whether the scan waits for batch jobs after its last row: not if a new scan was requested.
func (s *Scan) jobsLeft(ctx context.Context, st *scanState) (bool, error) {
	if s.w.o.Jobs == nil || st.Phase != phaseRows {
		return false, nil
	}
	open, _, gathered, err := s.w.o.Jobs.Open(ctx)
	if err == nil && gathered > 0 {
		err = s.w.o.Jobs.Close(ctx)
	}
	return open > 0 && st.Requested == st.Started, err
}

// batched fills in vectors returned by batch jobs, which are already paid for. It skips direct changes.
func (w *Worker) batched(ctx context.Context, items []item, wanted map[[32]byte]bool) error {
	if w.o.Jobs == nil || len(wanted) == 0 || items[0].task.IsDirect() {
		return nil
	}
	given, err := w.o.Jobs.Known(ctx, hashesOf(wanted))
	if err != nil {
		return fmt.Errorf("look for vectors of batch jobs: %w", err)
	}
	for i := range items {
		it := &items[i]
		if vector, ok := given[it.row.TextHash]; ok && it.action == vectorIn && it.vector == nil && !it.row.Anew() {
			it.vector, it.paid = vector, true
		}
	}
	maps.DeleteFunc(wanted, func(hash [32]byte, _ bool) bool { return given[hash] != nil })
	return nil
}

// batchedChunks is batched for chunks.
func (w *Worker) batchedChunks(ctx context.Context, items []item, hashes [][]byte,
	wanted map[[32]byte][]*rows.Chunk,
) error {
	if w.o.Jobs == nil {
		return nil
	}
	given, err := w.o.Jobs.Known(ctx, hashes)
	if err != nil {
		return fmt.Errorf("look for vectors of batch jobs: %w", err)
	}
	for hash, vector := range given {
		for _, c := range wanted[hash] {
			c.Vector = vector
		}
	}
	for i := range items {
		it := &items[i]
		it.paid = it.paid || slices.ContainsFunc(it.chunks, func(c rows.Chunk) bool { return given[c.Hash] != nil })
	}
	return nil
}

// Wanted is a row with its texts that have no known vector.
type Wanted struct {
	Key   string
	Texts []string // none: the row becomes a task
}

// Wants reads the first of these rows, at least one and as many as fit in memory, and returns which texts a batch job
// must embed. A row whose text does not fit even alone becomes a task.
func (w *Worker) Wants(ctx context.Context, keys []string) ([]Wanted, error) {
	room, err := w.room(ctx, w.most)
	if err != nil {
		return nil, err
	}
	defer room.release()
	tasks := lists.Map(keys, func(key string) queue.Task {
		return queue.Task{RowKey: key, Lane: pipeline.Low, LastLSN: 1} // 0: adopted
	})
	items, err := w.look(ctx, tasks, w.limit)
	if err != nil {
		return nil, err
	}
	w.decide(items)
	noRoom := func(it item) bool { return it.action == vectorIn && it.row.LeftOut() }
	if at := slices.IndexFunc(items[1:], noRoom); at >= 0 {
		items = items[:at+1]
	}
	wants := make([]Wanted, len(items))
	asks := make([]*Wanted, 0, len(items))
	var known []item
	for i := range items {
		it := &items[i]
		if wants[i].Key = it.task.RowKey; it.action == vectorIn && !it.row.LeftOut() && !it.row.Anew() {
			known, asks = append(known, *it), append(asks, &wants[i])
		}
	}
	if len(known) == 0 {
		return wants, nil
	}
	if w.chunks != nil {
		err = w.prepare(ctx, known)
	} else {
		err = w.reuse(ctx, known)
	}
	if err != nil {
		return nil, err
	}
	saved := 0 // counted when their tasks are processed
	for i := range known {
		it := &known[i]
		if it.vector != nil && !it.paid {
			saved++
		}
		texts := []string{it.row.Text}
		if w.chunks != nil {
			texts = nil
			for k := range it.chunks {
				if c := &it.chunks[k]; c.Unknown() {
					texts = append(texts, c.Embedded(it.row.Text))
				}
			}
		}
		if it.action == vectorIn && it.vector == nil {
			asks[i].Texts = slices.DeleteFunc(texts, func(text string) bool { return strings.TrimSpace(text) == "" })
		}
	}
	w.stats.Known.Add(-int64(saved))
	w.o.Service.Reused(-saved)
	return wants, nil
}

// Paid processes the tasks of some rows of batch jobs although the budget is spent. It writes the vectors that the jobs
// have returned, and leaves the rows that need the embedder.
func (w *Worker) Paid(ctx context.Context, keys []string) error {
	for len(keys) > 0 {
		n, _, err := w.o.InWork.Enter(ctx, func() int { return int(pipeline.Low) }, min(len(keys), w.o.BatchRows))
		if err != nil {
			return err
		}
		grant := w.o.Limit.Grant(n)
		if _, err := w.once(ctx, ctx, queue.Anyone, false, &grant, keys[:n]); err != nil {
			return err
		}
		keys = keys[n:]
	}
	return nil
}

// unaffordable reports whether a budget is the reason for err while only paid rows are processed.
func (w *Worker) unaffordable(err error) bool {
	_, is := errors.AsType[*spend.SpentError](err)
	return is && w.o.Pipeline.Paid
}

// affordable returns the items that need no embedder.
func affordable(items []item) []item {
	return slices.DeleteFunc(items, func(it item) bool {
		return it.action == vectorIn && it.vector == nil &&
			(it.chunks == nil || slices.ContainsFunc(it.chunks, func(c rows.Chunk) bool { return c.Unknown() }))
	})
}

// CountBatched counts the texts and tokens of a batch job.
func (w *Worker) CountBatched(texts, tokens int) {
	w.stats.Sent.Add(int64(texts))
	w.stats.Batched.Add(int64(tokens))
}
