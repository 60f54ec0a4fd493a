package query

import (
	"errors"
	"slices"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/named/embedders"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// TestTokens_OfAPipelineAskItsModelsAlone: the model of another may be a paid one.
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
