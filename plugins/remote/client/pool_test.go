package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/plugins/remote/remotetest"
	"github.com/embedsidecar/embedsidecar/plugins/sdk"
)

// embedUntil embeds texts as the sidecar does, with retries of those left for later. It counts the calls.
func embedUntil(t *testing.T, c *Client, s *remotetest.Server, texts []string) (calls int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for len(texts) > 0 {
		calls++
		answers, err := c.Embed(ctx, sdk.Document, texts)
		if err != nil {
			if code := codeOf(err); code != codes.ResourceExhausted && code != codes.Unavailable {
				t.Fatalf("%s: %v", code, err)
			}
			if !sleep.For(ctx, max(delayOf(t, err), 10*time.Millisecond)) {
				t.Fatalf("%d texts are left: %v", len(texts), err)
			}
			continue
		}
		var left []string
		for i, a := range answers {
			switch {
			case a.Err != nil && a.Err.Class == sdk.RetryLater:
				left = append(left, texts[i])
			case a.Err != nil:
				t.Fatalf("text %d: %v", i, a.Err)
			case alike(s, a, texts[i], false) < 0.9999:
				t.Fatalf("text %d has not its own vector", i)
			}
		}
		texts = left
	}
	return calls
}

// TestConcurrencyFindsTheLimit of a server that complains about more than three requests at a time.
func TestConcurrencyFindsTheLimit(t *testing.T) {
	t.Parallel()
	const limit = 3
	var busy, complaints, good atomic.Int32
	s := &remotetest.Server{Dialect: "openai", Service: 4 * time.Millisecond}
	s.Behave = func(w http.ResponseWriter, r *http.Request, _ *remotetest.Call) bool {
		if busy.Load() > limit {
			complaints.Add(1)
			remotetest.Send(429, `{}`, "Retry-After-Ms", "10")(w, r)
			return true
		}
		good.Add(1)
		return false
	}
	counted := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		busy.Add(1)
		defer busy.Add(-1)
		s.ServeHTTP(w, r)
	})
	s.Dims = dims
	server := httptest.NewServer(counted)
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL + "/v1")
	if err != nil {
		t.Fatal(err)
	}
	c := open(t, "openai", func(o *Options) { o.Limits.Texts, o.Most = 2, 64 }, u)
	var wg sync.WaitGroup
	for part := range 4 { // all calls share the concurrency limit
		wg.Go(func() { embedUntil(t, c, s, corpus(400)[part*100:part*100+100]) })
	}
	wg.Wait()
	if c, g := complaints.Load(), good.Load(); c == 0 || c > g/2 {
		t.Errorf("%d complaints beside %d good answers", c, g)
	}
	if most := s.Most(); most < limit {
		t.Errorf("%d requests at a time at most, though the server takes %d", most, limit)
	}
}

// TestAStormOfRefusals: two in three requests fail in some way, and every text gets its vector.
func TestAStormOfRefusals(t *testing.T) {
	t.Parallel()
	everyDialect(t, func(t *testing.T, name string) {
		t.Helper()
		s := &remotetest.Server{Dialect: name, Behave: func(w http.ResponseWriter, r *http.Request, c *remotetest.Call) bool {
			switch c.N % 6 {
			case 0, 3:
				return false
			case 1:
				remotetest.Send(429, `{}`, "Retry-After", "0.02")(w, r)
			case 2:
				remotetest.Send(503, ``)(w, r)
			case 4:
				remotetest.Drop(w, r)
			case 5:
				remotetest.Page(502)(w, r)
			}
			return true
		}}
		c := open(t, name, func(o *Options) { o.Limits.Texts = min(o.Limits.Texts, 5) }, listen(t, s))
		embedUntil(t, c, s, corpus(40*c.o.Limits.Texts))
	})
}

// replicas are several servers of one model.
func replicas(t *testing.T, n int, service time.Duration) (list []*remotetest.Server, urls []*url.URL) {
	t.Helper()
	for range n {
		s := &remotetest.Server{Dialect: "tei", Service: service, Slots: 2}
		list, urls = append(list, s), append(urls, listen(t, s))
	}
	return list, urls
}

func TestReplicasShareTheWork(t *testing.T) {
	t.Parallel()
	servers, urls := replicas(t, 3, 10*time.Millisecond)
	c := open(t, "tei", func(o *Options) { o.Limits.Texts = 4 }, urls...)
	// Enough texts that a short delay of one server on a busy machine does not matter.
	wantVectors(t, servers[0], corpus(2400), mustEmbed(t, c, corpus(2400)))
	for i, s := range servers {
		if n := len(s.Calls()); n < 100 || n > 400 {
			t.Errorf("replica %d had %d of 600 requests", i, n)
		}
	}
}

