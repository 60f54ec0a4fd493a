package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/setup/connection"
	"github.com/embedsidecar/embedsidecar/testenv"
	programs "github.com/embedsidecar/embedsidecar/testenv/program"
)

// asked sends a request to a daemon and returns status and answer. It repeats a request whose connection ends without
// an answer: the server drops slow clients, and a busy test machine may be slow.
func (d *daemon) asked(address, path, body string) (status int, answer string) {
	d.s.t.Helper()
	testenv.Eventually(d.s.t, waitTimeout, func() (bool, string) {
		var err error
		if status, answer, err = d.tried(address, path, body); err != nil {
			return false, fmt.Sprintf("%v\n%s", err, d.text())
		}
		return true, ""
	})
	return status, answer
}

// client opens a connection for each request: an idle one may be closed just when it is used again.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// tried sends a request once.
func (d *daemon) tried(address, path, body string) (status int, answer string, err error) {
	d.s.t.Helper()
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	r, err := http.NewRequestWithContext(d.s.t.Context(), method, "http://"+address+path, strings.NewReader(body))
	if err != nil {
		d.s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	b, err := io.ReadAll(response.Body)
	d.s.clean(string(b))
	return response.StatusCode, string(b), err
}

// answers waits until a request has an answer with a status and some words.
func (d *daemon) answers(address, path, body string, status int, words ...string) {
	d.s.t.Helper()
	testenv.Eventually(d.s.t, waitTimeout, func() (bool, string) {
		got, answer := d.asked(address, path, body)
		for _, word := range words {
			if got == status && !strings.Contains(answer, word) {
				return false, fmt.Sprintf("POST %s: %d without %q: %s", path, got, word, answer)
			}
		}
		return got == status, fmt.Sprintf("POST %s: %d, want %d: %s\n%s", path, got, status, answer, d.text())
	})
}

// gated returns a configuration whose pipeline has a filter that blocks while the gate is closed. Nothing else blocks
// then: neither the sidecar's own queries of the table nor those of the server.
func (s *stage) gated(into string) (path string) {
	s.t.Helper()
	s.db.MustExec(`CREATE FUNCTION gate(id bigint) RETURNS boolean LANGUAGE plpgsql STABLE AS 'BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN id > 0; END'`)
	path = filepath.Join(s.t.TempDir(), "gated.yaml")
	content := "pipelines:\n  - {name: public.docs, table: public.docs, columns: [title, body], where: public.gate(id), into: {" + into + "}}\n"
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// close closes the gate; the returned function opens it.
func (s *stage) close() (open func()) {
	s.t.Helper()
	gate, err := s.db.Pool.Begin(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = gate.Rollback(context.Background()) })
	if _, err := gate.Exec(s.t.Context(), "SELECT pg_advisory_xact_lock(7)"); err != nil {
		s.t.Fatal(err)
	}
	return func() {
		s.t.Helper()
		if err := gate.Rollback(s.t.Context()); err != nil {
			s.t.Fatal(err)
		}
	}
}

const (
	searches = "/v1/pipelines/public.docs/search"
	question = `{"text": "title 7"}`
)

// TestServe_LooksAtItsFlagsFirst: other mistakes are reported although the model cannot be opened.
func TestServe_LooksAtItsFlagsFirst(t *testing.T) {
	t.Parallel()
	s := newStage(t, 0)
	s.set("EMBEDSIDECAR_PLUGIN=no-such-plugin")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, flags := range map[string][]string{
		"no such file or directory": {"--http", "127.0.0.1:0", "--tokens-file", "/no/such/tokens"},
		"has no token":              {"--http", "127.0.0.1:0", "--tokens-file", empty},
		"address already in use":    {"--http", taken.Addr().String(), "--no-auth"},
		"--tokens-file":             {"--http", "127.0.0.1:0"},
		"belong together":           {"--http", "127.0.0.1:0", "--no-auth", "--set", "http.queries.cert=" + empty},
		"read certificate": {
			"--http", "127.0.0.1:0", "--no-auth", "--set", "http.queries.cert=" + empty, "--set",
			"http.queries.key=" + empty,
		},
	} {
		_, stderr := s.run(2, append([]string{"serve"}, flags...)...)
		s.has(stderr, want)
		if strings.Contains(stderr, "no-such-plugin") {
			t.Errorf("the plugin was looked for first: %s", stderr)
		}
	}
	_, stderr := s.run(2, "serve", "--http", "127.0.0.1:0", "--no-auth")
	s.has(stderr, "no-such-plugin")
}

// TestServe_SurvivesWhatHappensToItsPipelines removes what is searched, and restores it.
func TestServe_SurvivesWhatHappensToItsPipelines(t *testing.T) {
	t.Parallel()
	s := newStage(t, 20)
	into := s.gated("column: embedding")
	s.run(0, "run", "--once", "--config", into)
	d := s.background("serve", "--log-format", "json", "--http", "127.0.0.1:0", "--no-auth")
	address := d.logged("queries are answered", "address")
	d.answers(address, searches, question, http.StatusOK, `"key":"7"`)
	d.answers(address, strings.Replace(searches, "/search", "/similar", 1), `{"key": 7, "k": 3}`, http.StatusOK, `"key":"`)
	d.answers(address, searches, `{"text": "x", "filter": {"titel": "y"}}`, http.StatusBadRequest,
		`no column \"titel\": did you mean title?`)
	d.answers(address, searches, `{"text": "x", "filter": {"nosuch": "y"}}`, http.StatusBadRequest,
		`no column \"nosuch\": there are: id, title, body`)

	// Searches that wait for a lock end when their clients go, here and in the server.
	open := s.close()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	var clients sync.WaitGroup
	for range connection.Queries {
		clients.Go(func() {
			// A search that waits too long is told so; it is repeated until its client goes.
			for ctx.Err() == nil {
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+searches,
					strings.NewReader(`{"text": "wait"}`))
				if err != nil {
					t.Error(err)
					return
				}
				r.Header.Set("Content-Type", "application/json")
				if response, err := client.Do(r); err == nil {
					if response.StatusCode == http.StatusOK {
						t.Errorf("a search was answered though the table is locked: %s", response.Status)
					}
					_ = response.Body.Close()
				}
			}
		})
	}
	waiting := func(want int) {
		t.Helper()
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			n := testenv.Value[int](s.db, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
			return n == want, fmt.Sprintf("%d searches wait for the lock, want %d", n, want)
		})
	}
	waiting(connection.Queries)
	leave()
	clients.Wait()
	waiting(0)
	open()
	d.answers(address, searches, question, http.StatusOK, `"key":"7"`)

	s.db.MustExec("ALTER TABLE docs DROP COLUMN embedding")
	d.answers(address, searches, question, http.StatusServiceUnavailable)
	s.run(0, "uninstall", "--yes", "--drop-embeddings")
	d.answers(address, searches, question, http.StatusServiceUnavailable, "embedsidecar init")
	d.answers(address, "/v1/pipelines", "", http.StatusServiceUnavailable, "embedsidecar init")
	d.answers(address, "/v1/embeddings", `{"input": "no database is needed for this"}`, http.StatusOK)
	s.run(0, "run", "--once", "--config", into)
	d.answers(address, searches, question, http.StatusOK, `"key":"7"`)
	d.end(syscall.SIGTERM, 0)
}

