package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pgvector/pgvector-go"

	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestBringYourVectors does what bring-your-vectors.md shows with vectors that were made before.
func TestBringYourVectors(t *testing.T) {
	t.Parallel()
	r := newReader(t)
	const paper = "bring-your-vectors.md"
	r.sh("embedsidecar run --once --table public.docs --columns title,body --into embedding")
	r.sh("embedsidecar uninstall --yes")
	r.db.MustExec(`COMMENT ON COLUMN docs.embedding IS NULL;
		ALTER TABLE docs ADD updated_at timestamptz DEFAULT now(), ADD embedded_at timestamptz DEFAULT now();
		UPDATE docs SET body = 'changed', updated_at = now() + interval '1 s' WHERE id = 1`)
	yaml := blocks(read(t, paper), "yaml")[0]
	if err := os.WriteFile(filepath.Join(r.dir, "embedsidecar.yaml"), []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	shown := blocks(read(t, paper), "sh")
	if len(shown) != 2 {
		t.Fatalf("%s has %d blocks of sh", paper, len(shown))
	}
	r.sh(shown[0])
	for line := range strings.Lines(shown[1]) {
		r.sh(line)
	}
	if n := testenv.Value[int](r.db, "SELECT count(*)::int FROM embedsidecar.history WHERE outcome = 'embedded'"); n != 1 {
		t.Errorf("%d rows were embedded, want the one that was changed", n)
	}
}

// TestFromPgai does what from-pgai.md shows, with a schema that pgai has made.
func TestFromPgai(t *testing.T) {
	t.Parallel()
	r := newReader(t)
	r.db.MustExec("CREATE EXTENSION IF NOT EXISTS vector; BEGIN; " + testenv.Pgai(t) + "; COMMIT")
	r.db.MustExec(`SELECT ai.create_vectorizer('docs'::regclass, loading => ai.loading_column('title'),
		embedding => ai.embedding_openai('m', 64), chunking => ai.chunking_none(), scheduling => ai.scheduling_none(),
		indexing => ai.indexing_none(), grant_to => NULL); DELETE FROM ai._vectorizer_q_1`)
	for i := range 60 {
		title := fmt.Sprint("Password ", i+1)
		r.db.MustExec(`INSERT INTO docs_embedding_store (id, chunk_seq, chunk, embedding)
			VALUES ($1, 0, $2, $3::text::vector)`,
			i+1, title, pgvector.NewVector(vector.Of(title, 64)).String())
	}
	// A model that is here stands in for the one of OpenAI.
	here := func(script string) string {
		return r.sh(strings.ReplaceAll(script, "import pgai", "import pgai --model fake"))
	}
	shown := blocks(read(t, "from-pgai.md"), "sh")
	if len(shown) != 2 {
		t.Fatalf("from-pgai.md has %d blocks of sh", len(shown))
	}
	r.has(here(shown[0]), "would be imported")
	for line := range strings.Lines(shown[1]) {
		here(line)
	}
	if n := testenv.Value[int](r.db, "SELECT count(*)::int FROM docs_embedding WHERE chunk LIKE 'Password%'"); n != 60 {
		t.Errorf("the view shows %d rows, want 60", n)
	}
	if n := testenv.Value[int](r.db, "SELECT count(*)::int FROM pg_namespace WHERE nspname = 'ai'"); n != 0 {
		t.Error("the schema of pgai is left")
	}
}
