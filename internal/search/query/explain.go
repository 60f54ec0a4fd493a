package query

import (
	"context"

	"github.com/embedsidecar/embedsidecar/internal/manage/explain"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/search"
)

// Explained is the short state of a row: why a search finds it or not.
type Explained struct {
	Pipeline string       `json:"pipeline"`
	Key      string       `json:"key"`
	Verdict  explain.Code `json:"verdict"`
	Sentence string       `json:"sentence"`
	Hints    []string     `json:"hints"`
}

// Explain returns the state of the row with a key. It does not return its text.
func (b *Backend) Explain(ctx context.Context, p *pipeline.Pipeline, key string) (Explained, error) {
	b.mu.Lock()
	pool := b.pool
	b.mu.Unlock()
	if pool == nil {
		return Explained{}, &search.UnavailableError{Problem: "the database is not connected yet"}
	}
	list, err := explain.Read(ctx, pool, p.Name, []string{key}, explain.Options{HideHashes: true})
	if err != nil {
		return Explained{}, err
	}
	s := &list[0]
	return Explained{s.Pipeline, s.Key, s.Verdict.Code, s.Verdict.Sentence, append([]string{}, s.Verdict.Hints...)}, nil
}
