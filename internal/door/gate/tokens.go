package gate

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/base/httpserver"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
)

// Tokens are who may ask. They come from a file with a line NAME:ROLE:HASH or NAME:ROLE:HASH:LIMITS for each, where
// HASH is the SHA-256 of the token in hexadecimal, ROLE is one of Roles and LIMITS are what Grant.Limits writes; empty
// lines and those that begin with # do not count. A file that the group or others may write is refused. The file is
// read again when it changes; one that is wrong or empty then leaves those before in force. One that holds nothing but
// comments, as after the last token was revoked, lets nobody ask.
type Tokens struct{ file httpserver.Files[[]token] }

type token struct {
	Grant

	name string
	hash [sha256.Size]byte
}

// maxTokens bounds the file: each question is compared with every token.
const maxTokens = 1000

// ReadTokens reads a file of tokens. Whoever can read it learns no token.
func ReadTokens(path string, log *slog.Logger) (*Tokens, error) {
	t := &Tokens{}
	t.file.Paths, t.file.Log = []string{path}, log
	t.file.Parse = func(content [][]byte) ([]token, error) {
		if err := checkWriters(path); err != nil {
			return nil, err
		}
		list, err := parseTokens(content[0])
		if errors.Is(err, errNobody) && len(bytes.TrimSpace(content[0])) > 0 {
			if list, err = []token{}, nil; log != nil {
				log.Warn("no token is left: no one may query until embedsidecar token create makes one",
					"file", path)
			}
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
		return list, err
	}
	err := t.file.Load()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, problem.New(problem.Usage, fmt.Errorf("read tokens: %w", err),
			"make it with its first token: embedsidecar token create NAME --tokens-file "+path)
	}
	return t, wrap.Errorf(err, "read tokens")
}

// OneToken is the token of one person, which no file holds.
func OneToken(name, role, secret string) *Tokens {
	t := &Tokens{}
	t.file.Parse = func([][]byte) ([]token, error) {
		return []token{{name: name, Grant: Grant{Role: role}, hash: sha256.Sum256([]byte(secret))}}, nil
	}
	_ = t.file.Load() // no file: nothing fails
	return t
}

var errNobody = errors.New("it has no token; embedsidecar token create makes one")

func parseTokens(data []byte) ([]token, error) {
	var list []token
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		// The line itself is not repeated: it may be a token by mistake.
		parts := strings.SplitN(line, ":", 4) //nolint:mnd // with limits
		if len(parts) < 3 || parts[0] == "" {
			return nil, fmt.Errorf("line %d: expected NAME:ROLE:HASH or NAME:ROLE:HASH:LIMITS", n)
		}
		grant := Grant{Role: parts[1]}
		if len(parts) > 3 {
			if err := grant.limit(parts[3]); err != nil {
				return nil, fmt.Errorf("line %d: %w", n, err)
			}
		}
		if err := grant.check(); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		sum, err := hex.DecodeString(parts[2])
		if err != nil || len(sum) != sha256.Size {
			return nil, fmt.Errorf("line %d: the hash is not 64 hexadecimal digits: it is the SHA-256 of the token, as printf %%s TOKEN | sha256sum prints it", n)
		}
		list = append(list, token{name: parts[0], Grant: grant, hash: [sha256.Size]byte(sum)})
	}
	switch err := lines.Err(); {
	case err != nil:
		return nil, err
	case len(list) == 0:
		return nil, errNobody
	case len(list) > maxTokens:
		return nil, fmt.Errorf("%d tokens are too many, %d are possible", len(list), maxTokens)
	}
	return list, nil
}

// Still returns what a token lets its holder do now, if it is in force.
func (t *Tokens) Still(who Token) (now Token, ok bool) {
	list := t.file.Now()
	at := slices.IndexFunc(list, func(l token) bool { return l.name == who.Name && idOf(l.hash) == who.ID })
	if at < 0 || list[at].Expired() {
		return now, false
	}
	return list[at].about(), true
}

// Who returns the one whose token this is; ok is false also for one that has expired. How long it takes says nothing
// about the tokens.
func (t *Tokens) Who(secret string) (who Token, ok bool) {
	list := t.file.Now()
	hash := sha256.Sum256([]byte(secret))
	for i := range list {
		if subtle.ConstantTimeCompare(hash[:], list[i].hash[:]) == 1 {
			who, ok = list[i].about(), true
		}
	}
	return who, ok && !who.Expired()
}

func (t *token) about() Token { return Token{Name: t.name, ID: idOf(t.hash), Grant: t.Grant} }
