package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// HTTP is the same: the answer waits for the outcome, and says where to look for it.
func TestAsked_ByHTTP(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	file, tokens := s.configured(liveDocs), filepath.Join(t.TempDir(), "tokens")
	secret, _ := s.run(0, "token", "create", "ops", "--role", "admin", "--tokens-file", tokens)
	operator, _ := s.run(0, "token", "create", "op", "--role", "operator", "--tokens-file", tokens)
	d := s.start("--config", file, "--admin-listen", "127.0.0.1:0", "--tokens-file", tokens)
	base := "http://" + d.logged("administrators are answered", "address")
	s.stands("docs", health.UpToDate)
	ask := func(token, method, path, body string, want int, words ...string) (r struct {
		ID    int64  `json:"request_id"`
		State string `json:"state"`
	}, location string,
	) {
		t.Helper()
		status, header, text := s.call(token, method, base+path, body)
		if status != want {
			t.Fatalf("%s %s %s: %d %s, want %d", method, path, body, status, text, want)
		}
		s.has(text, words...)
		_ = json.Unmarshal([]byte(text), &r)
		return r, header.Get("Location")
	}
	admin := strings.TrimSpace(secret)
	ask(strings.TrimSpace(operator), http.MethodPost, "/api/v1/pipelines", askBodies, http.StatusForbidden)
	_, location := ask(admin, http.MethodPost, "/api/v1/pipelines?wait=60s&dry_run=true", askBodies, http.StatusOK, `"planned"`)
	ask(admin, http.MethodGet, location, "", http.StatusOK, `"planned"`, `"rows":3`, "bodies_embedding")
	ask(admin, http.MethodDelete, "/api/v1/pipelines/bodies?dry_run=true", "", http.StatusBadRequest,
		"there is no pipeline")
	r, _ := ask(admin, http.MethodPost, "/api/v1/pipelines?wait=60s", askBodies, http.StatusOK)
	if r.State != "done" {
		t.Errorf("%+v", r)
	}
	s.vectorsOf("bodies_embedding", 3)
	ask(admin, http.MethodPost, "/api/v1/pipelines?wait=60s", `{"name": "bad", "table": "docs", "tabel": "x"}`, http.StatusUnprocessableEntity, "tabel")
	ask(admin, http.MethodPost, "/api/v1/pipelines", `{"columns": ["title"]}`, http.StatusBadRequest, "name")
	ask(admin, http.MethodPost, "/api/v1/pipelines?wait=60s", `{"table": "docs"}`, http.StatusUnprocessableEntity,
		"public.docs", "columns", "into")
	ask(admin, http.MethodPost, "/api/v1/pipelines", `[]`, http.StatusUnprocessableEntity)
	// A token's pipelines may only use harmless expressions, whatever the role may do.
	ask(admin, http.MethodPost, "/api/v1/pipelines?wait=60s", `{"name": "bad", "table": "docs", "text": "pg_read_file('/etc/passwd')", "into": {"table": "bad_embedding"}}`,
		http.StatusUnprocessableEntity, "pg_read_file")
	ask(admin, http.MethodPatch, "/api/v1/pipelines/bodies?wait=60s", `{"where": "id > 1", "text": "lower(body)", "columns": null}`, http.StatusOK)
	s.vectorsOf("bodies_embedding", 2)
	ask(admin, http.MethodPatch, "/api/v1/pipelines/docs", `{"where": "id > 1"}`, http.StatusConflict, file)
	ask(admin, http.MethodDelete, "/api/v1/pipelines/docs", "", http.StatusConflict, file)
	// Labels choose it in the lists.
	ask(admin, http.MethodPatch, "/api/v1/pipelines/bodies?wait=60s", `{"labels": {"project": "helpdesk"}}`, http.StatusOK)
	s.does(create(strings.Replace(askTitles, "{", `{"labels": {"project": "shop"}, `, 1)))
	s.stands("titles", health.UpToDate)
	for project, want := range map[string]string{"helpdesk": "bodies", "shop": "titles"} {
		status, _, text := s.call(admin, http.MethodGet, base+"/api/v1/pipelines?pipeline=label:project="+project, "")
		var list struct {
			Pipelines []struct {
				Name   string            `json:"name"`
				Labels map[string]string `json:"labels"`
			} `json:"pipelines"`
		}
		if err := json.Unmarshal([]byte(text), &list); err != nil || len(list.Pipelines) != 1 ||
			list.Pipelines[0].Name != want || list.Pipelines[0].Labels["project"] != project {
			t.Errorf("of project %s: %d %s, want %s alone", project, status, text, want)
		}
		ask(admin, http.MethodGet, "/api/v1/tasks?state=finished&pipeline=label:project="+project, "", http.StatusOK, want)
		ask(admin, http.MethodGet, "/api/v1/audit?pipeline=label:project="+project, "", http.StatusOK, want)
	}
	s.does("drop_pipeline('titles')")
	ask(admin, http.MethodDelete, "/api/v1/pipelines/bodies?wait=60s&dry_run=true", "", http.StatusOK, "vectors stay")
	ask(admin, http.MethodPatch, "/api/v1/pipelines/bodies?wait=60s&dry_run=true", `{"tabel": "x"}`, http.StatusUnprocessableEntity, "tabel")
	r, location = ask(admin, http.MethodDelete, "/api/v1/pipelines/bodies?wait=0s", "", http.StatusAccepted)
	if want := fmt.Sprintf("/api/v1/requests/%d", r.ID); location != want {
		t.Errorf("look at %s, want %s", location, want)
	}
	s.comesTo(r.ID, "done")
	ask(admin, http.MethodGet, location, "", http.StatusOK, `"done"`)
	ask(admin, http.MethodGet, "/api/v1/requests", "", http.StatusOK, `"refused"`)
	ask(admin, http.MethodGet, "/api/v1/requests/999", "", http.StatusNotFound)
	said := testenv.Value[string](s.db, "SELECT DISTINCT said_by FROM embedsidecar.requests WHERE said_by <> ''")
	s.has(said, "ops")
	d.end(syscall.SIGTERM, 0)
}

// call sends a request to a listener.
func (s *stage) call(token, method, address, body string) (status int, header http.Header, text string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	content, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer.StatusCode, answer.Header, string(content)
}
