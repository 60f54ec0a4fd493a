package client

import (
	"compress/gzip"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/remote/dialect"
	"github.com/embedsidecar/embedsidecar/plugins/remote/remotetest"
	"github.com/embedsidecar/embedsidecar/plugins/sdk"
)

// sent are the calls with texts, without probes.
func sent(s *remotetest.Server) []*remotetest.Call {
	return slices.DeleteFunc(s.Calls(), func(c *remotetest.Call) bool { return strings.Contains(c.Texts[0], probeText) })
}

func TestRequestsKeepTheLimits(t *testing.T) {
	t.Parallel()
	texts := corpus(100)
	bytes := func(s string) int { return len(s) }
	for what, test := range map[string]struct {
		limits dialect.Limits
		most   func(c *remotetest.Call) int
		limit  int
	}{
		"texts": {
			dialect.Limits{Texts: 7, Tokens: 1e6, Bytes: 1e6}, func(c *remotetest.Call) int { return len(c.Texts) }, 7,
		},
		"tokens": {
			dialect.Limits{Texts: 1e6, Tokens: 100, Bytes: 1e6},
			func(c *remotetest.Call) int { return sum(c.Texts, tokens) }, 100,
		},
		"bytes": {
			dialect.Limits{Texts: 1e6, Tokens: 1e6, Bytes: 400},
			func(c *remotetest.Call) int { return sum(c.Texts, bytes) }, 400,
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := &remotetest.Server{Dialect: "openai"}
			c := open(t, "openai", func(o *Options) { o.Limits = test.limits }, listen(t, s))
			wantVectors(t, s, texts, mustEmbed(t, c, texts))
			fullest := 0
			for _, call := range sent(s) {
				if got := test.most(call); got > test.limit {
					t.Errorf("a request has %d, the limit is %d", got, test.limit)
				}
				fullest = max(fullest, test.most(call))
			}
			if fullest < test.limit*3/4 {
				t.Errorf("the fullest request has %d of %d: there are too many", fullest, test.limit)
			}
		})
	}
}

func sum(texts []string, f func(string) int) (n int) {
	for _, text := range texts {
		n += f(text)
	}
	return n
}

func TestDims(t *testing.T) {
	t.Parallel()
	everyDialect(t, func(t *testing.T, name string) {
		t.Helper()
		if name == "tei-sparse" {
			sparseDims(t)
			return
		}
		s := &remotetest.Server{Dialect: name, Dims: 24}
		u := listen(t, s)
		for by, width := range map[DimsBy]int{ByProvider: 10, ByModel: 24, ByCut: 10} {
			for _, normalize := range []bool{true, false} {
				c := open(t, name, func(o *Options) { o.DimsBy, o.Dims, o.Normalize = by, width, normalize }, u)
				v := mustEmbed(t, c, corpus(1))[0].Vector
				want := s.Vector(corpus(1)[0], false, 24)[:width]
				if by == ByProvider {
					want = s.Vector(corpus(1)[0], false, width)
				}
				if len(v) != width || embed.Cosine(v, want) < 0.9999 {
					t.Errorf("%s: %d dims, cosine %f", by, len(v), embed.Cosine(v, want))
				}
				if l := length(v); l < 0.999 || l > 1.001 {
					t.Errorf("%s: length %f", by, l)
				}
			}
		}
		probed := open(t, name, func(o *Options) { o.Dims, o.DimsBy = 0, ByModel }, u)
		if m, err := probed.Describe(t.Context()); err != nil || m.Dims != 24 {
			t.Errorf("described as %+v, error %v", m, err)
		}
	})
}

// sparseDims: the configured width is wrong if a server returns a larger index.
func sparseDims(t *testing.T) {
	t.Helper()
	s := &remotetest.Server{Dialect: "tei-sparse", Dims: 24}
	u := listen(t, s)
	wide := open(t, "tei-sparse", func(o *Options) { o.Dims, o.DimsBy = 30522, ByModel }, u)
	if m, err := wide.Describe(t.Context()); err != nil || m.Dims != 30522 || !m.Sparse {
		t.Errorf("described as %+v, error %v", m, err)
	}
	a := mustEmbed(t, wide, corpus(1))[0]
	if got, want := embed.Pairs(a.Indices, a.Vector), s.Sparse(corpus(1)[0]); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	_, err := open(t, "tei-sparse", func(o *Options) { o.Dims, o.DimsBy = 4, ByModel }, u).Embed(t.Context(), sdk.Document,
		corpus(3))
	wantCode(t, err, codes.FailedPrecondition, "")
	if err == nil || !strings.Contains(err.Error(), "dims, want 4") {
		t.Errorf("too narrow: %v", err)
	}
}

