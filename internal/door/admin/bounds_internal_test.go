package admin

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/door/serve"
)

// TestRepeats_AreBoundedAndActOnce: a request that is under way is not begun a second time, one that failed may be, and
// what is remembered has an end.
func TestRepeats_AreBoundedAndActOnce(t *testing.T) {
	t.Parallel()
	m := newRepeats()
	acted, status := 0, http.StatusOK
	var inside func()
	h := m.of(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		acted++
		if inside != nil {
			inside()
		}
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, "%d %s", acted, body)
	}))
	post := func(key, body string) (int, string) {
		r := httptest.NewRequest(http.MethodPost, "/api/v1/pause", strings.NewReader(body))
		r.Header.Set(repeatHeader, key)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r.WithContext(WithCaller(r.Context(), Caller{Name: "a"})))
		return w.Code, w.Body.String()
	}
	inside = func() {
		inside = nil
		if got, _ := post("k", "x"); got != http.StatusConflict {
			t.Errorf("under way: %d", got)
		}
	}
	for range 2 {
		if got, said := post("k", "x"); got != http.StatusOK || said != "1 x" {
			t.Errorf("%d %s", got, said)
		}
	}
	status = http.StatusServiceUnavailable
	post("failed", "x")
	status = http.StatusOK
	if _, said := post("failed", "x"); said != "3 x" {
		t.Errorf("after a failure: %s", said)
	}
	if got, _ := post(strings.Repeat("k", longestKey+1), ""); got != http.StatusBadRequest {
		t.Errorf("a long key: %d", got)
	}
	for i := range 2 * maxRepeats {
		post(fmt.Sprint(i), "")
	}
	if len(m.known) > maxRepeats {
		t.Errorf("%d are remembered", len(m.known))
	}
}

// TestDoor_SessionsAreBounded: one more than there may be ends the oldest.
func TestDoor_SessionsAreBounded(t *testing.T) {
	t.Parallel()
	d := &door{sessions: map[string]session{"over": {until: time.Now().Add(-time.Second)}}}
	first := d.open(Caller{}).Value
	for range maxSessions {
		d.open(Caller{})
	}
	if _, ok := d.sessions[first]; ok || len(d.sessions) > maxSessions {
		t.Errorf("%d sessions, the first is there: %t", len(d.sessions), ok)
	}
}

// TestBounds_NobodyPushesOutOthers: who opens sessions, sends keys or watches without end takes the places of his own.
func TestBounds_NobodyPushesOutOthers(t *testing.T) {
	t.Parallel()
	d := &door{sessions: map[string]session{}}
	of := func(id string) serve.Token { return serve.Token{Name: id, ID: id} }
	first := d.open(Caller{token: of("a")}).Value
	for range 2 * maxSessions {
		d.open(Caller{token: of("b")})
	}
	if _, ok := d.sessions[first]; !ok || len(d.sessions) > maxSessions {
		t.Errorf("%d sessions, that of another is there: %t", len(d.sessions), ok)
	}

	acted := 0
	h := newRepeats().of(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		acted++
		w.WriteHeader(http.StatusOK)
	}))
	post := func(who, role, key string) (times int) {
		r := httptest.NewRequest(http.MethodPost, "/api/v1/pause", nil)
		r.Header.Set(repeatHeader, key)
		before := acted
		h.ServeHTTP(httptest.NewRecorder(), r.WithContext(WithCaller(r.Context(), Caller{Name: who, Role: role})))
		return acted - before
	}
	post("a", serve.RoleAdmin, "k")
	for i := range 2 * maxRepeats {
		post("b", serve.RoleAdmin, fmt.Sprint(i))
	}
	if post("a", serve.RoleAdmin, "k") != 0 {
		t.Error("keys of another had it done again")
	}
	if post("a", serve.RoleViewer, "k") != 1 {
		t.Error("one who may do less now is answered as before")
	}

	watched := newHub()
	for range ownWatchers {
		if err := watched.join("a"); err != nil {
			t.Fatal(err)
		}
	}
	if watched.join("a") == nil {
		t.Error("one watches as often as he likes")
	}
	if err := watched.join("b"); err != nil {
		t.Errorf("another may not watch: %v", err)
	}
	watched.leave("a")
	if err := watched.join("a"); err != nil {
		t.Errorf("after one has left: %v", err)
	}
}

// TestRepeats_WhatWasRefusedIsJudgedAnew: what stood in its way may be gone.
func TestRepeats_WhatWasRefusedIsJudgedAnew(t *testing.T) {
	t.Parallel()
	status := http.StatusConflict
	h := newRepeats().of(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	for _, now := range []int{http.StatusConflict, http.StatusForbidden, http.StatusOK} {
		status = now
		r := httptest.NewRequest(http.MethodPost, "/api/v1/pause", nil)
		r.Header.Set(repeatHeader, "k")
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r.WithContext(WithCaller(r.Context(), Caller{Name: "a"}))); w.Code != now {
			t.Errorf("%d, want %d", w.Code, now)
		}
	}
}
