package admin

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/serve"
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
	first := d.open(serve.Token{}).Value
	for range maxSessions {
		d.open(serve.Token{})
	}
	if _, ok := d.sessions[first]; ok || len(d.sessions) > maxSessions {
		t.Errorf("%d sessions, the first is there: %t", len(d.sessions), ok)
	}
}