func TestNormalizeMakesLengthOne(t *testing.T) {
	t.Parallel()
	for _, normalize := range []bool{true, false} {
		s := &remotetest.Server{Dialect: "cohere", Spoil: func(c *remotetest.Call) {
			for _, v := range c.Numbers {
				for i := range v {
					v[i] = v[i].(float32) * 3
				}
			}
		}}
		c := open(t, "cohere", func(o *Options) { o.Normalize = normalize }, listen(t, s))
		want := 3.0
		if normalize {
			want = 1
		}
		if l := length(mustEmbed(t, c, corpus(1))[0].Vector); l < want-0.01 || l > want+0.01 {
			t.Errorf("normalize %t: length %f, want %f", normalize, l, want)
		}
	}
}

func TestPrefixesAndKinds(t *testing.T) {
	t.Parallel()
	everyDialect(t, func(t *testing.T, name string) {
		t.Helper()
		s := &remotetest.Server{Dialect: name}
		c := open(t, name, func(o *Options) { o.Prefixes = [2]string{"passage: ", "query: "} }, listen(t, s))
		for kind, want := range map[sdk.Kind]string{sdk.Document: "passage: hello", sdk.Query: "query: hello"} {
			answers, err := c.Embed(t.Context(), kind, []string{"hello"})
			if err != nil {
				t.Fatal(err)
			}
			kinds := c.o.Dialect.Kinds
			if alike(s, answers[0], want, kinds && kind == sdk.Query) < 0.9999 {
				t.Errorf("%s: not the vector of %q", kind, want)
			}
		}
		if m, err := c.Describe(t.Context()); err != nil || m.Symmetric {
			t.Errorf("symmetric %t, error %v", m.Symmetric, err)
		}
	})
}

func TestFingerprint(t *testing.T) {
	t.Parallel()
	s := &remotetest.Server{Dialect: "openai"}
	of := func(change func(*Options)) string {
		m, err := open(t, "openai", change, listen(t, s)).Describe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return m.Fingerprint
	}
	plain := of(nil)
	for what, change := range map[string]func(*Options){
		"another address":     func(*Options) {}, // each listener has its own port
		"another concurrency": func(o *Options) { o.Most = 2 },
		"another encoding":    func(o *Options) { o.Float = true },
	} {
		if of(change) != plain {
			t.Errorf("%s changes the fingerprint, but no vector", what)
		}
	}
	for what, change := range map[string]func(*Options){
		"model": func(o *Options) { o.Model = "other" }, "dims": func(o *Options) { o.Dims = 8 },
		"by":     func(o *Options) { o.DimsBy = ByCut },
		"prefix": func(o *Options) { o.Prefixes[1] = "q: " }, "normalize": func(o *Options) { o.Normalize = false },
		"truncate": func(o *Options) { o.Truncate = dialect.CutStart }, "cut at": func(o *Options) { o.MaxTokens = 100 },
	} {
		if of(change) == plain {
			t.Errorf("another %s can change vectors, but not the fingerprint", what)
		}
	}
}

// TestTEITellsWhatItRuns: other weights under the same name make another fingerprint.
func TestTEITellsWhatItRuns(t *testing.T) {
	t.Parallel()
	var prints []string
	for _, salt := range []string{"a", "b", "a"} {
		m, err := open(t, "tei", nil, listen(t, &remotetest.Server{Dialect: "tei", Salt: salt})).Describe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if m.MaxTokens != 512 {
			t.Errorf("%d tokens, want what the server says, 512", m.MaxTokens)
		}
		prints = append(prints, m.Fingerprint)
	}
	if prints[0] == prints[1] || prints[0] != prints[2] {
		t.Errorf("fingerprints of models a, b, a: %v", prints)
	}
}

func TestTheKeyStandsInItsHeader(t *testing.T) {
	t.Parallel()
	for _, header := range []string{"", "api-key"} {
		s := &remotetest.Server{Dialect: "openai", Key: secret, Header: header}
		c := open(t, "openai", func(o *Options) { o.KeyHeader = header }, listen(t, s))
		wantVectors(t, s, corpus(2), mustEmbed(t, c, corpus(2)))
	}
	s := &remotetest.Server{Dialect: "openai", Key: "another"}
	_, err := open(t, "openai", nil, listen(t, s)).Embed(t.Context(), sdk.Document, corpus(2))
	wantCode(t, err, codes.FailedPrecondition)
}

