package serve

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// Tokens are who may ask. They come from a file with a line NAME:ROLE:HASH or NAME:ROLE:HASH:LIMITS for each, where
// HASH is the SHA-256 of the token in hexadecimal, ROLE is one of Roles and LIMITS are what Grant.Limits writes; empty
// lines and those that begin with # do not count. A file that the group or others may write is refused. The file is
// read again when it changes; one that is wrong or empty then leaves those before in force. One that holds nothing but
// comments, as after the last token was revoked, lets nobody ask.
type Tokens struct {
	path string
	log  *slog.Logger

	mu      sync.Mutex
	list    []token
	stamp   stamp  // of what is in force
	wrong   string // what is wrong with the file since an earlier look, as it was told; "": nothing
	checked time.Time
}

type token struct {
	Grant

	name string
	hash [sha256.Size]byte
}

// maxTokens bounds the file: each question is compared with every token.
const maxTokens = 1000

// ReadTokens reads a file of tokens. Whoever can read it learns no token.
func ReadTokens(path string, log *slog.Logger) (*Tokens, error) {
	t := &Tokens{path: path, log: log}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t, t.loadLocked()
}

// OneToken is the token of one person, which no file holds.
func OneToken(name, role, secret string) *Tokens {
	return &Tokens{list: []token{{name: name, Grant: Grant{Role: role}, hash: sha256.Sum256([]byte(secret))}}}
}

func (t *Tokens) loadLocked() error {
	if t.path == "" {
		return nil
	}
	data, found, err := readStamped(t.path)
	if err == nil {
		err = checkWriters(t.path)
	}
	if err != nil {
		return fmt.Errorf("read tokens: %w", err)
	}
	if t.list != nil && found == t.stamp {
		return nil
	}
	list, err := parseTokens(data)
	if errors.Is(err, errNobody) && len(bytes.TrimSpace(data)) > 0 {
		if list, err = []token{}, nil; t.log != nil {
			t.log.Warn("no token is left: nobody may query before there is one, which embedsidecar token create makes", "file",
				t.path)
		}
	}
	if err != nil {
		return fmt.Errorf("read tokens: %s: %w", t.path, err)
	}
	t.list, t.stamp = list, found
	return nil
}

var errNobody = errors.New("it holds no token: nobody could ask; embedsidecar token create makes one")

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

// now returns the tokens in force.
func (t *Tokens) now() []token {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.checked) > checkEvery {
		t.checked = time.Now()
		t.wrong = tell(t.log, t.wrong, t.loadLocked(), t.path)
	}
	return t.list
}

// Still returns what a token lets its holder do now, if it is in force.
func (t *Tokens) Still(who Token) (now Token, ok bool) {
	list := t.now()
	at := slices.IndexFunc(list, func(l token) bool { return l.name == who.Name && idOf(l.hash) == who.ID })
	if at < 0 || list[at].Expired() {
		return now, false
	}
	return list[at].about(), true
}

// Who returns the one whose token this is; ok is false also for one that has expired. How long it takes says nothing
// about the tokens.
func (t *Tokens) Who(secret string) (who Token, ok bool) {
	list := t.now()
	hash := sha256.Sum256([]byte(secret))
	for i := range list {
		if subtle.ConstantTimeCompare(hash[:], list[i].hash[:]) == 1 {
			who, ok = list[i].about(), true
		}
	}
	return who, ok && !who.Expired()
}

func (t *token) about() Token { return Token{Name: t.name, ID: idOf(t.hash), Grant: t.Grant} }
