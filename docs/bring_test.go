package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

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
