package setup_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/internal/setup/publish"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
)

func TestLoad_AsTheLeastPrivilegedRole(t *testing.T) {
	t.Parallel()
	b := newBase(t, `CREATE TABLE docs (id bigint PRIMARY KEY, title text, body text, n int, made text GENERATED ALWAYS AS (lower(body)) STORED,
		secret text, severity text)`)
	plain, expression, table := docs(), docs(), side()
	expression.Name, expression.IntoColumn, expression.Text, expression.Filter, expression.Columns = "expression", "e2",
		"title || made", "n > 0", nil
	expression.PriorityBy = "coalesce(severity, 'low')"
	o := b.options(b.SlotName(), plain, expression, table)
	made := b.init(o)
	role := b.RunRole(made.Pipelines...)
	for _, p := range made.Pipelines {
		statements, err := resolve.Grants(t.Context(), b.pool, &p, role)
		if err != nil {
			t.Fatal(err)
		}
		for _, sql := range statements {
			b.MustExec(sql)
		}
	}
	pool := b.connect(role)
	got, err := resolve.Load(t.Context(), pool, o.Slot)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(made.Pipelines, got); diff != "" {
		t.Errorf("as owner and as role (-owner +role):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"title", "body", "n"}, got[1].Watched); diff != "" {
		t.Errorf("watched (-want +got):\n%s", diff)
	}
	if got[0].Plugin != "onnx" || got[0].Priority != pipeline.Normal || !got[0].Enabled || got[0].Dims != 3 {
		t.Errorf("got %+v", got[0])
	}
	if _, err := pool.Exec(t.Context(), "SELECT secret FROM public.docs"); err == nil {
		t.Error("the role may read a column that no pipeline reads")
	}

	// Without one privilege, only that pipeline stops, and reports the missing grant.
	b.MustExec("REVOKE SELECT (made) ON docs FROM " + role)
	b.MustExec("REVOKE INSERT ON docs_embedding FROM " + role)
	got, err = resolve.Load(t.Context(), pool, o.Slot)
	if err != nil {
		t.Fatal(err)
	}
	if got[0].Status != pipeline.Active {
		t.Errorf("docs: %s %s", got[0].Status, got[0].Detail)
	}
	if got[1].Status != pipeline.Misconfigured || !strings.Contains(got[1].Detail,
		`GRANT SELECT ("made") ON "public"."docs" TO "`+role+`"`) {
		t.Errorf("expression: %s %s", got[1].Status, got[1].Detail)
	}
	b.MustExec("GRANT SELECT (made) ON docs TO " + role)
	b.MustExec("REVOKE SELECT (severity) ON docs FROM " + role)
	if got, err := resolve.Load(t.Context(), pool, o.Slot); err != nil || got[1].Status != pipeline.Misconfigured ||
		!strings.Contains(got[1].Detail, `GRANT SELECT ("severity") ON "public"."docs" TO "`+role+`"`) {
		t.Errorf("expression: %s %s %v", got[1].Status, got[1].Detail, err)
	}
	if got[2].Status != pipeline.Misconfigured || !strings.Contains(got[2].Detail,
		`GRANT SELECT, INSERT, UPDATE, DELETE ON "public"."docs_embedding" TO "`+role+`"`) {
		t.Errorf("side: %s %s", got[2].Status, got[2].Detail)
	}
}

func TestLoad_TellsWhatIsWrongWithAPipelineAndGoesOn(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		sql    []string
		status pipeline.Status
		detail []string
	}{
		"nothing":          {nil, pipeline.Active, nil},
		"table renamed":    {[]string{"ALTER TABLE docs RENAME TO renamed"}, pipeline.Active, nil},
		"table moved":      {[]string{"CREATE SCHEMA s", "ALTER TABLE docs SET SCHEMA s"}, pipeline.Active, nil},
		"table dropped":    {[]string{"DROP TABLE docs"}, pipeline.Missing, []string{"was dropped"}},
		"table made again": {[]string{"DROP TABLE docs", plainDocs}, pipeline.Missing, []string{"was dropped"}},
		"column renamed":   {[]string{"ALTER TABLE docs RENAME title TO heading"}, pipeline.Active, nil},
		"column dropped": {
			[]string{"ALTER TABLE docs DROP title"},
			pipeline.Misconfigured,
			[]string{`no column "title" any more`},
		},
		"key changed": {
			[]string{"ALTER TABLE docs DROP CONSTRAINT docs_pkey, ADD PRIMARY KEY (id, n)"},
			pipeline.Misconfigured,
			[]string{"the key of", `"id", "n"`, "init"},
		},
		"key dropped": {
			[]string{"ALTER TABLE docs DROP CONSTRAINT docs_pkey"},
			pipeline.Misconfigured,
			[]string{"no primary key"},
		},
		"key renamed": {[]string{"ALTER TABLE docs RENAME id TO no"}, pipeline.Active, nil},
		"destination dropped": {
			[]string{"ALTER TABLE docs DROP embedding"},
			pipeline.Misconfigured,
			[]string{"is gone", "init"},
		},
		"destination widened": {
			[]string{"ALTER TABLE docs ALTER embedding TYPE vector(4)"},
			pipeline.Misconfigured,
			[]string{"3 wide", "4"},
		},
		"unpublished": {
			[]string{"ALTER PUBLICATION embedsidecar DROP TABLE docs"},
			pipeline.Unpublished,
			[]string{"not in the publication"},
		},
		"identity": {
			[]string{"ALTER TABLE docs REPLICA IDENTITY NOTHING"},
			pipeline.Misconfigured,
			[]string{"NOTHING"},
		},
		"function dropped": {[]string{"UPDATE embedsidecar.pipeline SET text_expression = 'public.gone(title)' WHERE name = 'docs'"}, pipeline.Misconfigured, []string{"gone"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBase(t, plainDocs, "CREATE TABLE other (id int PRIMARY KEY, title text, body text)")
			other := docs()
			other.Name, other.Table = "other", "other"
			o := b.options(b.SlotName(), docs(), other)
			b.init(o)
			for _, sql := range tt.sql {
				b.MustExec(sql)
			}
			got, err := resolve.Load(t.Context(), b.pool, o.Slot)
			if err != nil {
				t.Fatal(err)
			}
			if got[0].Status != tt.status || got[0].ID == 0 || got[0].OID == 0 || got[0].Name != "docs" {
				t.Errorf("got %s (%s), want %s", got[0].Status, got[0].Detail, tt.status)
			}
			for _, word := range tt.detail {
				if !strings.Contains(got[0].Detail, word) {
					t.Errorf("detail %q lacks %q", got[0].Detail, word)
				}
			}
			if got[1].Status != pipeline.Active {
				t.Errorf("the other pipeline: %s (%s)", got[1].Status, got[1].Detail)
			}
		})
	}
}

