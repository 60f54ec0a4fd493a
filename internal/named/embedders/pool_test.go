package embedders

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/metrics"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/plugins/host"
)

// inside is an embedder in this process.
type inside struct {
	Runner        // nil: the other methods are not called
	closed, asked int
}

func (i *inside) Describe(context.Context) (embed.Description, error) {
	i.asked++
	return embed.Description{Plugin: "inside", Model: "two", Dims: 2}, nil
}

func (*inside) Embed(_ context.Context, _ embed.Kind, texts []string) ([]embed.Result, error) {
	results := make([]embed.Result, len(texts))
	for i := range results {
		results[i].Vector = []float32{1, 2}
	}
	return results, nil
}

func (*inside) Tokenize(context.Context, []string) (embed.Tokens, error) {
	return embed.Tokens{}, embed.ErrNoTokens
}

func (*inside) Stats() host.Stats { return host.Stats{Up: true, Version: "1"} }

func (i *inside) Close() error {
	i.closed++
	return nil
}

// The pool does not depend on where an embedder runs.
func TestPool_TakesAnyRunner(t *testing.T) {
	t.Parallel()
	r := &inside{}
	p := New(Source{Log: slog.New(slog.DiscardHandler)})
	h := &Hosted{Runner: r, Plugin: "inside"}
	for _, plugin := range []string{"inside", ""} { // by two names
		p.hosts[pipeline.ModelName{Plugin: plugin, Model: "two"}] = h
	}
	spec := pipeline.Spec{Name: "docs", Plugin: "inside", Model: "two"}
	described, err := p.Describe(t.Context(), []pipeline.Spec{spec})
	if err != nil || described["docs"].Dims != 2 || h.Model() != "two" {
		t.Fatalf("described %+v, %v", described, err)
	}
	if got := p.Described(pipeline.ModelName{Model: "two"}); got == nil || got.Plugin != "inside" {
		t.Errorf("by its other name it is %+v", got)
	}
	spec.Chunking.Strategy = pipeline.ChunkTokens
	if _, err := p.Describe(t.Context(), []pipeline.Spec{spec}); err == nil ||
		!strings.Contains(err.Error(), "does not tell where tokens end") {
		t.Errorf("got %v, want that it does not tell tokens", err)
	}
	if list := p.States(); len(list) != 1 || list[0].Stats.Version != "1" || list[0].Model != "two" {
		t.Errorf("its state is %+v", list)
	}
	if err := p.Close(); err != nil || r.closed != 1 {
		t.Errorf("%v, closed %d times", err, r.closed)
	}
}

// Measure does not call the plugin before it embeds: one that does not start would block the start of the others.
func TestMeasured_AsksNothingBeforeItEmbeds(t *testing.T) {
	t.Parallel()
	r, m := &inside{}, metrics.New(metrics.Build{}, nil)
	h := &Hosted{Runner: r, Plugin: "inside"}
	e := h.Measure(m.Embedder)
	if h.Measure(m.Embedder) != e || r.asked != 0 {
		t.Errorf("it was asked %d times", r.asked)
	}
	if _, err := e.Embed(t.Context(), embed.Document, []string{"a", "b"}); err != nil {
		t.Fatal(err)
	}
	if n := testutil.ToFloat64(m.Embedder("two", "inside").Embeddings.At("ok")); n != 2 {
		t.Errorf("%v texts are counted under its model, want 2", n)
	}
}