// TestCompressedAnswers: valid ones, and one that is far too large when decompressed.
func TestCompressedAnswers(t *testing.T) {
	t.Parallel()
	s := &remotetest.Server{Dialect: "openai", Dims: dims}
	bomb := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			t.Error("the client does not take gzip")
		}
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		defer func() { _ = z.Close() }()
		if bomb {
			zeros := make([]byte, 1<<20)
			for range 64 {
				if _, err := z.Write(zeros); err != nil {
					return
				}
			}
			return
		}
		s.ServeHTTP(compressed{w, z}, r)
	}))
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL + "/v1")
	if err != nil {
		t.Fatal(err)
	}
	c := open(t, "openai", nil, u)
	wantVectors(t, s, corpus(9), mustEmbed(t, c, corpus(9)))
	bomb = true
	_, err = open(t, "openai", nil, u).Embed(t.Context(), sdk.Document, corpus(2))
	wantCode(t, err, codes.Unavailable)
	if !strings.Contains(err.Error(), "longer than") {
		t.Errorf("the size is not what is complained about: %v", err)
	}
}

type compressed struct {
	http.ResponseWriter
	z *gzip.Writer
}

func (c compressed) Write(p []byte) (int, error) { return c.z.Write(p) }

// TestRememberedProbe: the same model is accepted, another one under its name is not.
func TestRememberedProbe(t *testing.T) {
	t.Parallel()
	file := t.TempDir() + "/probe.json"
	describe := func(salt string) error {
		s := &remotetest.Server{Dialect: "openai", Salt: salt}
		_, err := open(t, "openai", func(o *Options) { o.Remembered = file }, listen(t, s)).Describe(t.Context())
		return err
	}
	for range 2 {
		if err := describe("a"); err != nil {
			t.Fatal(err)
		}
	}
	wantCode(t, describe("b"), codes.FailedPrecondition)
	if err := describe("a"); err != nil {
		t.Errorf("the file was changed by another model: %v", err)
	}
	broken := writeFile(t, "probe.json", "{}")
	_, err := open(t, "openai", func(o *Options) { o.Remembered = broken },
		listen(t, &remotetest.Server{Dialect: "openai"})).Describe(t.Context())
	wantCode(t, err, codes.FailedPrecondition)
}

