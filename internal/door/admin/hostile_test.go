package admin_test

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/door/admin"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestAct_NobodyGoesOnUnderAnothersName: only the caller that began an action can continue it, and only for the same
// rows, so the audit is correct.
func TestAct_NobodyGoesOnUnderAnothersName(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.reset()
	const retry = "/api/v1/tasks/retry"
	if a := f.ask("operator", http.MethodPost, retry, `{"pipelines": ["docs"], "code": "c1", "limit": 1}`); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	begun := testenv.Value[int64](f.Database, `SELECT max(audit_id) FROM embedsidecar.audit_log`)
	before := f.acted()
	goOn := func(more string) string {
		return fmt.Sprintf(`{"pipelines": ["docs"]%s, "continues": %d}`, more, begun)
	}
	f.refused(http.StatusBadRequest, "usage", "scoped", http.MethodPost, retry, goOn(`, "code": "c1"`))
	for _, more := range []string{"", `, "code": "c0"`, `, "code": "c1", "keys": ["2"]`, `, "code": "c1", "older_than": "1m"`} {
		f.refused(http.StatusBadRequest, "usage", "operator", http.MethodPost, retry, goOn(more))
	}
	f.refused(http.StatusBadRequest, "usage", "operator", http.MethodPost, "/api/v1/pipelines/docs/reembed",
		fmt.Sprintf(`{"continues": %d}`, begun))
	if f.acted() != before {
		t.Error("something was done")
	}
	if a := f.ask("operator", http.MethodPost, retry, goOn(`, "code": "c1"`)); a.status != http.StatusOK || !strings.Contains(a.body, `"rows":1`) {
		t.Errorf("who began it: %d %s", a.status, a.body)
	}
}

// TestAct_WhatIsEmptyIsNotEverything: empty or repeated parameters are rejected and do not mean everything; nor does a
// crafted name extend an action.
func TestAct_WhatIsEmptyIsNotEverything(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.reset()
	before := f.state()
	for _, c := range [][2]string{
		{"/pipelines/docs/reembed", `{"keys": []}`},
		{"/pipelines/docs/reembed", `{"keys": null}`},
		{"/tasks/requeue", `{"pipelines": ["docs"], "keys": [ ]}`},
		{"/tasks/retry", `{"pipelines": []}`},
		{"/tasks/retry", `{"code": ""}`},
		{"/tasks/discard", `{"pipelines": ["docs"], "class": ""}`},
		{"/tasks/discard", `{"pipelines": ["docs"], "older_than": ""}`},
		{"/tasks/discard", `{"pipelines": ["docs"], "code": null}`},
		{"/pipelines/docs/pause", `{"dry_run": null}`},
		{"/pipelines/docs/pause", `{"dry_run": true, "dry_run": false}`},
		{"/pipelines/docs/pause", `{"DRY_RUN": true, "dry_run": false}`},
	} {
		f.refused(http.StatusBadRequest, "usage", "operator", http.MethodPost, "/api/v1"+c[0], c[1])
	}
	for _, path := range []string{
		"/pipelines/../pause", "/pipelines/docs/../../pause", "//pause", "/pipelines/./../pause",
	} {
		f.refused(http.StatusNotFound, "unknown_url", "operator", http.MethodPost, "/api/v1"+path, "")
	}
	for _, query := range []string{
		"pipeline=", "code=", "class=", "state=", "key=", "older_than=", "pipeline=docs&pipeline=", "cursor=", "limit=",
		"limit=1&limit=2", "code=c0&code=c1",
	} {
		f.refused(http.StatusBadRequest, "usage", "viewer", http.MethodGet, "/api/v1/tasks?"+query, "")
	}
	// A parameter that cannot be read is not left out.
	for _, query := range []string{"pipeline=%zz", "pipeline=docs;", "code=c0&state=failed;key=1"} {
		f.refused(http.StatusBadRequest, "usage", "viewer", http.MethodGet, "/api/v1/tasks?"+query, "")
	}
	for _, query := range []string{"dry_run=true;wait=0s", "dry_run=%zz"} {
		f.refused(http.StatusBadRequest, "usage", "admin", http.MethodDelete, "/api/v1/pipelines/docs?"+query, "")
	}
	for _, path := range []string{"/audit?cursor=", "/audit?cursor=2&cursor=3", "/wait?timeout=", "/wait?lsn="} {
		f.refused(http.StatusBadRequest, "usage", "viewer", http.MethodGet, "/api/v1"+path, "")
	}
	if a := f.ask("viewer", http.MethodGet, "/api/v1/tasks?state=failed&state=todo&key=1&key=2", ""); a.status != http.StatusOK {
		t.Errorf("several of what may be several: %d %s", a.status, a.body)
	}
	if f.state() != before {
		t.Error("something changed")
	}
}

