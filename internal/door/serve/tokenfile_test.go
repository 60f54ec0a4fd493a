package serve_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/door/serve"
	"github.com/embedsidecar/embedsidecar/testenv"
	"github.com/embedsidecar/embedsidecar/testenv/logs"
)

// queries is the grant of most tokens.
var queries = gate.Grant{Role: gate.RoleQuery}

// asker is a server with a file of tokens.
type asker struct {
	*server
	t    *testing.T
	path string
	log  logs.Buffer
}

func newAsker(t *testing.T, path string) *asker {
	t.Helper()
	g := &asker{t: t, path: path}
	tokens, err := gate.ReadTokens(path, logger(&g.log))
	if err != nil {
		t.Fatal(err)
	}
	g.server = start(t, func(o *serve.Options) { o.Tokens = tokens })
	return g
}

func (g *asker) asks(secret string) int {
	g.t.Helper()
	return g.do("GET", "/v1/models", "", "Authorization", "Bearer "+secret).status
}

func (g *asker) becomes(secret string, want int) {
	g.t.Helper()
	testenv.Eventually(g.t, timeout, func() (bool, string) {
		got := g.asks(secret)
		return got == want, fmt.Sprintf("%d, want %d; %s", got, want, g.log.String())
	})
}

func (g *asker) revokes(name string, want int) {
	g.t.Helper()
	if n, err := gate.RevokeTokens(g.path, name); n != want || err != nil {
		g.t.Errorf("%q: %d revoked, want %d; %v", name, n, want, err)
	}
}

// gainsAnother adds a token through a symbolic link. The file keeps its content and its permissions.
func (g *asker) gainsAnother(first, content string) (secret string) {
	g.t.Helper()
	if err := os.Chmod(g.path, 0o640); err != nil {
		g.t.Fatal(err)
	}
	// without a newline at the end
	if err := os.WriteFile(g.path, []byte("# who may ask\n\n"+strings.TrimSuffix(content, "\n")), 0o600); err != nil {
		g.t.Fatal(err)
	}
	link := filepath.Join(g.t.TempDir(), "link")
	if err := os.Symlink(g.path, link); err != nil {
		g.t.Fatal(err)
	}
	secret, _, err := gate.CreateToken(link, "other", gate.Grant{Role: gate.RoleEmbed})
	if err != nil || secret == first || len(secret) < len(gate.TokenPrefix)+43 {
		g.t.Fatalf("%d characters, %v", len(secret), err)
	}
	info, err := os.Lstat(g.path)
	if err != nil || info.Mode() != 0o640 {
		g.t.Errorf("after another token: %v, %v", info.Mode(), err)
	}
	if now, err := os.Lstat(link); err != nil || now.Mode()&fs.ModeSymlink == 0 {
		g.t.Errorf("the link is none any more: %v, %v", now.Mode(), err)
	}
	if now, err := os.ReadFile(g.path); err != nil || !strings.HasPrefix(string(now), "# who may ask\n\n"+content) {
		g.t.Errorf("%q, %v", now, err)
	}
	return secret
}

// startsForNobody: a start after the last token was revoked admits no client, and logs that. The rest of the program
// works.
func (g *asker) startsForNobody(revoked string) {
	g.t.Helper()
	var restarted logs.Buffer
	if later, err := gate.ReadTokens(g.path, logger(&restarted)); err != nil || !strings.Contains(restarted.String(),
		"no one may query") {
		g.t.Errorf("a start without a token: %v; %s", err, restarted.String())
	} else if who, known := later.Who(revoked); known {
		g.t.Errorf("a start without a token lets %s in", who.Name)
	}
	for _, nothing := range []string{"", "\n \n"} {
		empty := filepath.Join(g.t.TempDir(), "empty")
		write(g.t, empty, nothing)
		if _, err := gate.ReadTokens(empty, nil); err == nil || !strings.Contains(err.Error(), "token create") {
			g.t.Errorf("a start with the file %q: %v", nothing, err)
		}
	}
}

func TestTokenFile_FromTheFirstTokenToNone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	first, about, err := gate.CreateToken(path, "app", queries)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the new file: %v, %v", info.Mode(), err)
	}
	content, err := os.ReadFile(path)
	if err != nil || strings.Contains(string(content), first) || string(content) != strings.Replace(line("app", first),
		":query:", ":"+about.Role+":", 1) {
		t.Errorf("%q, %v", content, err)
	}
	g := newAsker(t, path)
	if got := g.asks(first); got != 200 {
		t.Errorf("the first token: %d", got)
	}

	second := g.gainsAnother(first, string(content))
	g.becomes(second, 200)
	if _, _, err := gate.CreateToken(path, "app", queries); !errors.Is(err, gate.ErrTokenName) {
		t.Errorf("a name that is taken: %v", err)
	}
	list, err := gate.ListTokens(path)
	if err != nil || len(list) != 2 || !reflect.DeepEqual(list[0], about) || list[1].Name != "other" ||
		list[1].Role != gate.RoleEmbed {
		t.Errorf("%+v, %v", list, err)
	}

	g.revokes("app", 1)
	g.becomes(first, 401)
	if got := g.asks(second); got != 200 {
		t.Errorf("the token that stays: %d", got)
	}
	g.revokes("app", 0)
	// The last one can be revoked, too.
	g.revokes("other", 1)
	g.becomes(second, 401)
	if !strings.Contains(g.log.String(), "no one may query") {
		t.Errorf("the log does not tell: %s", g.log.String())
	}
	g.startsForNobody(second)

	third, _, err := gate.CreateToken(path, "app", queries)
	if err != nil {
		t.Fatal(err)
	}
	g.becomes(third, 200)
	if left, err := filepath.Glob(path + ".*"); err != nil || len(left) != 0 {
		t.Errorf("left over: %q, %v", left, err)
	}
}

