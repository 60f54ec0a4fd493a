package main

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/failpoint"
	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
	"github.com/embedsidecar/embedsidecar/testenv"
)

const pgaiAnswers = `SELECT md5(string_agg(v::text, '' ORDER BY v::text)) FROM blog_embedding AS v;
	SELECT md5(string_agg(v::text, '' ORDER BY v::text)) FROM notes_embedding AS v`

// TestImport_AKilledImportIsEndedByTheNext: the command is killed repeatedly, each time a little later, and then runs
// to its end: views answer as before, nothing is embedded again, and nothing of pgai is left.
func TestImport_AKilledImportIsEndedByTheNext(t *testing.T) {
	t.Parallel()
	s := importing(t)
	s.db.MustExec("SELECT ai.drop_vectorizer('by_pattern', true)")
	before := s.answers(pgaiAnswers)
	save := filepath.Join(t.TempDir(), "pgai.yaml")
	run := []string{"import", "pgai", "--model", "fake", "--save", save}
	left := func() bool { return testenv.Value[bool](s.db, "SELECT to_regnamespace('ai') IS NOT NULL") }
	kills := 0
	for began := time.Now(); kills < 40; kills++ {
		c := s.command(run...)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = c.Wait()
		}()
		limit := time.NewTimer(time.Duration(50+rand.IntN(100+100*kills)) * time.Millisecond)
		select {
		case <-ended:
		case <-limit.C:
			_ = c.Process.Kill()
			<-ended
		}
		if !left() || time.Since(began) > waitTimeout/2 {
			break // everything is imported, or it took too long
		}
	}
	if left() {
		s.run(0, run...)
	}
	t.Logf("%d kills", kills)
	s.run(0, "run", "--once", "--config", save)
	if n := s.embedded(); n != 0 {
		t.Errorf("%d rows were embedded", n)
	}
	if after := s.answers(pgaiAnswers); after != before {
		t.Error("views answer otherwise than before")
	}
	s.run(0, "verify", "--deep", "20", "--config", save)
	if n := testenv.Value[int64](s.db, "SELECT count(*) FROM embedsidecar.pipelines"); n != 3 {
		t.Errorf("%d pipelines, want 3", n)
	}
	if left() {
		t.Error("the schema of pgai is left")
	}
}

// TestImport_NothingOfAnotherProgramEndsBeforeItsPipelineWorks: an import that is killed between the two starts before
// both again, and no pipeline stays paused whose vectorizer is gone.
func TestImport_NothingOfAnotherProgramEndsBeforeItsPipelineWorks(t *testing.T) {
	t.Parallel()
	s := importing(t)
	s.db.MustExec("SELECT ai.drop_vectorizer('by_pattern', true)")
	save := filepath.Join(t.TempDir(), "pgai.yaml")
	run := []string{"import", "pgai", "--model", "fake", "--save", save}
	for hit := 1; hit <= 3; hit++ {
		s.set(failpoint.Env + "=adopt/before-resume=kill@" + strconv.Itoa(min(hit, 2)))
		s.run(-1, run...)
	}
	s.set(failpoint.Env + "=")
	s.run(0, run...)
	s.run(0, "run", "--once", "--config", save)
	if testenv.Value[bool](s.db, "SELECT to_regnamespace('ai') IS NOT NULL") {
		t.Error("the schema of pgai is left")
	}
}

