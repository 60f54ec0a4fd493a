package setup_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/internal/setup/uninstall"
	"github.com/embedsidecar/embedsidecar/internal/status/check"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// When a sidecar with another configuration for the same database and slot starts, it does not take over an existing
// pipeline as renamed. A user who asks for it may change the name and everything but the model at once.
func TestInit_ARenameChangesNothingElseUnlessAskedFor(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	o := b.options(b.SlotName(), docs())
	b.init(o)
	row := "SELECT to_jsonb(p)::text FROM embedsidecar.pipeline AS p"
	before := testenv.Value[string](b.Database, row)
	for what, change := range map[string]func(s *pipeline.Spec, d *embed.Description){
		"columns": func(s *pipeline.Spec, _ *embed.Description) { s.Columns = []string{"title"} },
		"text":    func(s *pipeline.Spec, _ *embed.Description) { s.Columns, s.Text = nil, "title || body" },
		"filter":  func(s *pipeline.Spec, _ *embed.Description) { s.Filter = "n > 1" },
		"model":   func(_ *pipeline.Spec, d *embed.Description) { d.Fingerprint = "f2" },
	} {
		other := docs()
		other.Name = "titles"
		asked := b.options(o.Slot, other)
		d := asked.Descriptions["titles"]
		change(&asked.Specs[0], &d)
		asked.Descriptions["titles"] = d
		hint, found := "embedsidecar init renames it", "if this is its new name"
		if what == "model" {
			hint, found = "leave the model as it is", "another pipeline, \"docs\""
			_, err := setup.Init(t.Context(), asked)
			wantError[*refusal.ConfigError](t, err, `also that of pipeline "docs"`, hint)
		}
		asked.Starting = true
		_, err := setup.Init(t.Context(), asked)
		wantError[*refusal.ConfigError](t, err, `also that of pipeline "docs"`, hint)
		for _, f := range b.check(asked) {
			if f.Name == `pipeline "titles"` && (f.Status != check.Wrong || !strings.Contains(strings.Join(f.Hint, " "),
				found)) {
				t.Errorf("%s: check says %+v", what, f)
			}
		}
		if after := testenv.Value[string](b.Database, row); after != before {
			t.Errorf("%s: the pipeline was changed:\n%s\nbefore:\n%s", what, after, before)
		}
	}
	other := docs()
	other.Name, other.Filter, other.Columns = "titles", "n > 1", []string{"title"}
	r := b.init(b.options(o.Slot, other))
	if got := whats(r); len(got) != 1 || !strings.Contains(got[0], `name (it was "docs"), filter, columns`) {
		t.Errorf("made %v", got)
	}
	if got := testenv.Value[string](b.Database,
		"SELECT string_agg(name || ' ' || filter_expression, ',') FROM embedsidecar.pipeline"); got != "titles n > 1" {
		t.Errorf("pipelines: %s", got)
	}
}

// TestP10_NoHintToRenameWhereBothNamesAreConfigured: init refuses that, too.
func TestP10_NoHintToRenameWhereBothNamesAreConfigured(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	one, two := docs(), docs()
	one.Name, two.Name = "one", "two"
	two.IntoColumn, two.IntoTable = "", "vectors"
	slot := b.SlotName()
	b.init(b.options(slot, one, two))
	one.Name, two.Name = two.Name, one.Name
	for _, starting := range []bool{true, false} {
		asked := b.options(slot, one, two)
		asked.Starting = starting
		_, err := setup.Init(t.Context(), asked)
		wantError[*refusal.ConfigError](t, err, "also that of pipeline")
		if hints := strings.Join(problem.Hints(err), " "); strings.Contains(hints, "renames") {
			t.Errorf("hints: %s", hints)
		}
	}
}

// TestP6_PipelinesThatReadEachOthersVectorsAreRefused: each write-back would queue a task of the other.
func TestP6_PipelinesThatReadEachOthersVectorsAreRefused(t *testing.T) {
	t.Parallel()
	b := newBase(t, `CREATE TABLE docs (id int PRIMARY KEY, body text, a public.vector(3), b public.vector(3), c public.vector(3), told text GENERATED ALWAYS AS (left(b::text, 5)) STORED)`)
	spec := func(name, text, filter string) pipeline.Spec {
		s := docs()
		s.Name, s.Columns, s.Text, s.Filter, s.IntoColumn = name, nil, text, filter, name
		return s
	}
	a, second, third := spec("a", "body", ""), spec("b", "body", "a IS NOT NULL"), spec("c", "body || told", "")
	slot := b.SlotName()
	b.init(b.options(slot, a, second, third)) // a chain ends
	circle := spec("a", "body || coalesce(c::text, '')", "")
	for name, o := range map[string]setup.Options{
		"configured": b.options(slot, circle, second, third),
		"stored":     b.options(slot, circle),
	} {
		_, err := setup.Init(t.Context(), o)
		if wantError[*refusal.ConfigError](t, err, `pipeline "`, "without end"); t.Failed() {
			t.Fatal(name)
		}
	}
}

func TestInit_OneColumnThroughAPartitionIsOneDestination(t *testing.T) {
	t.Parallel()
	b := newBase(t, "CREATE TABLE parts (region text, id bigint, title text, body text, embedding public.vector(3), own public.vector(3), PRIMARY KEY (region, id)) PARTITION BY LIST (region)",
		"CREATE TABLE north PARTITION OF parts FOR VALUES IN ('north') PARTITION BY LIST (id)",
		"CREATE TABLE north_one PARTITION OF north FOR VALUES IN (1)")
	root, leaf := docs(), docs()
	root.Name, root.Table = "root", "parts"
	leaf.Name, leaf.Table = "leaf", "north_one"
	slot := b.SlotName()
	_, err := setup.Init(t.Context(), b.options(slot, root, leaf))
	wantError[*refusal.ConfigError](t, err, `pipeline "leaf"`, `also that of pipeline "root"`, "partition of the other")
	for _, pair := range [][2]pipeline.Spec{{root, leaf}, {leaf, root}} {
		b.init(b.options(slot, pair[0]))
		_, err = setup.Init(t.Context(), b.options(slot, pair[1]))
		wantError[*refusal.ConfigError](t, err, fmt.Sprintf("pipeline %q", pair[1].Name),
			fmt.Sprintf("also that of pipeline %q", pair[0].Name))
		// Another pipeline may have a column of its own.
		other := pair[1]
		other.IntoColumn = "own"
		b.init(b.options(slot, pair[0], other))
		b.uninstall(uninstall.Options{Embeddings: true})
	}
}