func TestTokenFile_RevokingTheOnlyLineLeavesNobody(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	secret, _, err := gate.CreateToken(path, "app", queries)
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := gate.ReadTokens(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := gate.RevokeTokens(path, "app"); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, timeout, func() (bool, string) {
		_, known := tokens.Who(secret)
		return !known, "the only token is still in force"
	})
}

// An unusable file is reported once until it is fixed, even if its content changes in between.
func TestTokenFile_WhatIsWrongIsToldOnceUntilItIsMended(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	write(t, path, line("app", "first"))
	var log logs.Buffer
	tokens, err := gate.ReadTokens(path, logger(&log))
	if err != nil {
		t.Fatal(err)
	}
	const failed, mended = "file not reloaded", "file is valid again"
	tells := func(what string, times int) {
		t.Helper()
		testenv.Eventually(t, timeout, func() (bool, string) {
			if _, known := tokens.Who("first"); !known {
				t.Fatalf("the token from before is not in force any more: %s", log.String())
			}
			return strings.Count(log.String(), what) >= times, fmt.Sprintf("%q is not told %d times: %s", what, times,
				log.String())
		})
	}
	write(t, path, "nonsense\n")
	tells("expected NAME:ROLE:HASH", 1)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil { // unreadable even for root
		t.Fatal(err)
	}
	tells("is no file", 1)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	write(t, path, "nonsense\n") // not fixed: invalid as before
	tells("expected NAME:ROLE:HASH", 2)
	if strings.Contains(log.String(), mended) {
		t.Errorf("told as mended: %s", log.String())
	}
	write(t, path, line("app", "first"))
	tells(mended, 1)
	write(t, path, "nonsense\n")
	tells("expected NAME:ROLE:HASH", 3)
	write(t, path, line("other", "first"))
	tells(mended, 2)
	if got := strings.Count(log.String(), failed); got != 4 {
		t.Errorf("told %d times, want 4: %s", got, log.String())
	}
}

func TestTokenFile_WhatIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "tokens")
	for _, name := range []string{"", "a b", "a:b", "#a", "a\nb", "a\x00", strings.Repeat("x", 101), "\xff"} {
		if _, _, err := gate.CreateToken(path, name, queries); err == nil {
			t.Errorf("the name %q was taken", name)
		}
	}
	if _, _, err := gate.CreateToken(path, "app", gate.Grant{Role: "king"}); err == nil {
		t.Error("the role king was taken")
	}
	if _, _, err := gate.CreateToken(filepath.Join(dir, "none", "tokens"), "app", queries); !errors.Is(err,
		fs.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
	for what, err := range map[string]error{
		"list":   second(gate.ListTokens(path)),
		"revoke": second(gate.RevokeTokens(path, "app")),
	} {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s without a file: %v", what, err)
		}
	}
	// A file in another format stays unchanged, because it may be another file.
	const foreign = "root:x:0:0:root:/root:/bin/sh\n"
	write(t, path, foreign)
	if _, _, err := gate.CreateToken(path, "app", queries); err == nil {
		t.Error("a token was written into a file of another kind")
	}
	if _, err := gate.RevokeTokens(path, "root"); err == nil {
		t.Error("a line was taken out of a file of another kind")
	}
	if now, err := os.ReadFile(path); err != nil || string(now) != foreign {
		t.Errorf("%q, %v", now, err)
	}
	write(t, path, line("app", "x"))
	if err := os.WriteFile(path+".new", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := gate.CreateToken(path, "other", queries); err == nil || !strings.Contains(err.Error(), "tokens.new") {
		t.Errorf("while somebody else is at it: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

// Concurrent creations lose no token: each is in the file, or got an error about the other process.
func TestTokenFile_ManyAtATime(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	var all sync.WaitGroup
	var made atomic.Int64
	for i := range 20 {
		all.Go(func() {
			if _, _, err := gate.CreateToken(path, fmt.Sprint("app", i), queries); err == nil {
				made.Add(1)
			} else if !strings.Contains(err.Error(), "another process") {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if list, err := gate.ListTokens(path); err != nil || int64(len(list)) != made.Load() || len(list) == 0 {
		t.Errorf("%d tokens, %d made, %v", len(list), made.Load(), err)
	}
}
