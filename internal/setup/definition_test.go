package setup_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// Two sidecars have different configurations: each one that changes a pipeline reports what it was.
func TestInit_SaysWhatItChanges(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	o := b.options(b.SlotName(), side())
	if warnings := strings.Join(b.init(o).Warnings, "; "); strings.Contains(warnings, "set up otherwise") {
		t.Errorf("at first: %s", warnings)
	}
	columns := func() string {
		return testenv.Value[string](b.Database, "SELECT array_to_string(source_columns, ' ') FROM embedsidecar.pipeline")
	}
	before := columns()
	o.Specs[0].Columns = []string{"body"}
	if warnings := strings.Join(b.init(o).Warnings, "; "); !strings.Contains(warnings,
		"is changed to what is configured here, as version 2 of its definition: columns (it was: "+strings.ReplaceAll(before,
			" ", ", ")) {
		t.Errorf("a change: %s", warnings)
	}
	if got := columns(); got != "body" {
		t.Errorf("columns %s", got)
	}
}

// Replicas start in turn with configurations of different ages: a newer one is applied, an older one is not, unless a
// user asks.
func TestInit_AnOlderDefinitionTurnsNothingBack(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs, "ALTER TABLE docs ADD extra text")
	slot := b.SlotName()
	version := func(name string, columns ...string) setup.Options {
		spec := side()
		spec.Name, spec.Columns = name, columns
		o := b.options(slot, spec)
		o.Starting = true
		return o
	}
	// The third has another name for the pipeline, and reads a column that did not exist for the others.
	first, second, third := version("side", "title"), version("side", "title", "body"), version("docs", "extra", "body")
	now := func() string {
		return testenv.Value[string](b.Database,
			"SELECT concat_ws(' ', name, definition_version, array_to_string(source_columns, ',')) FROM embedsidecar.pipeline")
	}
	is := func(what string, o setup.Options, want string, warned ...string) {
		t.Helper()
		r := b.init(o)
		if got := now(); got != want {
			t.Errorf("%s: the pipeline is %q, want %q", what, got, want)
		}
		all := strings.Join(r.Warnings, "; ")
		for _, words := range warned {
			if !strings.Contains(all, words) {
				t.Errorf("%s: %q is missing in the warnings: %s", what, words, all)
			}
		}
		if len(warned) == 0 && strings.Contains(all, "definition") {
			t.Errorf("%s: warned %s", what, all)
		}
		if len(warned) > 1 && len(r.Steps) != 0 { // left unchanged
			t.Errorf("%s: made %v", what, whats(r))
		}
	}
	byHand := func(o setup.Options) setup.Options { o.Starting = false; return o }
	is("set up", first, "side 1 title")
	is("again", first, "side 1 title")
	is("forward", second, "side 2 title,body", "as version 2 of its definition: columns (it was: title)")
	is("the older replica starts again", first, "side 2 title,body", "configured here as in version 1",
		"as in version 2, which is newer", "embedsidecar init")
	is("the newer one starts again", second, "side 2 title,body")
	b.MustExec("ALTER TABLE docs RENAME title TO heading")
	is("and after a column was renamed", first, "side 2 heading,body",
		"configured here as in version 1 of its definition, and is set up as in version 2, which is newer: it is not changed: columns (it was: heading, body)")
	b.MustExec("ALTER TABLE docs RENAME heading TO title")
	is("back, by hand", byHand(first), "side 3 title", "goes back to version 1 of its definition, as version 3")
	is("the newer replica is now the older one", second, "side 3 title", "configured here as in version 2",
		"as in version 3")
	_, err := setup.Init(t.Context(), third)
	wantError[*refusal.ConfigError](t, err, `also that of pipeline "side"`,
		"embedsidecar init renames it and applies the other changes")
	is("a name and a text at once, by hand", byHand(third), "docs 4 extra,body",
		"as version 4 of its definition: name (it was: side), columns (it was: title)")
	b.MustExec("ALTER TABLE docs DROP title")
	is("an older one, of another name, that names a column that is gone", first, "docs 4 extra,body",
		"configured here as in version 3", "as in version 4")
	if n := testenv.Value[int](b.Database, "SELECT count(*)::int FROM embedsidecar.pipeline"); n != 1 {
		t.Errorf("there are %d pipelines", n)
	}
}

// A pipeline that was set up before versions existed has version 1.
func TestInit_ADefinitionFromBeforeVersionsIsTheFirst(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	o := b.options(b.SlotName(), side())
	b.init(o)
	b.MustExec("UPDATE embedsidecar.pipeline SET definitions = '{}'")
	young := o
	young.Specs = slices.Clone(o.Specs)
	young.Specs[0].Filter = "id > 0"
	b.init(young)
	o.Starting = true
	if warnings := strings.Join(b.init(o).Warnings, "; "); !strings.Contains(warnings, "configured here as in version 1") {
		t.Errorf("warned %s", warnings)
	}
	// The number of stored definitions is limited, and the newest are kept.
	for i := range 60 {
		young.Specs[0].Filter = "id > " + strings.Repeat("1", i%20+1) + strings.Repeat(" ", i/20)
		b.init(young)
	}
	if n := testenv.Value[int](b.Database,
		"SELECT count(*)::int FROM embedsidecar.pipeline AS p, jsonb_object_keys(p.definitions)"); n != 50 {
		t.Errorf("%d definitions are remembered, want 50", n)
	}
	if got := testenv.Value[bool](b.Database,
		"SELECT definition_version = (SELECT max(v.value::int) FROM jsonb_each_text(definitions) AS v) FROM embedsidecar.pipeline"); !got {
		t.Error("the definition that is set up is not remembered")
	}
}
