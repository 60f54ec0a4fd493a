package serve_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/door/serve"
	"github.com/embedsidecar/embedsidecar/testenv"
)

func line(name, token string) string {
	sum := sha256.Sum256([]byte(token))
	return name + ":query:" + hex.EncodeToString(sum[:]) + "\n"
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func TestTokens_OnlyThoseOfTheFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	write(t, path, "# who may ask\n\n"+line("app", "first token"))
	tokens, err := gate.ReadTokens(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, func(o *serve.Options) { o.Tokens = tokens })
	asks := func(header string) int {
		t.Helper()
		a := s.do("GET", "/v1/models", "", "Authorization", header)
		if a.status == http.StatusUnauthorized {
			if code, _ := a.problem(t); code != "invalid_api_key" || a.header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s %v", a.body, a.header)
			}
		}
		return a.status
	}
	sum := sha256.Sum256([]byte("first token"))
	for header, want := range map[string]int{
		"Bearer first token": 200, "bearer first token": 200, "Bearer second": 401, "Bearer ": 401, "": 401,
		"Basic Zmlyc3Q6dG9rZW4=":               401,
		"Bearer " + hex.EncodeToString(sum[:]): 401, "first token": 401,
	} {
		if got := asks(header); got != want {
			t.Errorf("%q: %d, want %d", header, got, want)
		}
	}
	if a := s.do("GET", "/healthz", ""); a.status != http.StatusOK {
		t.Errorf("a probe needs a token: %d", a.status)
	}

	write(t, path, line("app", "second token"))
	testenv.Eventually(t, timeout, func() (bool, string) {
		return asks("Bearer second token") == 200, "the new token is not taken"
	})
	if got := asks("Bearer first token"); got != 401 {
		t.Errorf("the token that was taken out: %d", got)
	}
	write(t, path, "app:query:not a hash\n") // during an edit
	for until := time.Now().Add(1500 * time.Millisecond); time.Now().Before(until); {
		if got := asks("Bearer second token"); got != 200 {
			t.Fatalf("a file that is wrong took away a token: %d", got)
		}
	}
}

func TestReadTokens_NamesTheLineAndNotTheToken(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		"":                              "no token",
		"\n \n":                         "no token",
		"sk-my-secret\n":                "line 1",
		"\nname:query:sk-my-secret":     "line 2",
		"name:king:" + line("", "")[7:]: "role",
		":query:" + line("", "")[7:]:    "line 1",
	} {
		path := filepath.Join(t.TempDir(), "tokens")
		write(t, path, content)
		_, err := gate.ReadTokens(path, nil)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "sk-my-secret") {
			t.Errorf("%q: %v, want %q", content, err, want)
		}
	}
}

func TestListen_WithoutTokensOnlyOnLoopback(t *testing.T) {
	t.Parallel()
	for _, address := range []string{":0", "0.0.0.0:0", "[::]:0", "192.0.2.1:7470"} {
		s, err := serve.Listen(t.Context(), serve.Options{Options: gate.Options{Listen: address}, Backend: &backend{}})
		var open *gate.OpenError
		if !errors.As(err, &open) || len(open.Hints()) == 0 {
			t.Errorf("%s: %v", address, err)
		}
		if s != nil {
			_ = s.Close()
		}
	}
}