// TestRememberedProbe_KnowsTheLengthOfSparseVectors: their length matters, as they are searched by inner product.
func TestRememberedProbe_KnowsTheLengthOfSparseVectors(t *testing.T) {
	t.Parallel()
	c := open(t, "tei-sparse", nil, listen(t, &remotetest.Server{Dialect: "tei-sparse"}))
	first := []float32{3, 1.5, 9, 0.5}
	for _, test := range []struct {
		v    []float32
		same bool
	}{
		{first, true},
		{[]float32{3, 1.501, 9, 0.5}, true},
		{[]float32{3, 0.15, 9, 0.05}, false},
		{[]float32{3, 15, 9, 5}, false},
		{first, true},
	} {
		if err := c.compare(test.v); (err == nil) != test.same {
			t.Errorf("%v after %v: %v", test.v, first, err)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 10, 21, 7, 28, 0, 0, time.UTC)
	for _, test := range []struct {
		header http.Header
		want   time.Duration
	}{
		{http.Header{}, 0},
		{http.Header{"Retry-After": {"3"}}, 3 * time.Second},
		{http.Header{"Retry-After": {" 0.5 "}}, 500 * time.Millisecond},
		{http.Header{"Retry-After": {"-3"}}, 0},
		{http.Header{"Retry-After": {"soon"}}, 0},
		{http.Header{"Retry-After": {"NaN"}}, 0},
		{http.Header{"Retry-After": {"1e300"}}, 0},
		{http.Header{"Retry-After": {"99999"}}, time.Hour},
		{http.Header{"Retry-After": {"9"}, "Retry-After-Ms": {"40"}}, 40 * time.Millisecond},
		{http.Header{"Retry-After": {"Wed, 21 Oct 2026 07:28:30 GMT"}}, 30 * time.Second},
		{http.Header{"Retry-After": {"Wed, 21 Oct 2026 07:27:00 GMT"}}, 0},
		{
			http.Header{"Retry-After": {"Wed, 21 Oct 2026 09:28:30 GMT"}, "Date": {"Wed, 21 Oct 2026 09:28:00 GMT"}},
			30 * time.Second,
		},
	} {
		if got := retryAfter(test.header, now); got != test.want {
			t.Errorf("%v: %s, want %s", test.header, got, test.want)
		}
	}
}

func TestQuiet(t *testing.T) {
	t.Parallel()
	texts := []string{"The patient, Mrs. Example, was born in 1950.", "abcd"}
	for message, want := range map[string]string{
		"": "", "model not found": "model not found", "two\n lines\x00": "two lines",
		"your key " + secret + " is bad":                        "(message withheld: it repeats a part of the key)",
		"Incorrect key: sk-canary***cdef":                       "(message withheld: it repeats a part of the key)",
		`cannot embed "patient, Mrs. Example"`:                  "(message withheld: it repeats a part of a text)",
		`cannot embed \"patient,\nMrs. Example\"`:               "(message withheld: it repeats a part of a text)",
		"cannot embed abcd":                                     "(message withheld: it repeats a part of a text)",
		strings.Repeat("x", 199) + "é" + strings.Repeat("x", 9): strings.Repeat("x", 199) + "...",
	} {
		if got := quiet(message, secret, texts); got != want {
			t.Errorf("%q: %q, want %q", message, got, want)
		}
	}
}

// The client learns a server's reported limit of texts: the call is split once, and the next one fits.
func TestLearnsTheLimitThatIsSaid(t *testing.T) {
	t.Parallel()
	for _, message := range []string{
		"* BatchEmbedContentsRequest.requests: at most 5 requests can be in one batch", "'maxItems' 5",
		"The batch size should not be larger than 5.",
	} {
		s := &remotetest.Server{Dialect: "openai"}
		s.Behave = when(func(c *remotetest.Call) bool { return len(c.Texts) > 5 },
			refusing(s, http.StatusBadRequest, "invalid_request_error", message))
		c := open(t, "openai", nil, listen(t, s))
		for range 2 {
			answers, err := c.Embed(t.Context(), sdk.Document, corpus(13))
			if err != nil || len(answers) != 13 {
				t.Fatalf("%d answers, %v", len(answers), err)
			}
			for i, a := range answers {
				if a.Err != nil {
					t.Errorf("text %d: %+v", i, a.Err)
				}
			}
		}
		refused, asked := 0, 0
		for _, call := range s.Calls() {
			if len(call.Texts) > 5 {
				refused++
			}
			if len(call.Texts) > 1 || len(call.Texts) == 1 && call.Texts[0] != probeText {
				asked++
			}
		}
		if refused != 1 || asked != 7 {
			t.Errorf("%s: %d refused of %d, want 1 of 7", message, refused, asked)
		}
	}
}

// If a server refuses dims for its model, the error says what to change, after one request.
func TestDims_TheWayOutIsTold(t *testing.T) {
	t.Parallel()
	for _, message := range []string{
		`Model "m" does not support matryoshka representation, changing output dimensions will lead to poor results.`, // vLLM
		"This model does not support specifying dimensions.",                                                          // OpenAI of text-embedding-ada-002
	} {
		s := &remotetest.Server{Dialect: "openai"}
		s.Behave = when(func(c *remotetest.Call) bool { return c.Dims > 0 },
			refusing(s, http.StatusBadRequest, "BadRequestError", message))
		c := open(t, "openai", nil, listen(t, s))
		_, err := c.Embed(t.Context(), sdk.Document, corpus(8))
		wantCode(t, err, codes.FailedPrecondition)
		if !strings.Contains(err.Error(), "dims_by: model") || len(s.Calls()) != 1 {
			t.Errorf("%d requests: %v", len(s.Calls()), err)
		}
		c = open(t, "openai", func(o *Options) { o.DimsBy = ByModel }, listen(t, s))
		mustEmbed(t, c, corpus(8))
	}
}

// Configured fields are merged into each request and change the fingerprint. Those for a kind override those for all.
func TestFieldsAreMerged(t *testing.T) {
	t.Parallel()
	s := &remotetest.Server{Dialect: "ollama"}
	u := listen(t, s)
	c := open(t, "ollama", func(o *Options) {
		o.Dims = 0
		o.Fields = [2]map[string]any{
			{"options": map[string]any{"num_ctx": 8192}},
			{"options": map[string]any{"num_ctx": 8192}, "keep_alive": "1h", "truncate": nil},
		}
	}, u)
	for kind, want := range map[sdk.Kind]string{
		sdk.Document: `{"input":["one"],"model":"m","options":{"num_ctx":8192},"truncate":true}`,
		sdk.Query:    `{"input":["one"],"keep_alive":"1h","model":"m","options":{"num_ctx":8192}}`,
	} {
		if _, err := c.Embed(t.Context(), kind, []string{"one"}); err != nil {
			t.Fatal(err)
		}
		calls := s.Calls()
		if got := string(calls[len(calls)-1].Body); got != want {
			t.Errorf("%v: %s, want %s", kind, got, want)
		}
	}
	with, err := c.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	without, err := open(t, "ollama", func(o *Options) { o.Dims = 0 }, u).Describe(t.Context())
	if err != nil || with.Fingerprint == without.Fingerprint || with.Symmetric || !without.Symmetric {
		t.Errorf("%+v and %+v, %v", with, without, err)
	}
}