// TestLook_HashOfAText: a caller that may not see texts gets no hash either, since a hash reveals a short text.
func TestLook_HashOfAText(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.reset()
	hash := fmt.Sprintf("%x", sha256.Sum256([]byte("CANARY 1")))
	f.MustExec(`INSERT INTO embedsidecar.ledger (pipeline_id, row_key, generation, lsn, text_hash, source_hash, vector_hash)
		SELECT pipeline_id, '1', 1, '0/1', sha256('CANARY 1'), '', '' FROM embedsidecar.pipeline`)
	const path = "/api/v1/pipelines/docs/rows/1"
	for _, who := range []string{"viewer", "admin"} {
		if a := f.ask(who, http.MethodGet, path, ""); a.status != http.StatusOK || strings.Contains(a.body, hash[:10]) {
			t.Errorf("%s: %d %s", who, a.status, a.body)
		}
	}
	f.config.Admin.ShowRowText = true
	f.listen()
	if a := f.ask("viewer", http.MethodGet, path, ""); a.status != http.StatusOK || strings.Contains(a.body, hash[:10]) {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := f.ask("operator", http.MethodGet, path, ""); strings.Count(a.body, hash) != 2 {
		t.Errorf("who may see the text: %d %s", a.status, a.body)
	}
}

// TestSession_BeginsWithTheToken: a cookie cannot be exchanged for another one.
func TestSession_BeginsWithTheToken(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for range 2 {
		a := f.ask("viewer", http.MethodPost, "/api/v1/session", "")
		cookie, _, _ := strings.Cut(a.header.Get("Set-Cookie"), ";")
		if a.status != http.StatusOK || cookie == "" {
			t.Fatalf("%d %s", a.status, a.header)
		}
		f.refused(http.StatusForbidden, "session", "", http.MethodPost, "/api/v1/session", "", "Cookie", cookie)
		if a := f.ask("", http.MethodGet, "/api/v1/session", "", "Cookie", cookie); a.status != http.StatusOK {
			t.Errorf("in the session: %d %s", a.status, a.body)
		}
	}
}

// TestListen_OneTokenLeavesRoomForOthers: one token may hold many requests of any kind open, with endless bodies.
func TestListen_OneTokenLeavesRoomForOthers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, request := range []string{"POST /api/v1/pause", "GET /api/v1/session", "GET /api/v1/events"} {
		t.Log(request)
		held := make([]net.Conn, 300) // more than the limit of connections
		for i := range held {
			held[i] = f.from("127.0.0.1")
			// A request beyond the limit of a token is ended while it is written.
			_, _ = io.WriteString(held[i], request+" HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"+
				"Content-Length: 9\r\nAuthorization: Bearer "+f.tokens["viewer"]+"\r\n\r\n{")
		}
		testenv.Eventually(t, waitFor, func() (bool, string) {
			a := f.ask("viewer", http.MethodGet, "/api/v1/session", "")
			return a.status == http.StatusTooManyRequests && a.header.Get("Retry-After") == "1", a.body
		})
		gets[admin.Status](f, "operator", "/api/v1/status")
		for _, conn := range held {
			_ = conn.Close()
		}
		testenv.Eventually(t, waitFor, func() (bool, string) {
			a := f.ask("viewer", http.MethodGet, "/api/v1/session", "")
			return a.status == http.StatusOK, a.body
		})
	}
}

// TestListen_IdleConnectionsOfOneTokenLeaveRoomForOthers: a client that holds all connections and opens more ends its
// own.
func TestListen_IdleConnectionsOfOneTokenLeaveRoomForOthers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ask := func(conn net.Conn, who string) error {
		if _, err := io.WriteString(conn, "GET /api/v1/session HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+f.tokens[who]+
			"\r\n\r\n"); err != nil {
			return err
		}
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, response.Body)
		return errors.Join(err, response.Body.Close())
	}
	for range 300 { // more than the limit
		if err := ask(f.from("127.0.0.1"), "viewer"); err != nil {
			t.Fatal(err)
		}
	}
	slow := f.from("127.0.0.2") // its client counts as unknown until it sends a request
	for range 300 {
		if err := ask(f.from("127.0.0.1"), "viewer"); err != nil {
			t.Fatal(err)
		}
	}
	if err := ask(slow, "operator"); err != nil {
		t.Errorf("another client: %v", err)
	}
}
