//go:build linux

package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxtest"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// reranking writes a configuration whose searches are reranked by a cross-encoder of these files.
func (r *rig) reranking(files map[string]string) (path string) {
	r.t.Helper()
	folder := filepath.Join(r.dir, "cross")
	onnxtest.WriteFolder(r.t, folder, files)
	data, err := os.ReadFile(filepath.Join(r.dir, "pipelines.yaml"))
	if err != nil {
		r.t.Fatal(err)
	}
	var config map[string]any
	if err := json.Unmarshal(data, &config); err != nil {
		r.t.Fatal(err)
	}
	config["models"] = []map[string]any{{"name": "cross", "plugin": "onnx", "path": folder}}
	config["search"] = map[string]any{"rerank": "cross"}
	if data, err = json.Marshal(config); err != nil {
		r.t.Fatal(err)
	}
	path = filepath.Join(r.dir, "reranking.yaml")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		r.t.Fatal(err)
	}
	r.also = append(r.also, "EMBEDSIDECAR_ONNXRUNTIME="+onnxtest.Library(r.t))
	return path
}

// TestSearch_RerankedByEveryDoor: the order of a search by SQL, HTTP and the command line is that of the same
// cross-encoder by plain sums, among 1,000 rows and for either destination.
func TestSearch_RerankedByEveryDoor(t *testing.T) {
	t.Parallel()
	const rows, k, candidates, question = 1000, 4, 50, "small boat 7"
	testenv.InTurn(t, 0, "", func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		db := testenv.DB(t, testenv.Major(major))
		db.MustExec(`CREATE TABLE notes (id int PRIMARY KEY, body text)`)
		db.MustExec(fmt.Sprintf(`CREATE TABLE cards (id int PRIMARY KEY, body text, embedding vector(%d))`, dims))
		for _, table := range []string{"notes", "cards"} {
			db.MustExec(`INSERT INTO `+table+` SELECT i, 'note ' || i || ' of ' || i * i FROM generate_series(1, $1) AS i`, rows)
		}
		r := newRig(t, db, pipeline.Spec{
			Name: "notes", Schema: "public", Table: "notes", Columns: []string{"body"}, IntoTable: "notes_embedding",
		}, pipeline.Spec{Name: "cards", Schema: "public", Table: "cards", Columns: []string{"body"}, IntoColumn: "embedding"})
		m := onnxtest.CrossEncoder(8, 7)
		config := r.reranking(m.Files())
		r.leisurely()
		c := r.start(nil, "run", "--no-init", "--config", config, "--http", "127.0.0.1:0", "--tokens-file", r.tokens())
		url := c.address()
		r.caughtUp()

		role := db.SearcherRole()
		conn, err := pgx.Connect(t.Context(), r.login(role))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close(t.Context()) }()
		for _, name := range []string{"notes", "cards"} {
			db.MustExec(`GRANT SELECT ON ` + name + ` TO ` + role)
			if name == "notes" {
				db.MustExec(`GRANT SELECT ON notes_embedding TO ` + role)
			}
			r.rerankedByHTTP(url, m, name, question, k, candidates)
			if major < 17 {
				if _, err := conn.Exec(t.Context(), `CALL embedsidecar.ask($1, $2, '1 min', rerank => $3)`, name, question,
					candidates); err != nil {
					t.Fatal(err)
				}
			}
			found, err := conn.Query(t.Context(),
				`SELECT row_key FROM embedsidecar.search($1, $2, $3, '1 min', rerank => $4)`, name, question, k, candidates)
			if err != nil {
				t.Fatal(err)
			}
			keys, err := pgx.CollectRows(found, pgx.RowTo[string])
			if err != nil {
				t.Fatalf("%v\n%s", err, c.tail())
			}
			all := r.nearest(url, name, question, candidates)
			if want := byScore(m, question, all)[:k]; !slices.Equal(keys, want) {
				t.Errorf("%s by SQL: %v, want %v", name, keys, want)
			}
			said := r.do(0, "search", "--config", config, "--rerank", fmt.Sprint(candidates), "-k", fmt.Sprint(k), "-o", "json",
				name, question)
			var hits []struct{ Key string }
			if err := json.Unmarshal([]byte(said[strings.IndexByte(said, '['):]), &hits); err != nil {
				t.Fatalf("%v: %s", err, said)
			}
			if got := keysOf(hits); !slices.Equal(got, byScore(m, question, all)[:k]) {
				t.Errorf("%s by the command line: %v", name, got)
			}
		}
		status, body := query(t, url+"/rerank", token, map[string]any{"query": question, "texts": []string{"note 1", "x"}})
		if status != http.StatusOK || !strings.Contains(string(body), `"score":`) {
			t.Errorf("/rerank: %d %s", status, body)
		}
		// Without a reranker the way to one is told.
		r.do(2, "search", "--rerank", "3", "-k", "5", "notes", question)
		c.terminate()
	})
}

