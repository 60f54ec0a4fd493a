package docs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestJoins does what joins.md shows, and then the second configuration in the place of the first.
func TestJoins(t *testing.T) {
	t.Parallel()
	r := newReader(t)
	paper := read(t, "joins.md")
	r.db.MustExec(blocks(paper, "sql")[0])
	embedded := func(want string) {
		t.Helper()
		if n := testenv.Value[string](r.db, `SELECT string_agg(row_key, ',' ORDER BY row_key) FROM embedsidecar.history
			WHERE outcome = 'embedded'`); n != want {
			t.Errorf("rows %s were embedded, want %s", n, want)
		}
	}
	configure := func(yaml string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(r.dir, "embedsidecar.yaml"), []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	shown := blocks(paper, "yaml")
	configure(shown[0])
	r.sh(blocks(paper, "sh")[0])
	r.vars = append(r.vars, "EMBEDSIDECAR_CONFIG=embedsidecar.yaml")
	embedded("1,1,2")
	r.db.MustExec(`CREATE TABLE cities (name text PRIMARY KEY, country text);
		INSERT INTO cities VALUES ('London', 'England'), ('Erlangen', 'Franconia'); CREATE INDEX ON authors (city)`)
	configure(shown[1])
	r.sh("embedsidecar init && embedsidecar run --once")
	embedded("1,1,1,2,2")
	r.db.MustExec(`UPDATE cities SET country = 'Germany' WHERE name = 'Erlangen'`)
	r.sh("embedsidecar run --once && embedsidecar verify")
	embedded("1,1,1,2,2,2")
	r.sh("embedsidecar uninstall public.articles --yes")
	if n := testenv.Value[int](r.db, "SELECT count(*)::int FROM pg_publication_rel"); n != 0 {
		t.Errorf("%d tables are still published", n)
	}
}