// TestADeadReplicaIsLeftAlone and used again when it is back: no call fails meanwhile.
func TestADeadReplicaIsLeftAlone(t *testing.T) {
	t.Parallel()
	servers, urls := replicas(t, 2, time.Millisecond)
	var dead atomic.Bool
	servers[1].Behave = when(func(*remotetest.Call) bool { return dead.Load() }, remotetest.Drop)
	c := open(t, "tei", func(o *Options) { o.Limits.Texts = 4; o.Pause = 100 * time.Millisecond }, urls...)
	round := func() (n int) {
		before := len(servers[1].Calls())
		wantVectors(t, servers[0], corpus(200), mustEmbed(t, c, corpus(200)))
		return len(servers[1].Calls()) - before
	}
	round()
	dead.Store(true)
	asked := 0
	for range 4 {
		asked += round()
	}
	if asked > 30 {
		t.Errorf("a dead replica was asked %d times for 200 requests", asked)
	}
	dead.Store(false)
	deadline := time.Now().Add(5 * time.Minute)
	for round() < 10 {
		if time.Now().After(deadline) {
			t.Fatal("the replica is back and gets no work")
		}
	}
}

// TestAReplicaWithAnotherModelGetsNoWork.
func TestAReplicaWithAnotherModelGetsNoWork(t *testing.T) {
	t.Parallel()
	good, other := &remotetest.Server{Dialect: "openai"}, &remotetest.Server{Dialect: "openai", Salt: "other"}
	first, second := listen(t, good), listen(t, other)
	c := open(t, "openai", func(o *Options) { o.Limits.Texts = 4 }, first)
	if _, err := c.Embed(t.Context(), sdk.Document, corpus(1)); err != nil {
		t.Fatal(err)
	}
	both := open(t, "openai", func(o *Options) { o.Limits.Texts = 4 }, first, second)
	both.canary = c.canary // it is random which of two comes first
	for range 5 {
		wantVectors(t, good, corpus(100), mustEmbed(t, both, corpus(100)))
	}
	if n := len(sent(other)); n > 0 {
		t.Errorf("a replica of another model had %d requests", n)
	}
}

// TestQueriesGoAhead of documents that wait.
func TestQueriesGoAhead(t *testing.T) {
	t.Parallel()
	p := newPool([]*url.URL{{Scheme: "http", Host: "a"}}, 1, pause, time.Second, slog.New(slog.DiscardHandler))
	first, err := p.acquire(t.Context(), false, nil)
	if err != nil {
		t.Fatal(err)
	}
	p.prove(first)
	order := make(chan string, 6)
	var wg sync.WaitGroup
	wait := func(n int, name string, query bool) {
		wg.Go(func() {
			l, err := p.acquire(t.Context(), query, nil)
			if err != nil {
				t.Error(err)
				return
			}
			order <- name
			p.release(l, answered, 0)
		})
		for waiters(p) < n { // the order of arrival matters
			if t.Context().Err() != nil {
				t.Fatal("the test is over")
			}
		}
	}
	for i := range 3 {
		wait(i+1, fmt.Sprint("document ", i), false)
	}
	for i := range 3 {
		wait(i+4, fmt.Sprint("query ", i), true)
	}
	p.release(first, answered, 0)
	wg.Wait()
	close(order)
	var got []string
	for name := range order {
		got = append(got, name)
	}
	if want := "[query 0 query 1 query 2 document 0 document 1 document 2]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

func waiters(p *pool) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waiting[0]) + len(p.waiting[1])
}

// TestAWaiterThatGivesUpTakesNoPlace.
func TestAWaiterThatGivesUpTakesNoPlace(t *testing.T) {
	t.Parallel()
	p := newPool([]*url.URL{{Scheme: "http", Host: "a"}}, 1, pause, time.Second, slog.New(slog.DiscardHandler))
	l, err := p.acquire(t.Context(), false, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Millisecond, errors.New("given up"))
	defer cancel()
	if _, err := p.acquire(ctx, false, nil); err == nil || err.Error() != "given up" {
		t.Errorf("got %v", err)
	}
	p.release(l, answered, 0)
	again, err := p.acquire(t.Context(), false, nil)
	if err != nil {
		t.Fatal(err)
	}
	p.release(again, answered, 0)
	if p.endpoints[0].busy != 0 || waiters(p) != 0 {
		t.Errorf("%d busy, %d waiting", p.endpoints[0].busy, waiters(p))
	}
}
