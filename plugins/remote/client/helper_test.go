package client

import (
	"fmt"
	"log/slog"
	"math"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/remote/dialect"
	"github.com/embedsidecar/embedsidecar/plugins/remote/remotetest"
	"github.com/embedsidecar/embedsidecar/plugins/sdk"
	"github.com/embedsidecar/embedsidecar/testenv/leak"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

const (
	dims   = 16
	pause  = 4 * time.Millisecond
	secret = "sk-canary-0123456789abcdef"
)

// everyDialect runs a test for each dialect.
func everyDialect(t *testing.T, test func(t *testing.T, name string)) {
	t.Helper()
	for _, d := range dialect.All() {
		if d.Reranks { // rerank_test.go
			continue
		}
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			test(t, d.Name)
		})
	}
}

// listen starts a server.
func listen(t *testing.T, s *remotetest.Server) *url.URL {
	t.Helper()
	if s.Dims == 0 {
		s.Dims = dims
	}
	server := httptest.NewUnstartedServer(s)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // dropped connections are intended
	server.Start()
	t.Cleanup(server.Close)
	u, err := url.Parse(s.Base(server.URL))
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// open makes a client of servers of one dialect; change may modify its options. Its time limits are generous, for slow
// machines.
func open(t *testing.T, name string, change func(*Options), urls ...*url.URL) *Client {
	t.Helper()
	d, err := dialect.Named(name)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{
		Dialect: d, URLs: urls, Model: "m", Dims: dims, DimsBy: ByProvider, Truncate: dialect.CutEnd, Normalize: true,
		Limits: d.Limits, Most: 8, Timeout: 5 * time.Minute, Pause: pause, Patience: time.Minute, UserAgent: "test",
		Key: func() (string, error) { return secret, nil },
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	if change != nil {
		change(&o)
	}
	if o.HTTP == nil {
		if o.HTTP, err = (&Network{}).Client(o.Most); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(o.HTTP.CloseIdleConnections)
	return New(o)
}

// corpus makes n different texts.
func corpus(n int) []string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = fmt.Sprintf("document number %d tells of rivers and of %d bridges", i, i*i)
	}
	return texts
}

// wantVectors checks that each text has its own vector.
func wantVectors(t *testing.T, s *remotetest.Server, texts []string, answers []sdk.Answer) {
	t.Helper()
	if len(answers) != len(texts) {
		t.Fatalf("%d answers for %d texts", len(answers), len(texts))
	}
	for i, a := range answers {
		if a.Err != nil {
			t.Fatalf("text %d: %v", i, a.Err)
		}
		if got := alike(s, a, texts[i], false); !(got > 0.99999) {
			t.Fatalf("text %d has not its own vector: likeness %f", i, got)
		}
	}
}

// alike returns the likeness of an answer to the server's vector of a text.
func alike(s *remotetest.Server, a sdk.Answer, text string, query bool) float64 {
	if a.Indices != nil {
		return embed.SparseLikeness(embed.Pairs(a.Indices, a.Vector), s.Sparse(text))
	}
	return embed.Cosine(a.Vector, s.Vector(text, query, dims))
}

// mustEmbed embeds documents. An error of the call fails the test.
func mustEmbed(t *testing.T, c *Client, texts []string) []sdk.Answer {
	t.Helper()
	answers, err := c.Embed(t.Context(), sdk.Document, texts)
	if err != nil {
		t.Fatal(err)
	}
	return answers
}

// codeOf is the status code that the host gets.
func codeOf(err error) codes.Code { return status.Code(sdk.Status(err)) }

// wantCode checks the class of an error, and that it contains no secret.
func wantCode(t *testing.T, err error, want codes.Code, texts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %s", want)
	}
	if got := codeOf(err); got != want {
		t.Errorf("got %s, want %s: %v", got, want, err)
	}
	wantQuiet(t, err.Error(), texts)
}

// wantQuiet checks that a message contains no secret.
func wantQuiet(t *testing.T, message string, texts []string) {
	t.Helper()
	for _, hidden := range append(texts, secret, secret[3:12]) {
		if len(hidden) > 20 {
			hidden = hidden[:20]
		}
		if hidden != "" && strings.Contains(message, hidden) {
			t.Errorf("the message repeats what it must not: %s", message)
		}
	}
}

func length(v []float32) float64 {
	var sum float64
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	return math.Sqrt(sum)
}

// writeFile writes a file in the test's folder.
func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := t.TempDir() + "/" + name
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// delayOf is the retry delay that the host gets.
func delayOf(t *testing.T, err error) time.Duration {
	t.Helper()
	for _, d := range status.Convert(sdk.Status(err)).Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return 0
}
