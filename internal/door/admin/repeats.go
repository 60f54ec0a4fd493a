package admin

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"net/http"
	"sync"
	"time"
)

// repeats answers a request that was made before, as its Idempotency-Key says, with the answer of then, and does
// nothing anew. It remembers in this process alone: after a restart, or with another sidecar, a request is a new one.
type repeats struct {
	mu    sync.Mutex
	known map[repeat]*answered
}

// repeat names a request: a key is its caller's own, and his with what he may now.
type repeat struct{ caller, key string }

func (c Caller) repeat(key string) repeat {
	return repeat{fmt.Sprintf("%q %s %s %q", c.Name, c.token.ID, c.Role, c.Pipelines), key}
}

// answered is a request with its answer.
type answered struct {
	body    [sha256.Size]byte // of the request, with its method and path
	at      time.Time
	over    bool // there is an answer
	status  int
	header  http.Header
	content []byte
}

// Bounds of what is remembered.
const (
	repeatsAge   = 24 * time.Hour
	maxRepeats   = 1000
	maxAnswer    = 64 << 10 // a longer answer is not remembered: the same request then acts again
	longestKey   = 200
	repeatHeader = "Idempotency-Key"
)

func newRepeats() *repeats { return &repeats{known: map[repeat]*answered{}} }

// of wraps a handler.
func (m *repeats) of(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get(repeatHeader)
		who, ok := CallerOf(r.Context())
		if r.Method != http.MethodPost || key == "" || !ok || r.URL.Path == sessionPath { // a cookie is not given twice
			h.ServeHTTP(w, r)
			return
		}
		if len(key) > longestKey {
			wrong("header."+repeatHeader, "a key has up to 200 characters").write(w)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			(&Problem{Status: http.StatusRequestEntityTooLarge, Reason: "too_large", Detail: "the body is too large"}).write(w)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		sum := sha256.Sum256(append([]byte(r.Method+" "+r.URL.RequestURI()+"\n"), body...))
		named := who.repeat(key)
		before, mine := m.begin(named, sum)
		switch {
		case mine != nil:
			defer m.end(named, mine)
			kept := &keeper{ResponseWriter: w, into: mine}
			h.ServeHTTP(kept, r)
		case before.body != sum:
			(&Problem{
				Status: http.StatusUnprocessableEntity, Reason: "idempotency_key", Detail: "this key was used for another request",
				Hints: []string{"take a new key for a new request"},
			}).write(w)
		case !before.over:
			(&Problem{
				Status: http.StatusConflict, Reason: "under_way", Detail: "the request with this key is still under way",
				after: time.Second,
			}).write(w)
		default:
			maps.Copy(w.Header(), before.header)
			w.Header().Set("Idempotency-Replayed", "true")
			w.WriteHeader(before.status)
			_, _ = w.Write(before.content) // a client that has gone misses nothing
		}
	})
}

// begin returns what is known of a request, or its own entry if it is the first.
func (m *repeats) begin(named repeat, sum [sha256.Size]byte) (before answered, mine *answered) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if known, ok := m.known[named]; ok && now.Sub(known.at) < repeatsAge {
		return *known, nil
	}
	if len(m.known) >= maxRepeats {
		m.forgetLocked()
	}
	mine = &answered{body: sum, at: now}
	m.known[named] = mine
	return answered{}, mine
}

// forgetLocked makes room: the oldest goes of the caller who has the most, so that nobody pushes out what others did.
func (m *repeats) forgetLocked() {
	of := map[string]int{}
	for name := range m.known {
		of[name.caller]++
	}
	var oldest repeat
	var at time.Time
	for name, a := range m.known {
		n, most := of[name.caller], of[oldest.caller]
		if a.over && (at.IsZero() || n > most || n == most && a.at.Before(at)) {
			oldest, at = name, a.at
		}
	}
	delete(m.known, oldest)
}

// end keeps the answer, unless the same request had better act anew: what refused it may have been mended.
func (m *repeats) end(named repeat, mine *answered) {
	m.mu.Lock()
	defer m.mu.Unlock()
	again := mine.status == 0 || mine.status >= http.StatusBadRequest
	if again || len(mine.content) > maxAnswer {
		delete(m.known, named)
		return
	}
	mine.over = true
}

// keeper keeps an answer while it is sent.
type keeper struct {
	http.ResponseWriter
	into *answered
}

// WriteHeader implements http.ResponseWriter.
func (k *keeper) WriteHeader(status int) {
	if k.into.status == 0 {
		k.into.status = status
		k.into.header = http.Header{"Content-Type": k.Header().Values("Content-Type")}
	}
	k.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (k *keeper) Write(b []byte) (int, error) {
	if k.into.status == 0 {
		k.WriteHeader(http.StatusOK)
	}
	if len(k.into.content) <= maxAnswer {
		k.into.content = append(k.into.content, b...)
	}
	return k.ResponseWriter.Write(b)
}