// TestServe_ToLookAtAModelStartsNone: a model is a program, perhaps a paid one, that any token could otherwise start by
// a GET.
func TestServe_ToLookAtAModelStartsNone(t *testing.T) {
	t.Parallel()
	s := newStage(t, 0)
	s.set("EMBEDSIDECAR_DATABASE_URL=")
	dir := t.TempDir()
	evidence, program := filepath.Join(dir, "evidence"), filepath.Join(dir, "embedsidecar-costly")
	if err := programs.Write(program, []byte("#!/bin/sh\necho started >"+evidence+"\n")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "c.yaml")
	if err := os.WriteFile(file, []byte("models:\n  - {name: costly, plugin: "+program+"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := s.background("serve", "--config", file, "--log-format", "json", "--http", "127.0.0.1:0", "--no-auth")
	address := d.logged("queries are answered", "address")
	d.answers(address, "/v1/models/fake", "", http.StatusOK, `"dims":8`, `"fingerprint":"`)
	d.answers(address, "/v1/models", "", http.StatusOK, `"costly"`)
	if status, answer := d.asked(address, "/v1/models/costly", ""); status != http.StatusOK || !strings.Contains(answer,
		`"id":"costly"`) || strings.Contains(answer, "dims") {
		t.Errorf("a model that nobody has used: %d %s", status, answer)
	}
	if _, err := os.Stat(evidence); err == nil {
		t.Error("the program was started")
	}
	if status, answer := d.asked(address, "/v1/embeddings",
		`{"input": "x", "model": "costly"}`); status < http.StatusInternalServerError {
		t.Errorf("a program that is no plugin embedded: %d %s", status, answer)
	}
	if _, err := os.Stat(evidence); err != nil {
		t.Errorf("the program leaves no evidence when it is started: %v", err)
	}
	d.end(syscall.SIGTERM, 0)
}

// TestServe_EmbedsWhileTheDatabaseHangs: the database accepts queries but never answers.
func TestServe_EmbedsWhileTheDatabaseHangs(t *testing.T) {
	t.Parallel()
	s := newStage(t, 20)
	s.once(0)
	proxy := testenv.StartProxy(t, s.db.Server.Addr())
	s.at(s.db.URLVia(proxy.Addr(), testenv.Owner))
	d := s.background("serve", "--log-format", "json", "--http", "127.0.0.1:0", "--no-auth")
	address := d.logged("queries are answered", "address")
	d.answers(address, searches, question, http.StatusOK, `"key":"7"`)

	proxy.Stall()
	// Until its last answer is too old.
	d.answers(address, "/v1/embeddings", `{"input": "x", "model": "unheard"}`, http.StatusServiceUnavailable,
		"the database does not answer")
	var clients sync.WaitGroup
	for range 5 {
		clients.Go(func() {
			if status, answer := d.asked(address, "/v1/embeddings",
				`{"input": "no database is needed for this"}`); status != http.StatusOK {
				t.Errorf("embedding: %d %s", status, answer)
			}
		})
	}
	clients.Wait()
	if status, answer := d.asked(address, "/v1/models", ""); status != http.StatusOK || !strings.Contains(answer, "fake") {
		t.Errorf("models: %d %s", status, answer)
	}
	if status, answer := d.asked(address, searches, question); status != http.StatusServiceUnavailable ||
		!strings.Contains(answer, "the database does not answer") {
		t.Errorf("a search: %d %s", status, answer)
	}
	proxy.Resume()
	d.answers(address, searches, question, http.StatusOK, `"key":"7"`)
	d.end(syscall.SIGTERM, 0)
}

// TestServe_FindsItsDatabaseAsOthersDo names the database in every way that PostgreSQL's own clients support.
func TestServe_FindsItsDatabaseAsOthersDo(t *testing.T) {
	t.Parallel()
	s := newStage(t, 20)
	s.once(0)
	u, err := url.Parse(s.db.URL(testenv.Owner))
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"passwords": fmt.Sprintf("%s:%s:*:%s:%s\n", u.Hostname(), u.Port(), u.User.Username(), password),
		"services": fmt.Sprintf("[docs]\nhost=%s\nport=%s\ndbname=%s\nuser=%s\n", u.Hostname(), u.Port(), s.db.Name,
			u.User.Username()),
		"serve.yaml":   "database: {url: " + u.String() + "}\n",
		"partial.yaml": "database: {url: \"postgres://" + u.User.Username() + "@/" + s.db.Name + "\"}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.set("EMBEDSIDECAR_DATABASE_URL=")
	without := s.environ
	where := []string{"PGHOST=" + u.Hostname(), "PGPORT=" + u.Port()}
	whole := append([]string{"PGDATABASE=" + s.db.Name, "PGUSER=" + u.User.Username()}, where...)
	file := func(name string) string { return "EMBEDSIDECAR_CONFIG=" + filepath.Join(dir, name) }
	for name, variables := range map[string][]string{
		"PG*":                       append([]string{"PGPASSWORD=" + password}, whole...),
		"PG* and the password file": append([]string{"PGPASSFILE=" + filepath.Join(dir, "passwords")}, whole...),
		"a service": {
			"PGSERVICE=docs", "PGSERVICEFILE=" + filepath.Join(dir, "services"),
			"PGPASSWORD=" + password,
		},
		"a file":                     {file("serve.yaml")},
		"a file, the rest from PG*":  append([]string{file("partial.yaml"), "PGPASSWORD=" + password}, where...),
		"a variable before the file": {"EMBEDSIDECAR_DATABASE_URL=" + u.String(), file("partial.yaml")},
		"a file before what PG* say": {file("serve.yaml"), "PGDATABASE=no_such_database", "PGUSER=nobody"},
		"a variable before what PG* say": {
			"EMBEDSIDECAR_DATABASE_URL=" + u.String(), "PGDATABASE=no_such_database",
			"PGPORT=1",
		},
	} {
		s.environ = without
		for _, v := range variables {
			s.set(v)
		}
		s.run(0, "search", "public.docs", "title 7") // other commands use the same database
		d := s.background("serve", "--log-format", "json", "--http", "127.0.0.1:0", "--no-auth")
		address := d.logged("queries are answered", "address")
		t.Log(name)
		d.answers(address, searches, question, http.StatusOK, `"key":"7"`)
		d.end(syscall.SIGTERM, 0)
	}
	// No database is named: there is nothing to search or to wait for.
	s.environ = without
	d := s.background("serve", "--log-format", "json", "--http", "127.0.0.1:0", "--no-auth")
	address := d.logged("queries are answered", "address")
	d.answers(address, searches, question, http.StatusNotFound)
	d.answers(address, "/v1/embeddings", `{"input": "x"}`, http.StatusOK)
	d.end(syscall.SIGTERM, 0)
}

// TestRun_ASearchGivesUpOnADatabaseThatHangs: the network drops everything after the sidecar has loaded its pipelines.
func TestRun_ASearchGivesUpOnADatabaseThatHangs(t *testing.T) {
	t.Parallel()
	s := newStage(t, 20)
	proxy := testenv.StartProxy(t, s.db.Server.Addr())
	s.at(s.db.URLVia(proxy.Addr(), testenv.Owner))
	d := s.start("--table", "docs", "--columns", "title,body", "--into", "embedding", "--http", "127.0.0.1:0", "--no-auth",
		"--set", "http.queries.search_timeout=3s")
	address := d.logged("queries are answered", "address")
	d.answers(address, searches, question, http.StatusOK, `"key":"7"`)
	proxy.Stall()
	for path, body := range map[string]string{searches: question, strings.Replace(searches, "/search", "/similar",
		1): `{"key": "7"}`} {
		if status, answer := d.asked(address, path, body); status != http.StatusServiceUnavailable ||
			!strings.Contains(answer, "did not answer the search within 3s") {
			t.Errorf("%s: %d %s", path, status, answer)
		}
	}
	proxy.Resume()
	d.answers(address, searches, question, http.StatusOK, `"key":"7"`)
	d.end(syscall.SIGTERM, 0)
}

// TestRun_AnswersBesideItsWork queries a sidecar from its start to its end.
func TestRun_AnswersBesideItsWork(t *testing.T) {
	t.Parallel()
	s := newStage(t, 20)
	d := s.start("--config", s.gated("table: docs_embedding"), "--http", "127.0.0.1:0", "--no-auth", "--set",
		"workers.drain_timeout="+waitTimeout.String())
	address := d.logged("queries are answered", "address")
	d.answers(address, searches, question, http.StatusOK, `"key":"7"`)
	var list struct{ Pipelines []struct{ Name string } }
	_, body := d.asked(address, "/v1/pipelines", "")
	if err := json.Unmarshal([]byte(body), &list); err != nil || len(list.Pipelines) != 1 ||
		list.Pipelines[0].Name != "public.docs" {
		t.Errorf("pipelines: %s, %v", body, err)
	}
	// A search in progress when the sidecar is stopped gets its answer: it waits for a lock until then.
	open := s.close()
	answered := make(chan string, 1)
	go func() {
		defer close(answered)
		status, answer, err := d.tried(address, searches, question)
		answered <- fmt.Sprint(status, " ", answer, err)
	}()
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		n := testenv.Value[int](s.db, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%embedsidecar_place%'")
		return n > 0, "no search waits for the lock"
	})
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		var dialer net.Dialer
		conn, err := dialer.DialContext(t.Context(), "tcp", address)
		if err != nil {
			return true, ""
		}
		_ = conn.Close()
		return false, "it still takes connections"
	})
	open()
	if answer := <-answered; !strings.HasPrefix(answer, "200 ") {
		t.Errorf("the search that was under way: %s", answer)
	}
	d.ends(0)
}
