package setup_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/internal/setup/uninstall"
	"github.com/embedsidecar/embedsidecar/internal/status/check"
	"github.com/embedsidecar/embedsidecar/testenv"
)

const sideRow = "INSERT INTO docs_embedding VALUES (1, 0, 1, '', now(), '[1,2,3]')"

func (b *base) uninstall(o uninstall.Options) uninstall.Removed {
	b.t.Helper()
	o.Pool = b.pool
	done, err := uninstall.All(b.t.Context(), o)
	if err != nil {
		b.t.Fatal(err)
	}
	return done
}

func TestInit_TakesUpTheEmbeddingTableThatUninstallLeft(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs, "CREATE TABLE others (id bigint PRIMARY KEY, title text, body text)")
	o := b.options(b.SlotName(), side())
	b.init(o)
	b.MustExec(sideRow)
	if diff := cmp.Diff([]string{`"public"."docs_embedding"`}, b.uninstall(uninstall.Options{}).Kept); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}

	// Vectors of another model or another table do not match.
	other := b.options(o.Slot, side())
	other.Descriptions["side"] = embed.Description{Fingerprint: "f2", Dims: 3}
	_, err := setup.Init(t.Context(), other)
	wantError[*refusal.ConfigError](t, err, "made by another model (f1)", "--overwrite")
	elsewhere := side()
	elsewhere.Table = "others"
	_, err = setup.Init(t.Context(), b.options(o.Slot, elsewhere))
	wantError[*refusal.ConfigError](t, err, `of the rows of "public"."docs"`, "--overwrite")

	r := b.init(o)
	if len(r.Warnings) != 1 || len(r.Pipelines) != 1 {
		t.Errorf("warnings %q, pipelines %v", r.Warnings, r.Pipelines)
	}
	if n := testenv.Value[int](b.Database, "SELECT count(*)::int FROM embedsidecar.scan WHERE phase = 'waiting'"); n != 1 {
		t.Errorf("%d scans are asked for, want 1: every vector is to be made anew", n)
	}
	if again := b.init(o); len(again.Steps)+len(again.Warnings) != 0 {
		t.Errorf("then init made %q, warned %q", whats(again), again.Warnings)
	}

	// If another model takes it over, the comment on the table changes.
	b.uninstall(uninstall.Options{})
	other.Specs[0].Overwrite = true
	b.init(other)
	b.uninstall(uninstall.Options{})
	_, err = setup.Init(t.Context(), o)
	wantError[*refusal.ConfigError](t, err, "made by another model (f2)")
}

func TestInit_DoesNotTakeUpATableWithoutItsMark(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	o := b.options(b.SlotName(), side())
	b.init(o)
	b.MustExec(sideRow)
	b.uninstall(uninstall.Options{})
	b.MustExec("COMMENT ON TABLE docs_embedding IS 'mine now'")
	_, err := setup.Init(t.Context(), o)
	wantError[*refusal.ConfigError](t, err, "did not write", "--overwrite")
	if _, err := uninstall.All(t.Context(), uninstall.Options{Pool: b.pool, Embeddings: true}); err == nil {
		t.Error("uninstall found something to take away")
	}
}

func TestUninstall_TakesAwayWhatAnEarlierOneLeft(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		b := baseOn(t, testenv.DB(t, testenv.Empty(), testenv.Major(major)), plainDocs,
			`CREATE TABLE "odd "" name" (id int PRIMARY KEY, title text, body text)`)
		before := b.catalogue()
		odd := docs()
		odd.Name, odd.Table = "odd", `odd " name`
		o := b.options(b.SlotName(), docs(), side(), odd)
		b.init(o)
		b.MustExec(sideRow)
		kept := []string{`"public"."docs"."embedding"`, `"public"."docs_embedding"`, `"public"."odd "" name"."embedding"`}
		if diff := cmp.Diff(kept, b.uninstall(uninstall.Options{}).Kept); diff != "" {
			t.Errorf("kept (-want +got):\n%s", diff)
		}
		_, err := uninstall.All(t.Context(), uninstall.Options{Pool: b.pool})
		wantError[*refusal.NotSetUpError](t, err)

		b.MustExec("CREATE TABLE copy (LIKE docs INCLUDING COMMENTS)") // its column has the comment, but is not ours
		done := b.uninstall(uninstall.Options{Embeddings: true})
		want := []string{
			`ALTER TABLE "public"."docs" DROP COLUMN "embedding";`, `DROP TABLE "public"."docs_embedding";`,
			`ALTER TABLE "public"."odd "" name" DROP COLUMN "embedding";`,
		}
		if diff := cmp.Diff(want, done.SQL); diff != "" {
			t.Errorf("done (-want +got):\n%s", diff)
		}
		b.MustExec("DROP TABLE copy")
		if diff := cmp.Diff(before, b.catalogue()); diff != "" {
			t.Errorf("left (-before +after):\n%s", diff)
		}
	})
}

// TestTrust_AMarkOfAStrangerStopsNoUninstall: any role can give a table of its own the comment of an embedding table.
func TestTrust_AMarkOfAStrangerStopsNoUninstall(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	b.init(b.options(b.SlotName(), side()))
	_, pool := b.tenant()
	b.as(pool, `CREATE TABLE lair.marked (id int)`,
		`COMMENT ON TABLE lair.marked IS '`+catalog.VectorsOf+`"public"."docs" by f'`)
	done := b.uninstall(uninstall.Options{Embeddings: true})
	for _, sql := range done.SQL {
		if strings.Contains(sql, "marked") {
			t.Errorf("done: %s", sql)
		}
	}
	if n := testenv.Value[int](b.Database, `SELECT count(*)::int FROM pg_class WHERE relname IN ('docs_embedding', 'marked')
		OR relnamespace = to_regnamespace('embedsidecar')`); n != 1 {
		t.Errorf("%d tables are left, want the stranger's", n)
	}
}

