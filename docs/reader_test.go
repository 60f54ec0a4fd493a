package docs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/testenv"
	"github.com/embedsidecar/embedsidecar/testenv/canary"
	"github.com/embedsidecar/embedsidecar/testenv/logs"
)

// waitTimeout is how long something may take that takes a moment.
const waitTimeout = 5 * time.Minute

// reader follows a page of the docs: with a table as it describes, the program in the path, and a folder to work in.
type reader struct {
	t    *testing.T
	db   *testenv.Database
	dir  string
	vars []string
}

// newReader makes the table that the papers speak of. The embedder is the fake one.
func newReader(t *testing.T) *reader {
	t.Helper()
	db := testenv.DB(t, testenv.Empty())
	db.MustExec(`CREATE TABLE public.docs (id bigint PRIMARY KEY, title text, body text, status text, tenant int, deleted_at timestamptz)`)
	db.MustExec(`INSERT INTO public.docs SELECT i, 'Password ' || i, 'how to reset it, error 0x80070057, ` + canary.Text +
		`', 'published', i % 10, NULL FROM generate_series(1, 60) AS i`)
	return &reader{t: t, db: db, dir: t.TempDir(), vars: []string{
		"PATH=" + filepath.Join(programs, "bin") + string(os.PathListSeparator) + db.Server.Bin() +
			string(os.PathListSeparator) + os.Getenv("PATH"),
		"HOME=" + t.TempDir(), "TMPDIR=" + programs, "EMBEDSIDECAR_DATABASE_URL=" + db.URL(""), "EMBEDSIDECAR_SLOT=" +
			db.SlotName(),
		"EMBEDSIDECAR_PLUGIN=fake", "EMBEDSIDECAR_PLUGIN_DIMS=64", "EMBEDSIDECAR_LOG_FORMAT=json",
		"EMBEDSIDECAR_HTTP_QUERIES_SEARCH_TIMEOUT=1m", "GOCOVERDIR=" + t.TempDir(),
	}}
}

// sh runs what a paper shows and returns what it printed on standard output.
func (r *reader) sh(script string, vars ...string) string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), waitTimeout)
	defer cancel()
	c := exec.CommandContext(ctx, "sh", "-eu", "-c", script)
	c.Dir, c.Env = r.dir, append(slices.Clone(r.vars), vars...)
	var said bytes.Buffer
	c.Stderr = &said
	out, err := c.Output()
	if err != nil {
		r.t.Fatalf("%s: %v\n%s%s", script, err, out, said.String())
	}
	r.clean(script, out, said.Bytes())
	return string(out)
}

// clean searches what a program has answered, which may hold texts of rows, and what it has logged, for what no
// output may hold.
func (r *reader) clean(source string, answer, log []byte) {
	r.t.Helper()
	if !canary.SearchSecrets(source, answer) || !canary.Search(source, log) {
		r.t.Errorf("%s holds what no output may hold", source)
	}
}

// has fails the test unless a text holds all words.
func (r *reader) has(text string, words ...string) {
	r.t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			r.t.Errorf("%q is missing in:\n%s", word, text)
		}
	}
}

// start runs a command until it is told to stop, or the test ends, and waits for a message of its log, of which it
// returns an attribute.
func (r *reader) start(script, message, attribute string, vars ...string) (value string, stop func()) {
	r.t.Helper()
	log := &logs.Buffer{}
	// told to end before the database goes
	c := exec.CommandContext(context.WithoutCancel(r.t.Context()), "sh", "-eu", "-c", "exec "+script)
	c.Dir, c.Env, c.Stdout, c.Stderr = r.dir, append(slices.Clone(r.vars), vars...), log, log
	if err := c.Start(); err != nil {
		r.t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		_ = c.Process.Signal(os.Interrupt)
		kill := time.AfterFunc(waitTimeout, func() { _ = c.Process.Kill() })
		defer kill.Stop()
		_ = c.Wait() // how it ends is not what is tested here
		r.clean(script, nil, []byte(log.String()))
	})
	r.t.Cleanup(stop)
	testenv.Eventually(r.t, waitTimeout, func() (bool, string) {
		for line := range strings.SplitSeq(log.String(), "\n") {
			var entry map[string]any
			if json.Unmarshal([]byte(line), &entry) == nil && entry["msg"] == message {
				value = fmt.Sprint(entry[attribute])
				return true, ""
			}
		}
		return false, script + ": " + message + " is not in the log:\n" + log.String()
	})
	return value, stop
}

// ask sends a request and returns status and answer; status 0 and the reason if there is none. A server gives up a
// client that the machine forgets for a few seconds.
func (r *reader) ask(method, url, token, body string) (status int, answer string) {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	if method == http.MethodPost {
		request.Header.Set("Content-Type", "application/json")
	}
	// one that is kept may end at the moment when it is used again
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	if response.StatusCode == http.StatusOK {
		r.clean(method+" "+url, content, nil)
	} else {
		r.clean(method+" "+url, nil, content)
	}
	return response.StatusCode, string(content)
}

// answers asks until the answer has a status: what is asked first may still wait for the database.
func (r *reader) answers(status int, method, url, token, body string) (answer string) {
	r.t.Helper()
	testenv.Eventually(r.t, waitTimeout, func() (bool, string) {
		var got int
		got, answer = r.ask(method, url, token, body)
		return got == status, fmt.Sprintf("%s %s %s: %d, want %d: %s", method, url, body, got, status, answer)
	})
	return answer
}

// only returns the one block of a language that begins with some words.
func (r *reader) only(paper, language, begin string) string {
	r.t.Helper()
	found := slices.DeleteFunc(blocks(read(r.t, paper), language), func(b string) bool {
		return !strings.HasPrefix(b,
			begin)
	})
	if len(found) != 1 {
		r.t.Fatalf("%s has %d blocks of %s that begin with %q", paper, len(found), language, begin)
	}
	return found[0]
}

// address is where the papers' program answers queries.
const address = "127.0.0.1:7470"
