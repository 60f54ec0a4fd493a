package app

import (
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

func TestKept_WarnsOfWhatDiffersAlone(t *testing.T) {
	t.Parallel()
	set := pipeline.Spec{
		Name: "docs", Schema: "public", Table: "docs", Columns: []string{"title"}, Plugin: "p", Model: "small",
	}
	if got := kept(set, set); got != "" {
		t.Error(got)
	}
	other := set
	other.Columns = []string{"title", "body"}
	if got := kept(other, set); !strings.Contains(got, `pipeline "docs" is set up differently`) ||
		!strings.Contains(got, "columns (it was: title)") {
		t.Error(got)
	}
	named := set
	set.Model = ""
	if got := kept(named, set); got != "" {
		t.Errorf("a pipeline without a model of its own takes the one that is named: %s", got)
	}
}

func TestIdleModel(t *testing.T) {
	t.Parallel()
	set := []pipeline.Pipeline{{Spec: pipeline.Spec{Name: "docs", Model: "small"}}}
	load := func(flags map[string][]string) *config.Config {
		c, _, err := config.Load(config.Source{Flags: flags})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if got := idleModel(load(map[string][]string{"model": {"large"}}), set); !strings.Contains(got, `could take the model "large"`) ||
		!strings.Contains(got, `docs has "small"`) {
		t.Error(got)
	}
	for name, c := range map[string]*config.Config{
		"nobody named a model": load(nil), "it has this one": load(map[string][]string{"model": {"small"}}),
		"queries take it": load(map[string][]string{"model": {"large"}, "http": {"127.0.0.1:1"}, "no-auth": {"true"}}),
	} {
		if got := idleModel(c, set); got != "" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestUnconfigured_NamesTheWayOut(t *testing.T) {
	t.Parallel()
	if got := Unconfigured("my docs"); !strings.Contains(got, `embedsidecar uninstall 'my docs'`) {
		t.Error(got)
	}
}