// TestSearch_RerankTakes prints how long searches among 1,000 rows take with a cross-encoder as large as those that
// people use.
func TestSearch_RerankTakes(t *testing.T) {
	t.Parallel()
	const k = 10
	times := 3
	if os.Getenv(realEnv) != "" {
		times = 41
	}
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE notes (id int PRIMARY KEY, body text)`)
	db.MustExec(`INSERT INTO notes SELECT i, repeat('the quick brown fox jumps over a lazy dog ', 6) || i
		FROM generate_series(1, 1000) AS i`)
	r := newRig(t, db, pipeline.Spec{
		Name: "notes", Schema: "public", Table: "notes", Columns: []string{"body"}, IntoTable: "notes_embedding",
	})
	config := r.reranking(onnxtest.RealPairs(t))
	r.leisurely()
	c := r.start(nil, "run", "--no-init", "--config", config, "--http", "127.0.0.1:0", "--tokens-file", r.tokens())
	url := c.address()
	r.caughtUp()
	r.nearest(url, "notes", "a fox", k) // until it answers
	for _, n := range []int{0, 20, 50} {
		took := make([]time.Duration, times)
		for i := range took {
			var answer struct {
				Rows []struct {
					Score float64 `json:"rerank_score"`
				}
			}
			var body []byte
			testenv.Eventually(t, waitTimeout, func() (bool, string) { // a busy machine may not do it within a minute
				var status int
				began := time.Now()
				status, body = query(t, url+"/v1/pipelines/notes/search", token,
					map[string]any{"text": fmt.Sprint("which animal is lazy ", i), "k": k, "rerank": n})
				took[i] = time.Since(began)
				if status == http.StatusGatewayTimeout || status == http.StatusServiceUnavailable {
					return false, string(body)
				}
				if err := json.Unmarshal(body, &answer); err != nil || status != http.StatusOK || len(answer.Rows) != k {
					t.Fatalf("%d %s", status, body)
				}
				return true, ""
			})
			for at := range k - 1 {
				if n > 0 && (answer.Rows[at].Score < answer.Rows[at+1].Score || answer.Rows[at].Score == 0) {
					t.Fatalf("not in the order of the scores: %s", body)
				}
			}
		}
		slices.Sort(took)
		t.Logf("%d candidates of about 57 tokens to rerank: p50 %s, slowest %s", n, took[times/2], took[times-1])
	}
	c.terminate()
}

func keysOf(hits []struct{ Key string }) (keys []string) {
	for _, h := range hits {
		keys = append(keys, h.Key)
	}
	return keys
}

// nearest returns the keys that are nearest by their vectors.
func (r *rig) nearest(url, name, question string, k int) []string {
	r.t.Helper()
	var answer struct{ Rows []struct{ Key string } }
	testenv.Eventually(r.t, waitTimeout, func() (bool, string) {
		status, body := query(r.t, url+"/v1/pipelines/"+name+"/search", token, map[string]any{"text": question, "k": k})
		return status == http.StatusOK && json.Unmarshal(body, &answer) == nil && len(answer.Rows) == k, string(body)
	})
	return keysOf(answer.Rows)
}

// byScore sorts keys of notes by the scores of their texts.
func byScore(m onnxtest.Pairs, question string, keys []string) []string {
	score := func(key string) float64 {
		var i int
		_, _ = fmt.Sscan(key, &i)
		return m.Score(m.Tokens(question), m.Tokens(fmt.Sprintf("note %d of %d", i, i*i)))
	}
	sorted := slices.Clone(keys)
	slices.SortFunc(sorted, func(a, b string) int { return cmp.Compare(score(b), score(a)) })
	return sorted
}

func (r *rig) rerankedByHTTP(url string, m onnxtest.Pairs, name, question string, k, candidates int) {
	r.t.Helper()
	want := byScore(m, question, r.nearest(url, name, question, candidates))[:k]
	var answer struct{ Rows []struct{ Key string } }
	status, body := query(r.t, url+"/v1/pipelines/"+name+"/search", token,
		map[string]any{"text": question, "k": k, "rerank": candidates})
	if err := json.Unmarshal(body, &answer); err != nil || status != http.StatusOK ||
		!slices.Equal(keysOf(answer.Rows), want) {
		r.t.Errorf("%s by HTTP: %d %s, want %v", name, status, body, want)
	}
	status, body = query(r.t, url+"/v1/pipelines/"+name+"/search", token,
		map[string]any{"text": question, "k": k, "rerank": k - 1})
	if status != http.StatusBadRequest || !strings.Contains(string(body), "rerank") {
		r.t.Errorf("%s, fewer candidates than rows: %d %s", name, status, body)
	}
}
