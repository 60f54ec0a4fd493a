package setup_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	"github.com/embedsidecar/embedsidecar/testenv"
)

func TestLoad_TypesInSchemasOfTheirOwn(t *testing.T) {
	t.Parallel()
	b := newBase(t)
	for _, sql := range []string{
		`DROP EXTENSION IF EXISTS vector`, `CREATE SCHEMA "Ext"`, `CREATE EXTENSION vector SCHEMA "Ext"`,
		`GRANT USAGE ON SCHEMA "Ext" TO ` + testenv.Owner,
	} {
		b.MustExecSuper(sql)
	}
	for _, sql := range []string{
		`CREATE SCHEMA kinds`, `CREATE TYPE kinds.colour AS ENUM ('red', 'blue')`,
		`CREATE TABLE docs (id kinds.colour PRIMARY KEY, title text, body text)`,
	} {
		b.MustExec(sql)
	}
	o := b.options(b.SlotName(), side())
	made := b.init(o)
	role := b.RunRole(made.Pipelines...)
	pool := b.connect(role)
	got, err := resolve.Load(t.Context(), pool, o.Slot)
	if err != nil {
		t.Fatal(err)
	}
	for _, schema := range []string{"Ext", "kinds"} {
		if want := `GRANT USAGE ON SCHEMA "` + schema + `" TO "` + role + `"`; got[0].Status != pipeline.Misconfigured ||
			!strings.Contains(got[0].Detail, want) {
			t.Errorf("%s: %s (%s), want %s", schema, got[0].Status, got[0].Detail, want)
		}
	}
	statements, err := resolve.Grants(t.Context(), b.pool, &made.Pipelines[0], role)
	if err != nil {
		t.Fatal(err)
	}
	if n := slices.IndexFunc(statements, func(s string) bool { return strings.Contains(s, `"Ext"`) }); n < 0 {
		t.Errorf("the grants lack the schema of the extension: %q", statements)
	}
	for _, sql := range statements {
		b.MustExecSuper(sql)
	}
	if got, err = resolve.Load(t.Context(), pool, o.Slot); err != nil || got[0].Status != pipeline.Active {
		t.Errorf("after the grants: %s (%s), %v", got[0].Status, got[0].Detail, err)
	}
}

func TestLoad_AnEmbeddingTableWithHiddenRows(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	o := b.options(b.SlotName(), side())
	made := b.init(o)
	pool := b.connect(b.RunRole(made.Pipelines...))
	b.MustExec(`ALTER TABLE docs_embedding ENABLE ROW LEVEL SECURITY`)
	got, err := resolve.Load(t.Context(), pool, o.Slot)
	if err != nil {
		t.Fatal(err)
	}
	if p := got[0]; p.Status != pipeline.Misconfigured || !strings.Contains(p.Detail, `"public"."docs_embedding"`) ||
		!strings.Contains(p.Detail, "BYPASSRLS") {
		t.Errorf("got %s (%s)", p.Status, p.Detail)
	}
}
