package worker

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
)

// model is an embedder that counts what it is asked.
type model struct {
	mu     sync.Mutex
	texts  []string
	fail   error            // of every call
	hang   atomic.Bool      // until it is given up
	slow   time.Duration    // for so long
	refuse map[string]error // of texts
}

func (*model) Describe(context.Context) (embed.Description, error) {
	return embed.Description{Fingerprint: "model", Dims: 3, MaxTokens: 64}, nil
}

func (e *model) Embed(ctx context.Context, _ embed.Kind, texts []string) ([]embed.Result, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.texts = append(e.texts, texts...)
	if e.hang.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if e.fail != nil {
		return nil, e.fail
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(e.slow):
	}
	results := make([]embed.Result, len(texts))
	for i, text := range texts {
		results[i] = embed.Result{Vector: vectorOf(text), Tokens: 1}
		if err := e.refuse[text]; err != nil {
			results[i] = embed.Result{Err: err}
		}
		if text == withoutTokens {
			results[i] = embed.Result{Empty: true}
		}
	}
	return results, nil
}

// withoutTokens is a text that has no token, though it is not blank.
const withoutTokens = "\u200d"

func vectorOf(text string) []float32 {
	sum := sha256.Sum256([]byte(text))
	return []float32{float32(sum[0]) + 1, float32(sum[1]) - 100, float32(sum[2])}
}

func (e *model) calls() int { return len(e.texts) }

// forms are pipelines, one of each kind of destination.
func forms() map[string]*pipeline.Pipeline {
	p := func(change func(p *pipeline.Pipeline)) *pipeline.Pipeline {
		p := &pipeline.Pipeline{
			Spec: pipeline.Spec{Name: "docs", Schema: "public", Table: "docs", IntoTable: "docs_embedding"},
			ID:   7, Dims: 3, Form: pipeline.Form{Stored: pipeline.StoredVector}, Generation: 1,
			Key: []pipeline.KeyColumn{{Name: "id", Type: "text"}},
		}
		change(p)
		return p
	}
	return map[string]*pipeline.Pipeline{
		"column": p(func(p *pipeline.Pipeline) { p.IntoColumn, p.IntoTable = "embedding", "" }),
		"table":  p(func(*pipeline.Pipeline) {}),
		"chunks": p(func(p *pipeline.Pipeline) {
			p.Chunked, p.Chunking = true, pipeline.Chunking{Strategy: pipeline.ChunkSentences, Tokens: 16}
		}),
	}
}

// inMemory returns a worker of a pipeline over nothing but memory.
func inMemory(t *testing.T, p *pipeline.Pipeline, change func(o *Options)) (*Worker, *memory, *model) {
	t.Helper()
	e := &model{refuse: map[string]error{}}
	o := Options{
		Pipeline: p, Service: embed.NewService(e, 1<<20), Log: slog.New(slog.DiscardHandler),
		Work: Work{BatchRows: 4, Retry: Retry{MaxAttempts: 3, Initial: time.Millisecond, Max: time.Second}},
	}
	if change != nil {
		change(&o)
	}
	w := New(o)
	m := &memory{
		Table: rows.New(p, nil, rows.Options{}), p: p, source: map[string]string{}, stored: map[string]kept{},
		ledger: map[string]rows.Row{}, locked: map[string]bool{}, others: map[int32]map[string][]float32{},
	}
	w.table, w.store, w.tasks, w.pages = m, m, m, func() pages { return memoryPages{m} }
	if w.chunks != nil {
		w.chunks = m
	}
	return w, m, e
}

// tasksFor returns tasks for keys.
func tasksFor(keys ...string) []queue.Task {
	list := make([]queue.Task, len(keys))
	for i, key := range keys {
		list[i] = queue.Task{TaskID: int64(i + 1), RowKey: key, EnqueuedAt: time.Now(), CommittedAt: time.Now()}
	}
	return list
}

// ends returns how the tasks of keys ended, and forgets it.
func (m *memory) ends() map[string]string {
	ends := map[string]string{}
	for i := range m.outcomes {
		ends[m.outcomes[i].Task.RowKey] = m.outcomes[i].What
	}
	m.outcomes = nil
	return ends
}
