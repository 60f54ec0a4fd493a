package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/door/gate"
)

func TestToken_LetsSomebodyInAndOut(t *testing.T) {
	t.Parallel()
	s := newStage(t, 0)
	_, stderr := s.run(2, "token", "create", "app")
	s.has(stderr, "--tokens-file")
	file := filepath.Join(t.TempDir(), "tokens")
	s.set("EMBEDSIDECAR_TOKENS_FILE=" + file)
	_, stderr = s.run(2, "token", "list")
	s.has(stderr, "token create")
	secret, stderr := s.run(0, "token", "create", "app")
	secret = strings.TrimSuffix(secret, "\n")
	s.has(stderr, `token "app" with role query is in `+file)
	if strings.ContainsAny(secret, " \n") || !strings.HasPrefix(secret, gate.TokenPrefix) {
		t.Errorf("%q is not a token alone", secret)
	}
	_, stderr = s.run(8, "token", "create", "app")
	s.has(stderr, "token revoke")
	stdout, _ := s.run(0, "token", "create", "second", "--role", "embed", "-o", "json")
	made := decoded[struct{ Name, Role, ID, Token string }](t, stdout)
	if made.Name != "second" || made.Role != "embed" || made.ID == "" || made.Token == secret {
		t.Errorf("%+v", made)
	}
	s.run(0, "token", "create", "narrow", "--only", "docs: all", "--only", "b", "--filter", "tenant=7", "--filter",
		"tenant=8", "--database-role", "reader")
	_, stderr = s.run(2, "token", "create", "third", "--role", "embed", "--only", "docs")
	s.has(stderr, "searches nothing")
	_, stderr = s.run(2, "token", "create", "third", "--role", "auditor")
	s.has(stderr, "a role is query or embed or viewer or operator or admin")
	_, stderr = s.run(2, "token", "create", "third", "--filter", "tenant")
	s.has(stderr, "COLUMN=VALUE")
	for _, ttl := range []string{"0s", "-1d", "d", "1y", "soon", "99999999d"} {
		_, stderr = s.run(2, "token", "create", "third", "--ttl", ttl)
		s.has(stderr, "such as 12h or 90d")
	}
	_, stderr = s.run(0, "token", "create", "for90", "--ttl", "90d")
	until := time.Now().Add(90 * 24 * time.Hour).UTC().Format("2006-01-02")
	s.has(stderr, "until "+until)
	stdout, _ = s.run(0, "token", "list")
	s.has(stdout, "expires="+until)
	s.has(stdout, "NAME", "LIMITS", "app", "query", "second", "embed", made.ID,
		"database_role=reader&filter.tenant=7&filter.tenant=8&pipeline=docs%3A+all&pipeline=b")
	if strings.Contains(stdout, secret) {
		t.Errorf("a token shows: %s", stdout)
	}

	d := s.background("serve", "--log-format", "json", "--http", "127.0.0.1:0")
	address := d.logged("queries are answered", "address")
	for token, want := range map[string]int{
		secret: http.StatusOK, made.Token: http.StatusOK,
		"": http.StatusUnauthorized,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/v1/models", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		response, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if _ = response.Body.Close(); response.StatusCode != want {
			t.Errorf("%s, want %d", response.Status, want)
		}
	}
	_, stderr = s.run(0, "token", "revoke", "app")
	s.has(stderr, "1 token revoked")
	_, stderr = s.run(9, "token", "revoke", "app")
	s.has(stderr, `no token "app"`)
	_, stderr = s.run(2, "token", "create", "a:b")
	s.has(stderr, "no colon")
}

// TestTrust_ATokenHasEveryLimitThatWasAskedFor: a limit that a token cannot have is refused, not dropped.
func TestTrust_ATokenHasEveryLimitThatWasAskedFor(t *testing.T) {
	t.Parallel()
	s := newStage(t, 0)
	file := filepath.Join(t.TempDir(), "tokens")
	s.set("EMBEDSIDECAR_TOKENS_FILE=" + file)
	for _, limit := range [][2]string{
		{"filter", `{"tenant": {"$lt": 4}}`},
		{"filter", `{"tenant": {"$nin": [4]}}`},
		{"filter", `{"tenant": null}`},
		{"filter", `{}`},
		{"filter", " {}=1"},
		{"filter", ""},
		{"filter", "=7"},
		{"only", ""},
		{"database", ""},
		{"database-role", ""},
		{"ttl", ""},
	} {
		_, stderr := s.run(2, "token", "create", "narrow", "--"+limit[0], limit[1])
		s.has(stderr, "error")
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("a token was made")
	}
	_, stderr := s.run(2, "search", "docs", "a text", "--filter", `{"id": {"$lt": 4}}`, "--filter", "id=7")
	s.has(stderr, "given twice")
}
