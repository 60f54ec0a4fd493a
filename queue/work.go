package queue

import (
	"sync"
	"time"
)

// Work is what is done under one lease, or at once: since when, and how its rows have ended so far.
type Work struct {
	Began time.Time

	mu    sync.Mutex
	ended map[string]int
}

// Note counts rows that have ended.
func (w *Work) Note(outcomes []Outcome) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended == nil {
		w.ended = map[string]int{}
	}
	for i := range outcomes {
		w.ended[outcomes[i].What]++
	}
}

// Ended returns how many rows have ended, by how they did: embedded, unchanged, failed, ...
func (w *Work) Ended() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended
}

// tookMS is how long it has taken so far, in milliseconds, for history; nil: nobody knows.
func (w *Work) tookMS() *int64 {
	if w == nil || w.Began.IsZero() {
		return nil
	}
	ms := time.Since(w.Began).Milliseconds()
	return &ms
}
