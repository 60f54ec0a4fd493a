package query

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/named/embedders"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/search"
)

// TestTokens_OfAPipelineAskItsModelsAlone: the model of another pipeline may be a paid one.
func TestTokens_OfAPipelineAskItsModelsAlone(t *testing.T) {
	t.Parallel()
	spec := func(name, plugin, model string) pipeline.Spec {
		return pipeline.Spec{Name: name, Plugin: plugin, Model: model}
	}
	a := New(Options{Config: &config.Config{
		Pipelines: []pipeline.Spec{spec("docs", "onnx", "small"), spec("pay", "remote", "costly")},
		Models:    []config.Model{{Name: "unused"}},
	}, Plugins: &embedders.Pool{}})
	for _, c := range []struct{ only, want []string }{
		{nil, []string{"small", "costly", "unused"}},
		{[]string{"docs"}, []string{"small"}},
		{[]string{"docs", "pay"}, []string{"small", "costly"}},
		{[]string{"gone"}, nil},
	} {
		names, err := a.Models(t.Context(), c.only)
		if err != nil || !slices.Equal(names, c.want) {
			t.Errorf("%q: %q, %v, want %q", c.only, names, err, c.want)
		}
	}
	for _, name := range []string{"costly", "unused"} {
		if _, err := a.Model(t.Context(), []string{"docs"}, name); !errors.Is(err, ErrUnknown) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := a.Known(t.Context(), []string{"docs"}, name); !errors.Is(err, ErrUnknown) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The reranker is that of the reloaded configuration, not that of the start.
func TestScore_ByTheConfigurationInForce(t *testing.T) {
	t.Parallel()
	asked := errors.New("asked for it")
	var model string
	b := New(Options{Config: &config.Config{}, Embedder: func(_ context.Context, p *pipeline.Pipeline) (embed.Embedder,
		error,
	) {
		model = p.Model
		return nil, asked
	}})
	p := &pipeline.Pipeline{Spec: pipeline.Spec{Name: "docs"}}
	var none *search.BadRequestError
	if _, err := b.Score(t.Context(), p, "q", []string{"a"}); !errors.As(err, &none) {
		t.Errorf("without a reranker: %v", err)
	}
	b.Use(&config.Config{Rerank: "judge"})
	if _, err := b.Score(t.Context(), p, "q", []string{"a"}); !errors.Is(err, asked) || model != "judge" {
		t.Errorf("with one: %v, model %q", err, model)
	}
	if _, err := b.ScoreBy(t.Context(), nil, "", "q", []string{"a"}); !errors.Is(err, asked) {
		t.Errorf("by its being the only one: %v", err)
	}
}
