package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/host"
	"github.com/embedsidecar/embedsidecar/plugins/remote/dialect"
	"github.com/embedsidecar/embedsidecar/plugins/remote/remotetest"
	"github.com/embedsidecar/embedsidecar/testenv/leak"
	"github.com/embedsidecar/embedsidecar/testenv/logs"
	"github.com/embedsidecar/embedsidecar/testenv/plugins"
	programs "github.com/embedsidecar/embedsidecar/testenv/program"
)

// program is the plugin, built once for all tests.
var program string

func TestMain(m *testing.M) {
	os.Exit(programs.Build(".", "embedsidecar-remote", func(path string) int {
		program = path
		return leak.Main(m)
	}, "CGO_ENABLED=0"))
}

const (
	dims = 32
	key  = "sk-canary-0123456789abcdef"
)

// serve starts a server and returns the URL to configure.
func serve(t *testing.T, s *remotetest.Server) string {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return s.Base(server.URL)
}

// open starts the plugin in its own process. The function returns its log.
func open(t *testing.T, env ...string) (*host.Host, func() string) {
	t.Helper()
	vars := map[string]string{modelKey: "docs-model"}
	for i := 0; i+1 < len(env); i += 2 {
		vars[prefix+env[i]] = env[i+1]
	}
	log := &logs.Buffer{}
	t.Cleanup(func() { // after the plugin's end
		if strings.Contains(log.String(), key) {
			t.Error("the key is in the log")
		}
	})
	return plugins.Start(t, host.Options{
		Path: program, Env: vars, Model: "docs-model",
		Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}), log.String
}

// TestRerankers runs the real plugin against a server of each dialect that reranks.
func TestRerankers(t *testing.T) {
	for _, d := range dialect.All() {
		if !d.Reranks {
			continue
		}
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			s := &remotetest.Server{Dialect: d.Name, Key: key}
			h, _ := open(t, "DIALECT", d.Name, "URL", serve(t, s), "API_KEY", key, "MODEL", "text-reranker")
			about, err := h.Describe(t.Context())
			if err != nil || !about.Reranks || about.Dims != 1 {
				t.Fatalf("described as %+v, %v", about, err)
			}
			texts := []string{"one", "two, ΔΩ 日本語", "", "three"}
			scores, err := h.Rerank(t.Context(), "which?", texts)
			if err != nil {
				t.Fatal(err)
			}
			for i, text := range texts {
				if want := s.Score("which?", text); text != "" && scores[i] != want {
					t.Errorf("%q: %g, want %g", text, scores[i], want)
				}
			}
		})
	}
}

// TestDialects runs the real plugin against a strict server of each dialect, which refuses undocumented fields.
func TestDialects(t *testing.T) {
	for _, d := range dialect.All() {
		if d.Reranks {
			continue
		}
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			s := &remotetest.Server{Dialect: d.Name, Dims: dims, Key: key}
			keyFile := filepath.Join(t.TempDir(), "key")
			if err := os.WriteFile(keyFile, []byte(key+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			env := []string{"DIALECT", d.Name, "URL", serve(t, s), "API_KEY_FILE", keyFile, "MODEL", "text-embedder"}
			if d.Sparse {
				env = append(env, "DIMS", strconv.Itoa(dims))
			}
			h, _ := open(t, env...)
			about, err := h.Describe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if about.Dims != dims || about.Model != "docs-model" || about.Plugin != "remote" || about.Sparse != d.Sparse {
				t.Errorf("described as %+v", about)
			}
			texts := make([]string, 300)
			for i := range texts {
				texts[i] = fmt.Sprintf("text %d, ΔΩ 日本語 \u2028 <&> \"quoted\"", i)
			}
			texts[7], texts[8] = "", " \n\t"
			for _, kind := range []embed.Kind{embed.Document, embed.Query} {
				results, err := h.Embed(t.Context(), kind, texts)
				if err != nil {
					t.Fatal(err)
				}
				tokens := 0
				for i, r := range results {
					tokens += r.Tokens
					if i == 7 || i == 8 {
						if !r.Empty {
							t.Errorf("%s %d: want empty, got %+v", kind, i, r)
						}
						continue
					}
					want := s.Vector(texts[i], d.Kinds && kind == embed.Query, dims)
					if d.Sparse {
						want = s.Sparse(texts[i])
					}
					if r.Err != nil || about.Likeness(r.Vector, want) < 0.99999 {
						t.Fatalf("%s %d: not the vector of its text (error %v)", kind, i, r.Err)
					}
				}
				told := !strings.HasPrefix(d.Name, "tei") && d.Name != "gemini" && d.Name != "bedrock-cohere"
				if (tokens > 0) != told {
					t.Errorf("%d tokens counted", tokens)
				}
			}
			if _, err := h.Tokenize(t.Context(), texts); !errors.Is(err, embed.ErrNoTokens) {
				t.Errorf("tokens: %v, want ErrNoTokens: no dialect tells where they end, so chunks are cut by an estimate", err)
			}
			for _, c := range s.Calls() {
				if len(c.Texts) > d.Limits.Texts {
					t.Errorf("%d texts in one request, the limit is %d", len(c.Texts), d.Limits.Texts)
				}
			}
		})
	}
}
