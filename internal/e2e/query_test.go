//go:build linux

package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxtest"
	"github.com/embedsidecar/embedsidecar/testenv"
	"github.com/embedsidecar/embedsidecar/testenv/canary"
)

const token = "a token for tests"

// tokens writes a file that lets the holder of token in.
func (r *rig) tokens() string {
	r.t.Helper()
	path := filepath.Join(r.dir, "tokens")
	sum := sha256.Sum256([]byte(token))
	if err := os.WriteFile(path, []byte("tests:query:"+hex.EncodeToString(sum[:])+"\n"), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return path
}

var answersAt = regexp.MustCompile(`msg="queries are answered" address=(\S+)`)

// address waits until a process answers queries and returns where.
func (c *child) address() (url string) {
	c.t.Helper()
	testenv.Eventually(c.t, waitTimeout, func() (bool, string) {
		c.mustLive()
		log, err := os.ReadFile(c.log)
		if err != nil {
			return false, err.Error()
		}
		if match := answersAt.FindSubmatch(log); match != nil {
			url = "http://" + string(match[1])
		}
		return url != "", c.tail()
	})
	return url
}

// query sends a request and returns status and answer. One whose connection ends without an answer is sent again: a
// server gives up a client that the machine forgets for a few seconds, and a client may find that out before it reads
// what it was told.
func query(t *testing.T, url, bearer string, body any) (status int, answer []byte) {
	t.Helper()
	var content []byte
	method := http.MethodGet
	if body != nil {
		var err error
		if content, err = json.Marshal(body); err != nil {
			t.Fatal(err)
		}
		method = http.MethodPost
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		r, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+bearer)
		r.Header.Set("Content-Type", "application/json")
		response, err := client.Do(r)
		if err != nil {
			return false, err.Error()
		}
		defer func() { _ = response.Body.Close() }()
		if answer, err = io.ReadAll(response.Body); err != nil {
			return false, err.Error()
		}
		status = response.StatusCode
		return true, ""
	})
	search := canary.Search
	if status == http.StatusOK { // an answer is of texts of rows
		search = canary.SearchSecrets
	}
	if !search(method+" "+url, answer) {
		t.Errorf("%s %s: the answer holds what none may hold: %s", method, url, answer)
	}
	return status, answer
}

// onnx is the environment of a process that embeds with the default model.
func onnx(t *testing.T) []string {
	t.Helper()
	return []string{
		"EMBEDSIDECAR_PLUGIN_DIMS=", "EMBEDSIDECAR_PLUGIN=onnx", "EMBEDSIDECAR_MODEL=" + onnxtest.Model(t),
		"EMBEDSIDECAR_ONNXRUNTIME=" + onnxtest.Library(t), "EMBEDSIDECAR_THREADS=1",
	}
}

// TestQueries_OpenAIClient serves the default model without a database and talks to it through OpenAI's own client,
// unchanged.
func TestQueries_OpenAIClient(t *testing.T) {
	t.Parallel()
	python, lines := testenv.Python(t, "openai"), onnxtest.Lines[referenceText](t,
		"../../plugins/onnx/model/testdata/embeddings.jsonl.gz")
	line := lines[0]
	for _, l := range lines { // one that an environment variable can hold
		if len(l.IDs) > len(line.IDs) && len(l.Text) < 1000 && !strings.ContainsRune(l.Text, 0) {
			line = l
		}
	}
	r := &rig{t: t, dir: t.TempDir()}
	r.calls = filepath.Join(r.dir, "calls")
	c := r.startPlain(append(onnx(t), "TMPDIR="+programs, "HOME="+r.dir, "EMBEDSIDECAR_PLUGIN_DIR="+programs,
		"EMBEDSIDECAR_LOG_FORMAT=text"),
		"serve", "--http", "127.0.0.1:0", "--tokens-file", r.tokens())
	client := exec.CommandContext(t.Context(), python, "testdata/openai_client.py")
	client.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + r.dir, "TEST_URL=" + c.address(), "TEST_TOKEN=" + token,
		"TEST_MODEL=" + onnxtest.ModelName, "TEST_TEXT=" + line.Text,
	}
	var said bytes.Buffer
	client.Stderr = &said
	out, err := client.Output()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, said.String(), c.tail())
	}
	var vector []float32
	if err := json.Unmarshal(out, &vector); err != nil {
		t.Fatal(err)
	}
	if got := embed.Cosine(vector, line.Embedding); got < 0.9999 {
		t.Errorf("the cosine with the reference is %.6f", got)
	}
	c.terminate()
}

