package gate

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/owned"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
)

// Token is a line of a file of tokens. The token itself is not stored.
type Token struct {
	Name string `json:"name"`
	ID   string `json:"id"` // the first digits of its SHA-256, which distinguish tokens of the same name

	Grant

	hash [sha256.Size]byte
}

func tokenOf(name string, grant Grant, hash [sha256.Size]byte) Token {
	return Token{Name: name, ID: hex.EncodeToString(hash[:6]), Grant: grant, hash: hash}
}

// ErrTokenName means that the name is in use.
var ErrTokenName = errors.New("there is a token of that name")

// TokenPrefix is the prefix of every token that CreateToken makes, so that secret scanners find it.
const TokenPrefix = "embedsidecar_"

// CreateToken makes a token of 256 random bits, writes its hash into a file, and returns the token, which cannot be
// read again. It creates a missing file, for its owner only. A name that is already in the file is rejected with
// ErrTokenName.
func CreateToken(path, name string, grant Grant) (secret string, about Token, err error) {
	const longest = 100
	if name == "" || len(name) > longest || strings.HasPrefix(name, "#") || strings.ContainsFunc(name,
		func(r rune) bool { return r <= ' ' || r == ':' || r == 0x7f || r == '\uFFFD' }) {
		return "", about, fmt.Errorf("create token: a name has up to %d characters, no spaces and no colon, and does not begin with #", longest)
	}
	if err := grant.check(); err != nil {
		return "", about, fmt.Errorf("create token: %w", err)
	}
	if grant.Expired() {
		return "", about, errors.New("create token: it would have expired already")
	}
	grant.Expires = grant.Expires.Truncate(time.Second)
	random := make([]byte, 32)
	_, _ = rand.Read(random) // never fails
	secret = TokenPrefix + base64.RawURLEncoding.EncodeToString(random)
	sum := sha256.Sum256([]byte(secret))
	err = editTokens(path, true, func(old []byte) ([]byte, error) {
		list, err := parseTokens(old)
		if err != nil && !errors.Is(err, errNobody) {
			return nil, err
		}
		if slices.ContainsFunc(list, func(t Token) bool { return t.Name == name }) {
			return nil, ErrTokenName
		}
		if len(list) >= maxTokens {
			return nil, fmt.Errorf("%d tokens are the maximum", maxTokens)
		}
		if len(old) > 0 && !bytes.HasSuffix(old, []byte("\n")) {
			old = append(old, '\n')
		}
		line := fmt.Sprintf("%s:%s:%x", name, grant.Role, sum)
		if limits := grant.Limits(); limits != "" {
			line += ":" + limits
		}
		return append(old, line+"\n"...), nil
	})
	if err != nil {
		return "", about, fmt.Errorf("create token: %w", err)
	}
	return secret, tokenOf(name, grant, sum), nil
}

// ListTokens returns the tokens of a file, in its order.
func ListTokens(path string) ([]Token, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("list tokens: %w", err)
	}
	list, err := parseTokens(data)
	if err != nil && !errors.Is(err, errNobody) {
		return nil, fmt.Errorf("list tokens: %s: %w", path, err)
	}
	return append([]Token{}, list...), nil
}

// RevokeTokens removes the tokens with a name from a file and returns their number. It keeps comments.
func RevokeTokens(path, name string) (revoked int, err error) {
	err = editTokens(path, false, func(old []byte) ([]byte, error) {
		if _, err := parseTokens(old); err != nil && !errors.Is(err, errNobody) {
			return nil, err
		}
		var kept []byte
		for line := range bytes.Lines(old) {
			if owner, _, ok := bytes.Cut(bytes.TrimSpace(line), []byte(":")); ok && string(owner) == name {
				revoked++
				continue
			}
			kept = append(kept, line...)
		}
		if revoked == 0 {
			return nil, nil
		}
		if len(kept) == 0 { // an empty file could be one that is just being written
			kept = []byte("# no tokens: no one may query\n")
		}
		return kept, nil
	})
	return revoked, wrap.Errorf(err, "revoke tokens")
}

// editTokens replaces the content of a file atomically. The file keeps its owner and its permissions. An edit to nil
// changes nothing.
func editTokens(path string, create bool, edit func(old []byte) ([]byte, error)) (err error) {
	if target, failed := filepath.EvalSymlinks(path); failed == nil {
		path = target
	}
	next, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("another process is changing %s, or was interrupted: if none is running, remove %s.new", path, path)
	}
	if err != nil {
		return err
	}
	done := false
	defer func() {
		if !done {
			err = errors.Join(err, next.Close(), os.Remove(next.Name()))
		}
	}()
	old, err := os.ReadFile(path)
	if err != nil && (!create || !errors.Is(err, fs.ErrNotExist)) {
		return err
	}
	if err == nil {
		if err := checkWriters(path); err != nil {
			return err
		}
		if err := likeFile(next, path); err != nil {
			return err
		}
	}
	content, err := edit(old)
	if err != nil || content == nil {
		return err
	}
	if _, err := next.Write(content); err != nil {
		return err
	}
	if err := next.Sync(); err != nil {
		return err
	}
	if err := os.Rename(next.Name(), path); err != nil {
		return err
	}
	done = true
	return next.Close()
}

// checkWriters rejects a file that other users could add tokens to.
func checkWriters(path string) error {
	const others = 0o022
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Mode().Perm()&others != 0 {
		return fmt.Errorf("%s may be written by others than its owner (%s), who could let themselves in: chmod go-w %s", path,
			info.Mode().Perm(), path)
	}
	return wrap.Errorf(owned.Check(path), "others could let themselves in")
}

// likeFile copies the permissions and, where there are owners, the owner of another file: the program that reads it may
// run as another user.
func likeFile(f *os.File, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if err := f.Chmod(info.Mode().Perm()); err != nil {
		return err
	}
	if was, ok := info.Sys().(*syscall.Stat_t); ok {
		return f.Chown(int(was.Uid), int(was.Gid))
	}
	return nil
}