// TestImport_AnOpenAIShapedVectorizerKeepsItsProvider: a vectorizer with a provider's address keeps the provider and
// its key variable. Only the sample is embedded.
func TestImport_AnOpenAIShapedVectorizerKeepsItsProvider(t *testing.T) {
	t.Parallel()
	s := importing(t)
	s.withRemote()
	var texts, refused atomic.Int64
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked struct{ Input []string }
		if r.Header.Get("Authorization") != "Bearer the-key" || json.NewDecoder(r.Body).Decode(&asked) != nil {
			refused.Add(1)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		type one struct {
			Object    string    `json:"object"`
			Index     int       `json:"index"`
			Embedding []float32 `json:"embedding"`
		}
		data := make([]one, len(asked.Input))
		for i, text := range asked.Input {
			data[i] = one{"embedding", i, vector.Of(text, 8)}
		}
		texts.Add(int64(len(data)))
		_ = json.NewEncoder(w).Encode(map[string]any{
			"object": "list", "model": "m", "data": data,
			"usage": map[string]int{"prompt_tokens": 1, "total_tokens": 1},
		})
	}))
	t.Cleanup(provider.Close)
	s.set("OPENAI_API_KEY=the-key")
	s.db.MustExec(`SELECT ai.drop_vectorizer('by_pattern', true)`)
	s.db.MustExec(`UPDATE ai.vectorizer SET config = jsonb_set(jsonb_set(config, '{embedding,base_url}', to_jsonb($1::text)),
		'{embedding,implementation}', '"openai"')`, provider.URL+"/v1")
	before := s.answers(pgaiAnswers)
	save := filepath.Join(t.TempDir(), "pgai.yaml")
	s.run(0, "import", "pgai", "--save", save)
	file, err := os.ReadFile(save)
	if err != nil {
		t.Fatal(err)
	}
	s.has(string(file), provider.URL+"/v1", "OPENAI_API_KEY", "dialect: openai")
	sample := texts.Load()
	if sample == 0 {
		t.Error("no sample was embedded")
	}
	s.run(0, "run", "--once", "--config", save)
	if n := s.embedded(); n != 0 {
		t.Errorf("%d rows were embedded", n)
	}
	if after := s.answers(pgaiAnswers); after != before {
		t.Error("views answer otherwise than before")
	}
	s.db.MustExec("UPDATE notes SET body = 'edited' WHERE id = 7")
	s.run(0, "run", "--once", "--config", save)
	got := testenv.Value[string](s.db, "SELECT embedding::text FROM notes_embedding WHERE id = 7")
	if got != vectorOf("edited") {
		t.Errorf("after an edit: %s", got)
	}
	t.Logf("%d texts for the sample, %d in all, %d refused", sample, texts.Load(), refused.Load())
}

// withRemote makes the plugin remote available, whose models report their dimensions.
func (s *stage) withRemote() {
	s.t.Helper()
	folder := s.t.TempDir()
	builtPlugin(s.t, folder, "remote")
	s.set("EMBEDSIDECAR_PLUGIN_DIR=" + folder)
	s.set("EMBEDSIDECAR_PLUGIN_DIMS=")
}

// TestTrust_AnImportDoesWhatTrustedRowsSay: registry rows name an address and the variable with its API key. An
// untrusted role that writes them would get the secrets and texts of the importing user. A dry run is no exception.
func TestTrust_AnImportDoesWhatTrustedRowsSay(t *testing.T) {
	t.Parallel()
	s := importing(t)
	s.withRemote()
	s.set("SECRET=not-theirs")
	var asked atomic.Int64
	his := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(his.Close)
	writer, group := s.db.Role(""), s.db.Role("")
	for _, grant := range []string{
		"INSERT ON ai.vectorizer TO " + writer, "UPDATE (config) ON ai.vectorizer TO " + writer,
		"UPDATE ON ai.vectorizer TO " + group + "; GRANT " + group + " TO " + writer,
		"INSERT, UPDATE ON ai.vectorizer TO PUBLIC",
	} {
		s.db.MustExecSuper("GRANT " + grant)
		s.db.MustExecSuper(`UPDATE ai.vectorizer SET config = jsonb_set(config, '{embedding}', jsonb_build_object(
			'implementation', 'openai', 'model', 'm', 'dimensions', 8, 'base_url', $1::text, 'api_key_name', 'SECRET'))`,
			his.URL+"/v1")
		_, stderr := s.run(exitUsage, "import", "pgai", "--dry-run")
		s.has(stderr, "table ai.vectorizer may be written by role", "--trust-owner")
		s.db.MustExecSuper("REVOKE ALL ON ai.vectorizer FROM PUBLIC, " + writer + ", " + group +
			"; REVOKE UPDATE (config) ON ai.vectorizer FROM " + writer)
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("the address of the rows was asked %d times", n)
	}
	s.db.MustExecSuper("GRANT INSERT, UPDATE ON ai.vectorizer TO " + testenv.Owner)
	s.run(exitInternal, "import", "pgai", "--dry-run") // the sample cannot be embedded
	if asked.Load() == 0 {
		t.Error("rows that nobody else may write are not followed")
	}
}
