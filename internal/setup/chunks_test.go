package setup_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// chunked is side with chunks.
func chunked() pipeline.Spec {
	s := side()
	s.Columns = []string{"body"}
	s.Chunking = pipeline.Chunking{Strategy: pipeline.ChunkMarkdown, Tokens: 256, Overlap: 32, Context: "title"}
	return s
}

func TestInit_MakesTablesOfChunks(t *testing.T) {
	t.Parallel()
	b := newBase(t, makeDocs)
	slot := b.SlotName()
	r := b.init(b.options(slot, chunked()))
	p := r.Pipelines[0]
	if !p.Chunked || !p.HashIndexed || p.Chunking != chunked().Chunking ||
		!slices.Equal(p.Watched, []string{"title", "body"}) {
		t.Errorf("confirmed as %+v", p)
	}
	columns := testenv.Values[string](b.Database,
		`SELECT attname::text FROM pg_attribute WHERE attrelid = 'public.docs_embedding'::regclass AND attnum > 0 ORDER BY attnum`)
	want := []string{
		"id", "chunk_no", "generation", "text_hash", "embedded_at", "embedding", "start_byte", "end_byte",
		"context", "chunk_text",
	}
	if !slices.Equal(columns, want) {
		t.Errorf("columns %v, want %v", columns, want)
	}
	if again := b.init(b.options(slot, chunked())); len(again.Steps) != 0 {
		t.Errorf("a second init did %v", whats(again))
	}
}

func TestInit_MakesATableOfWholeTextsOneOfChunksAndBack(t *testing.T) {
	t.Parallel()
	b := newBase(t, makeDocs)
	slot := b.SlotName()
	whole := side()
	whole.Columns = []string{"body"}
	before := b.init(b.options(slot, whole)).Pipelines[0]
	if before.Chunked {
		t.Error("a table of whole texts was made with columns for chunks")
	}
	r := b.init(b.options(slot, chunked()))
	if got := whats(r); len(got) != 2 || got[0] != `columns and index of chunks in "public"."docs_embedding"` ||
		!strings.Contains(got[1], "chunking") || !strings.Contains(got[1], "with a scan") {
		t.Errorf("steps %q", got)
	}
	p := r.Pipelines[0]
	if !p.Chunked || !p.HashIndexed || p.Generation != before.Generation+1 {
		t.Errorf("confirmed as %+v", p)
	}
	other := chunked()
	other.Chunking.Tokens = 128
	if got := b.init(b.options(slot, other)).Pipelines[0]; got.Generation != p.Generation+1 {
		t.Errorf("other settings: generation %d, want %d", got.Generation, p.Generation+1)
	}
	if got := b.init(b.options(slot, whole)).Pipelines[0]; !got.Chunked || got.Chunking.On() {
		t.Errorf("back to whole texts: %+v, want a table that still has the columns", got)
	}
}

func TestInit_RefusesChunks(t *testing.T) {
	t.Parallel()
	b := newBase(t, makeDocs,
		"CREATE TABLE public.foreign_embedding (id bigint, chunk_no int NOT NULL DEFAULT 0, generation int NOT NULL, text_hash bytea NOT NULL, embedded_at timestamptz NOT NULL, embedding public.vector(3) NOT NULL, PRIMARY KEY (id, chunk_no))",
		"CREATE TABLE public.keyed (start_byte int PRIMARY KEY, body text)")
	slot := b.SlotName()
	change := func(f func(s *pipeline.Spec)) pipeline.Spec {
		s := chunked()
		f(&s)
		return s
	}
	for name, tt := range map[string]struct {
		spec  pipeline.Spec
		words []string
	}{
		"a column": {
			change(func(s *pipeline.Spec) { s.IntoColumn, s.IntoTable = "embedding", "" }),
			[]string{"chunks need an embedding table"},
		},
		"no such strategy": {
			change(func(s *pipeline.Spec) { s.Chunking.Strategy = "pages" }),
			[]string{`no chunking strategy "pages"`},
		},
		"no strategy": {change(func(s *pipeline.Spec) { s.Chunking.Strategy = "" }), []string{"no strategy"}},
		"few tokens":  {change(func(s *pipeline.Spec) { s.Chunking.Tokens = 3 }), []string{"3 tokens", "16 to 8192"}},
		"much overlap": {
			change(func(s *pipeline.Spec) { s.Chunking.Overlap = 129 }),
			[]string{"129 tokens", "half of the 256"},
		},
		"no such context": {change(func(s *pipeline.Spec) { s.Chunking.Context = "titel" }), []string{
			"chunking context",
			"titel",
		}},
		"no text": {
			change(func(s *pipeline.Spec) { s.Chunking.Context = "n" }),
			[]string{"chunking context is of type integer, want text"},
		},
		"a sub-select": {
			change(func(s *pipeline.Spec) { s.Chunking.Context = "(SELECT title)" }),
			[]string{"chunking context has a sub-select"},
		},
		"two expressions": {
			change(func(s *pipeline.Spec) { s.Chunking.Context = "title), (body" }),
			[]string{"chunking context"},
		},
		"somebody's table": {
			change(func(s *pipeline.Spec) { s.IntoTable = "foreign_embedding" }),
			[]string{"no columns for chunks", `ADD COLUMN IF NOT EXISTS "chunk_text" text`, "CREATE INDEX ON"},
		},
		"a key of that name": {
			change(func(s *pipeline.Spec) { s.Table, s.Chunking.Context = "keyed", "" }),
			[]string{`"start_byte"`, "needs for itself"},
		},
	} {
		_, err := setup.Init(t.Context(), b.options(slot, tt.spec))
		t.Run(name, func(t *testing.T) { wantError[*refusal.ConfigError](t, err, tt.words...) })
	}
}

func TestLoad_ATableThatLostItsColumnsWaitsForInit(t *testing.T) {
	t.Parallel()
	b := newBase(t, makeDocs)
	slot := b.SlotName()
	b.init(b.options(slot, chunked()))
	b.MustExec(`ALTER TABLE public.docs_embedding DROP COLUMN chunk_text`)
	loaded, err := resolve.Load(t.Context(), b.pool, slot)
	if err != nil {
		t.Fatal(err)
	}
	if p := loaded[0]; p.Status != pipeline.Misconfigured || !strings.Contains(p.Detail, "no columns for chunks") ||
		!strings.Contains(p.Detail, "embedsidecar init") {
		t.Errorf("loaded as %s: %s", p.Status, p.Detail)
	}
	if p := b.init(b.options(slot, chunked())).Pipelines[0]; p.Status != pipeline.Active || !p.Chunked {
		t.Errorf("after init: %+v", p)
	}
}