func TestLoad_EmbeddingTableStaysWhenTheSourceMoves(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs, "CREATE SCHEMA s")
	o := b.options(b.SlotName(), side())
	b.init(o)
	b.MustExec("ALTER TABLE docs SET SCHEMA s")
	got, err := resolve.Load(t.Context(), b.pool, o.Slot)
	if err != nil {
		t.Fatal(err)
	}
	if p := got[0]; p.Status != pipeline.Active || p.Source() != `"s"."docs"` || p.Into() != `"public"."docs_embedding"` {
		t.Errorf("got %s into %s: %s (%s)", p.Source(), p.Into(), p.Status, p.Detail)
	}
}

func TestLoad_ADatabaseThatIsNotSetUp(t *testing.T) {
	t.Parallel()
	b := newBase(t)
	_, err := resolve.Load(t.Context(), b.pool, "s")
	wantError[*refusal.NotSetUpError](t, err, "init")
	wantError[*refusal.NotSetUpError](t, catalog.CheckVersion(t.Context(), b.pool), "init")
	b.init(b.options(b.SlotName()))
	if err := catalog.CheckVersion(t.Context(), b.pool); err != nil {
		t.Error(err)
	}
	if got, err := resolve.Load(t.Context(), b.pool, "s"); err != nil || len(got) != 0 {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestRepublish_MakesAMissingPublicationAgain(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs, "CREATE TABLE gone (id int PRIMARY KEY, title text, body text)")
	gone := docs()
	gone.Name, gone.Table = "gone", "gone"
	o := b.options(b.SlotName(), docs(), side(), gone)
	b.init(o)
	b.MustExec("DROP TABLE gone")
	if err := publish.Republish(t.Context(), b.pool, o.Slot); err != nil { // nothing to do
		t.Fatal(err)
	}
	b.MustExec("DROP PUBLICATION embedsidecar")
	role := b.RunRole()
	err := publish.Republish(t.Context(), b.connect(role), o.Slot)
	wantError[*refusal.PermissionError](t, err, "CREATE PUBLICATION")
	if err := publish.Republish(t.Context(), b.pool, o.Slot); err != nil {
		t.Fatal(err)
	}
	got, err := resolve.Load(t.Context(), b.pool, o.Slot)
	if err != nil || got[0].Status != pipeline.Active || got[1].Status != pipeline.Active ||
		got[2].Status != pipeline.Missing {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestInit_MakesAMissingPublicationAgainForAllPipelines(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs, "CREATE TABLE other (id int PRIMARY KEY, title text, body text)")
	other := docs()
	other.Name, other.Table = "other", "other"
	o := b.options(b.SlotName(), docs(), other)
	b.init(o)
	for _, specs := range [][]pipeline.Spec{nil, {docs()}} { // what is configured now
		b.MustExec("DROP PUBLICATION embedsidecar")
		b.init(b.options(o.Slot, specs...))
		got, err := resolve.Load(t.Context(), b.pool, o.Slot)
		if err != nil || len(got) != 2 || got[0].Status != pipeline.Active || got[1].Status != pipeline.Active {
			t.Errorf("with %d pipelines configured: %v, %v", len(specs), got, err)
		}
	}
	// Without a table there is nothing to publish, and nothing to stream.
	b.MustExec("DROP PUBLICATION embedsidecar; DROP TABLE docs; DROP TABLE other")
	if r := b.init(b.options(o.Slot)); len(r.Steps) != 0 {
		t.Errorf("made %q", whats(r))
	}
}

// TestP10_ATableIsPublishedWithItsSchema: a table counts as published if its schema is, as on the server, for each look
// at the catalogue and for who loads the pipelines. A partition's own filter counts, whatever the table above it has.
func TestP10_ATableIsPublishedWithItsSchema(t *testing.T) {
	t.Parallel()
	b := newBase(t, makeDocs)
	o := b.options(b.SlotName(), docs())
	b.init(o)
	b.MustExecSuper("CREATE SCHEMA elsewhere; CREATE TABLE elsewhere.whole (LIKE docs) PARTITION BY LIST (id)")
	for _, step := range []struct {
		sql  string
		want bool
	}{
		{"ALTER PUBLICATION ours ADD TABLES IN SCHEMA public", true},
		{"ALTER PUBLICATION ours DROP TABLE docs", true},
		{"ALTER PUBLICATION ours DROP TABLES IN SCHEMA public", false},
		{"ALTER PUBLICATION ours ADD TABLES IN SCHEMA elsewhere", false},
		{"ALTER TABLE elsewhere.whole ATTACH PARTITION docs DEFAULT", true},
		{"ALTER TABLE elsewhere.whole DETACH PARTITION docs", false},
		{"ALTER PUBLICATION ours ADD TABLE docs", true},
		{"ALTER TABLE elsewhere.whole ATTACH PARTITION docs DEFAULT", true},
		{"ALTER PUBLICATION ours SET TABLE elsewhere.whole", true},
		{"ALTER PUBLICATION ours ADD TABLE docs WHERE (id > 3)", false},
		{"ALTER PUBLICATION ours SET TABLE elsewhere.whole, docs", true},
	} {
		b.MustExecSuper(strings.Replace(step.sql, "ours", o.Publication, 1))
		published := func(r pgx.CollectableRow) (is bool, err error) {
			targets := make([]any, len(r.FieldDescriptions())) // nil: not read
			at := slices.IndexFunc(r.FieldDescriptions(), func(f pgconn.FieldDescription) bool { return f.Name == "published" })
			targets[at] = &is
			return is, r.Scan(targets...)
		}
		for query, of := range map[string]string{"pipeline_catalogue": "pipeline", "stored_pipelines": "only"} {
			got, err := database.Collect(t.Context(), b.pool, query, published,
				pgx.StrictNamedArgs{"slot": o.Slot, of: nil})
			if err != nil || !slices.Equal(got, []bool{step.want}) {
				t.Errorf("%s: %s: published %t (%v), want %t", step.sql, query, got, err, step.want)
			}
		}
	}
}