func TestRemove_TellsHowToDropWhatItHasLeft(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	b.init(b.options(b.SlotName(), docs(), side()))
	o := uninstall.PipelineOptions{Pool: b.pool, Pipeline: "side"}
	done, err := uninstall.Pipeline(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{`"public"."docs_embedding"`}, done.Kept); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
	_, err = uninstall.Pipeline(t.Context(), o)
	wantError[*refusal.ConfigError](t, err, `there is no pipeline "side"`, "there are: docs")
	o.Embedding = true
	_, err = uninstall.Pipeline(t.Context(), o)
	e := caught[*refusal.ConfigError](t, err, `DROP TABLE "public"."docs_embedding";`)
	for _, hint := range e.Hints() {
		if hint == `ALTER TABLE "public"."docs" DROP COLUMN "embedding";` {
			t.Error("the vectors of a pipeline at work are offered, too")
		}
	}
	// The complete uninstall removes the rest.
	if got := b.uninstall(uninstall.Options{Embeddings: true, DryRun: true}).SQL; len(got) != 5 {
		t.Errorf("uninstall would run %q", got)
	}
}

func TestInit_RenamesAPipeline(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	o := b.options(b.SlotName(), docs(), side())
	b.init(o)
	b.MustExec("UPDATE embedsidecar.scan SET phase = 'done', started = requested")
	id := b.init(o).Pipelines[1].ID

	renamed := side()
	renamed.Name = "articles"
	var hints []string
	for _, f := range b.check(b.options(o.Slot, docs(), renamed)) {
		if f.Name == `pipeline "articles"` && f.Status == check.Wrong {
			hints = f.Hint
		}
	}
	if diff := cmp.Diff([]string{`it is set up as "side": embedsidecar init gives it the new name, and embeds nothing again`}, hints); diff != "" {
		t.Errorf("check (-want +got):\n%s", diff)
	}
	r := b.init(b.options(o.Slot, docs(), renamed))
	if diff := cmp.Diff([]string{`changes of pipeline "articles": name (it was "side")`}, whats(r)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if p := r.Pipelines[1]; p.Name != "articles" || p.ID != id || p.Generation != 1 || len(r.Others) != 0 {
		t.Errorf("%+v, others %q", p, r.Others)
	}
	if n := testenv.Value[int](b.Database, "SELECT count(*)::int FROM embedsidecar.scan WHERE phase <> 'done'"); n != 0 {
		t.Error("a new name asks for a scan")
	}

	// While the old name is also configured, it is a second pipeline, and two must not share a destination.
	again := b.options(o.Slot, docs(), side(), renamed)
	again.Specs[1].IntoTable = "elsewhere"
	_, err := setup.Init(t.Context(), again)
	if err != nil {
		t.Errorf("another destination for the old name: %v", err)
	}
	swapped := docs()
	swapped.Name = "side"
	_, err = setup.Init(t.Context(), b.options(o.Slot, swapped))
	wantError[*refusal.ConfigError](t, err, `also that of pipeline "docs"`, "embedsidecar uninstall docs")
	// A pipeline of another slot is not taken over.
	foreign := b.options(o.Slot+"_2", swapped)
	foreign.Specs[0].Name = "new"
	foreign.Descriptions["new"] = foreign.Descriptions["side"]
	_, err = setup.Init(t.Context(), foreign)
	wantError[*refusal.ConfigError](t, err, `also that of pipeline "docs"`, `of slot "`+o.Slot+`"`)
}

// An inheriting table has its own column of that name, and another pipeline may write to it.
func TestRemove_SparesTheVectorsOfTablesThatInherit(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		b := baseOn(t, testenv.DB(t, testenv.Empty(), testenv.Major(major)), plainDocs,
			"CREATE TABLE kid (PRIMARY KEY (id)) INHERITS (docs)", "CREATE TABLE idle () INHERITS (docs)")
		kid := docs()
		kid.Name, kid.Table = "kid", "kid"
		o := b.options(b.SlotName(), docs())
		b.init(o)
		both := b.options(o.Slot, docs(), kid)
		b.init(both)
		b.MustExec("INSERT INTO kid (id, title, embedding) VALUES (1, 'a', '[1,2,3]')")
		done, err := uninstall.Pipeline(t.Context(), uninstall.PipelineOptions{
			Pool: b.pool, Pipeline: "docs",
			Embedding: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := testenv.Value[string](b.Database, "SELECT embedding::text FROM kid"); got != "[1,2,3]" {
			t.Errorf("kid has %s after %q", got, done.SQL)
		}
		if testenv.Value[bool](b.Database,
			"SELECT EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'docs'::regclass AND attname = 'embedding')") {
			t.Errorf("docs has its column still, after %q", done.SQL)
		}

		// A complete uninstall removes all of it, whichever was made first.
		b.uninstall(uninstall.Options{Embeddings: true})
		for _, table := range []string{"kid", "idle"} { // their own columns from then on
			b.MustExec("ALTER TABLE " + table + " DROP COLUMN embedding")
		}
		b.init(b.options(o.Slot, kid))
		b.init(both)
		b.uninstall(uninstall.Options{Embeddings: true})
		if left := testenv.Values[string](b.Database,
			"SELECT attrelid::regclass::text FROM pg_attribute WHERE attname = 'embedding' AND attrelid >= 16384 AND NOT attisdropped"); len(left) != 0 {
			t.Errorf("%q have a column still", left)
		}
	})
}
