package docs

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
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
	r.sh("embedsidecar init && embedsidecar token create oncall --role operator --tokens-file tokens > token")
	listens, _ := r.start("embedsidecar run --admin-listen 127.0.0.1:0 --tokens-file tokens", "administrators are answered",
		"address")
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

	// Over HTTP, from where SQL has come back to.
	shown := regexp.MustCompile("`POST (/api/v1/pipelines/docs/model)(/change)` with\\s`([^`]+)`, then\\s`(/switch)`, `(/rollback)` and `(/drop-old)`; `GET\\s([^`]+)`").
		FindStringSubmatch(paper)
	if shown == nil {
		t.Fatal("the page shows no requests")
	}
	token := strings.TrimSpace(r.sh("cat token"))
	base := "http://" + listens + shown[1]
	for _, step := range []struct{ at, body, role string }{
		{shown[2], shown[3], "next"}, {shown[4], "", "previous"}, {shown[5], "", "next"}, {shown[4], "", "previous"},
	} {
		if status, said := r.ask(http.MethodPost, base+step.at, token, step.body); status != http.StatusOK {
			t.Fatalf("%s: %d %s", step.at, status, said)
		}
		complete(step.role)
	}
	r.has(r.answers(http.StatusOK, http.MethodGet, "http://"+listens+shown[7], token, ""), "previous")
	r.answers(http.StatusOK, http.MethodPost, base+shown[6], token, "")
}
