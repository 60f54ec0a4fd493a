package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestChangeTheModel follows change-the-model.md: every command and statement of it is run in its order, and then those
// by SQL.
func TestChangeTheModel(t *testing.T) {
	t.Parallel()
	paper := strings.ReplaceAll(read(t, "change-the-model.md"), "new-model", "fake") // as the fake calls its own
	r := newReader(t)
	plugins := filepath.Join(r.dir, "plugins")
	if err := os.Mkdir(plugins, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"embedsidecar-fake", "embedsidecar-fake-dims12"} { // the second is another model
		if err := os.Link(filepath.Join(programs, "bin", "plugins", "embedsidecar-fake"), filepath.Join(plugins, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(r.dir, "embedsidecar.yaml"), []byte(`
models:
  - {name: fake, plugin: fake-dims12}
pipelines:
  - {name: docs, table: public.docs, columns: [title, body], into: {table: docs_embedding}}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	r.vars = append(r.vars, "EMBEDSIDECAR_PLUGIN_DIR="+plugins, "EMBEDSIDECAR_CONFIG=embedsidecar.yaml")
	r.sh("embedsidecar init")
	r.start("embedsidecar run", "streaming", "slot")
	complete := func(role string) {
		t.Helper()
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			said := testenv.Values[string](r.db, `SELECT concat_ws(' ', role, lacks, problem, reason)
				FROM embedsidecar.generations WHERE role <> 'serves'`)
			vectors := testenv.Value[int64](r.db, `SELECT count(*) FROM docs_embedding`)
			return vectors == 60 && len(said) == 1 && strings.HasPrefix(said[0], role+" {} "), fmt.Sprint(vectors, said)
		})
	}
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		n := testenv.Value[int64](r.db, `SELECT count(*) FROM docs_embedding`)
		return n == 60, fmt.Sprint(n)
	})
	for _, script := range blocks(paper, "sh") {
		for line := range strings.Lines(script) {
			line = strings.TrimSpace(line)
			switch {
			case strings.Contains(line, "switch"):
				complete("next")
			case strings.Contains(line, "rollback"):
				complete("previous")
			case strings.Contains(line, "compare"):
				complete("next")
			}
			r.sh(line)
		}
	}
	if got := testenv.Value[string](r.db, `SELECT plugin FROM embedsidecar.pipelines`); got != "fake-dims12" {
		t.Errorf("%s serves in the end", got)
	}

	// Back by SQL, as the page goes there.
	r.sh("embedsidecar model change docs --to-plugin fake")
	complete("next")
	r.sh("embedsidecar model switch docs && embedsidecar model drop-old docs")
	for _, script := range blocks(paper, "sql") {
		for statement := range strings.SplitAfterSeq(script, ";\n") {
			if statement = strings.TrimSpace(statement); statement == "" {
				continue
			}
			switch {
			case strings.Contains(statement, "model_switch"):
				complete("next")
			case strings.Contains(statement, "model_rollback"):
				complete("previous")
			case strings.Contains(statement, "check_model"):
				testenv.Values[int64](r.db, strings.Replace(statement, "$1",
					"(SELECT embedding FROM docs_embedding LIMIT 1)", 1))
				continue
			}
			r.db.MustExec(statement)
		}
	}
}
