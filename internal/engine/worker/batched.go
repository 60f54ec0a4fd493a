package worker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
)

// mostJobs is how many jobs of a pipeline are under way before its scan waits.
const mostJobs = 8

// gathers reports whether what a step of the scan finds goes into a batch job. What it is asked to compare because of
// single changes does not: they are live.
func (s *Scan) gathers(st *scanState) bool {
	return s.w.o.Jobs != nil && s.w.o.Pipeline.Batch.On() && st.Phase == phaseRows && !st.Parts
}

// jobsFull reports whether enough jobs are under way, and lets one go whose rows have more texts than it may have.
func (s *Scan) jobsFull(ctx context.Context) (bool, error) {
	_, under, gathered, err := s.w.o.Jobs.Open(ctx)
	if err == nil && gathered > int64(max(s.w.o.Pipeline.Batch.Rows(), embed.MaxJobTexts)) {
		err = s.w.o.Jobs.Close(ctx)
	}
	return under >= mostJobs, err
}

// jobsLeft reports whether the scan waits for batch jobs after its last row. If another one is asked for it does not.
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

// batched fills in the vectors that batch jobs have given, which are paid for. What is worked at once is not looked
// for.
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

// Wanted is a row, and those of its texts that only the embedder knows a vector for.
type Wanted struct {
	Key   string
	Texts []string // none: the row is for a task
}

// Wants looks at the first of these rows, as many as have room in memory and at least one, and says which texts a
// batch job would have to embed. A text that has no room even by itself is for a task.
func (w *Worker) Wants(ctx context.Context, keys []string) ([]Wanted, error) {
	room, err := w.room(ctx, w.most)
	if err != nil {
		return nil, err
	}
	defer room.release()
	tasks := make([]queue.Task, len(keys))
	for i, key := range keys {
		tasks[i] = queue.Task{RowKey: key, Lane: pipeline.Low}
	}
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
	saved := 0 // their tasks say so
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

// CountBatched notes tokens that a batch job has taken.
func (w *Worker) CountBatched(texts, tokens int) {
	w.stats.Sent.Add(int64(texts))
	w.stats.Batched.Add(int64(tokens))
}