// TestQueries_FindWhatIsTrueNow searches beside the work: a row that was edited is found by its new text, and only by
// those who may ask.
func TestQueries_FindWhatIsTrueNow(t *testing.T) {
	t.Parallel()
	testenv.InTurn(t, 0, "", func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		db := testenv.DB(t, testenv.Major(major))
		r := &rig{t: t, db: db, slot: db.SlotName(), dir: t.TempDir(), url: db.URL(testenv.Owner) + "&connect_timeout=300"}
		db.MustExec(`CREATE TABLE notes (id int PRIMARY KEY, body text, status text DEFAULT 'open')`)
		for i, body := range []string{
			"How to bake sourdough bread", "Repairing a bicycle chain", "The history of the Roman empire",
			"Growing tomatoes on a balcony",
			"Playing chess openings", "Tuning a piano", "Error 0x80070057 while saving", "Learning to swim",
		} {
			db.MustExec(`INSERT INTO notes VALUES ($1, $2)`, i+1, body)
		}
		settings := filepath.Join(r.dir, "config.yaml")
		if err := os.WriteFile(settings, []byte(`version: 1
pipelines:
  - name: public.notes
    table: public.notes
    columns: [body]
    into: {table: notes_embedding, type: halfvec}
    search: {filterable: [status]}
`), 0o600); err != nil {
			t.Fatal(err)
		}
		r.setUp(onnx(t), "--yes", "--config", settings)
		c := r.start(onnx(t), "run", "--config", settings, "--http", "127.0.0.1:0", "--tokens-file", r.tokens())
		notes := c.address() + "/v1/pipelines/public.notes/"
		type found struct {
			Metric string
			Rows   []struct {
				Key, Text string
				Columns   map[string]any
				Distance  *float64
				Score     *float64
			}
		}
		best := func(question map[string]any) (answer found) {
			t.Helper()
			c.mustLive()
			status, body := query(t, notes+"search", token, question)
			if status != http.StatusOK {
				return answer // not ready yet
			}
			if err := json.Unmarshal(body, &answer); err != nil {
				t.Fatalf("%s: %v", body, err)
			}
			return answer
		}
		first := func(key string, question map[string]any) {
			t.Helper()
			testenv.Eventually(t, waitTimeout, func() (bool, string) {
				a := best(question)
				return len(a.Rows) > 0 && a.Rows[0].Key == key, fmt.Sprintf("%v: %+v, want row %s first\n%s", question, a, key,
					c.tail())
			})
		}
		first("4", map[string]any{"text": "vegetables in pots", "k": 3})
		db.MustExec(`UPDATE notes SET body = 'Vegetables in pots and planters, for beginners' WHERE id = 3`)
		first("3", map[string]any{"text": "vegetables in pots", "k": 3})
		db.MustExec(`DELETE FROM notes WHERE id = 3`)
		first("4", map[string]any{"text": "vegetables in pots", "k": 3})
		first("7", map[string]any{"text": "0x80070057", "hybrid": true, "k": 1})
		db.MustExec(`UPDATE notes SET status = 'done' WHERE id = 4`)
		first("4", map[string]any{"text": "chess", "filter": map[string]any{"status": "done"}})
		// A server that is slow today may have the sidecar say that it comes again.
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			a := best(map[string]any{"text": "chess", "filter": map[string]any{"status": "done"}})
			return len(a.Rows) == 1 && a.Metric == "cosine" && a.Rows[0].Columns["id"] == 4.0, fmt.Sprintf("filtered: %+v", a)
		})
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			status, body := query(t, notes+"similar", token, map[string]any{"key": "5", "k": 2})
			return status == http.StatusOK && !bytes.Contains(body, []byte(`"key":"5"`)), fmt.Sprintf("similar: %d %s", status,
				body)
		})
		for _, bearer := range []string{"", "wrong", token + "x"} {
			if status, body := query(t, notes+"search", bearer,
				map[string]any{"text": "chess"}); status != http.StatusUnauthorized {
				t.Errorf("token %q: %d %s", bearer, status, body)
			}
		}
		large := strings.Repeat("x", 9<<20)
		if status, body := query(t, notes+"search", token,
			map[string]any{"text": large}); status != http.StatusRequestEntityTooLarge {
			t.Errorf("9 MiB: %d %.200s", status, body)
		}
		c.terminate()
	})
}
