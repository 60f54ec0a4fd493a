package model

import "sync/atomic"

// Work is what a model has done since it was opened.
type Work struct {
	Runs    int64 // of the network
	Tokens  int64 // of texts, special ones included
	Padding int64 // places beside them that were computed for nothing
}

type work struct{ runs, tokens, padding atomic.Int64 }

// add counts a piece of texts with these lengths.
func (w *work) add(p piece, lengths []int) {
	tokens := 0
	for _, length := range lengths[p.first:p.end] {
		tokens += length
	}
	w.runs.Add(1)
	w.tokens.Add(int64(tokens))
	w.padding.Add(int64((p.end-p.first)*p.width - tokens))
}

// Work returns what the model has done so far, without its warm-up.
func (m *Model) Work() Work {
	return Work{Runs: m.work.runs.Load(), Tokens: m.work.tokens.Load(), Padding: m.work.padding.Load()}
}
