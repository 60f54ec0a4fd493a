package setup_test

import (
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/pipeline"
	"github.com/embedsidecar/embedsidecar/setup"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// options makes Options for specs whose embedders are all three wide.
func (b *base) options(slot string, specs ...pipeline.Spec) setup.Options {
	d := map[string]embed.Description{}
	for _, s := range specs {
		d[s.Name] = embed.Description{Plugin: "fake", Model: "m", Fingerprint: "f1", Dims: 3}
	}
	return setup.Options{Pool: b.pool, ReplicationDSN: b.URL(testenv.Owner), Slot: slot, Publication: "embedsidecar", Specs: specs, Descriptions: d}
}

func (b *base) init(o setup.Options) setup.Report {
	b.t.Helper()
	r, err := setup.Init(b.t.Context(), o)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

func TestInit_MakesEverythingOnce(t *testing.T) {
	b := newBase(t, "CREATE TABLE public.docs (id bigint PRIMARY KEY, title text, body text, n int)")
	table := docs()
	table.Name, table.IntoColumn, table.IntoTable = "docs side", "", "docs_embedding"
	o := b.options(b.SlotName(), docs(), table)
	r := b.init(o)
	var whats []string
	for _, s := range r.Steps {
		whats = append(whats, s.What)
		t.Log(s.What, s.SQL, s.Undo)
	}
	if got := strings.Join(whats, "\n"); len(whats) != 7 {
		t.Errorf("made:\n%s", got)
	}
	if len(r.Pipelines) != 2 || r.Pipelines[0].Status != pipeline.Active || r.Pipelines[0].ID == 0 {
		t.Errorf("pipelines: %+v", r.Pipelines)
	}
	if r := b.init(o); len(r.Steps) != 0 || len(r.Pipelines) != 2 {
		t.Errorf("second run made %v", r.Steps)
	}
}
