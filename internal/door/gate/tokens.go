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
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/embedsidecar/embedsidecar/internal/base/httpserver"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
)

// Tokens are the valid tokens. They come from a file with a line NAME:ROLE:HASH or NAME:ROLE:HASH:LIMITS for each. HASH
// is the SHA-256 of the token in hexadecimal, ROLE is one of Roles, and LIMITS has the format of Grant.Limits. Empty
// lines and lines that begin with # are ignored. A file that its group or others may write is rejected, and so is one
// in a folder where other users may replace it. The file is read again when it changes. If the new content is invalid
// or empty, the tokens before stay valid. A file with only comments, as after the last token was revoked, admits no
// client.
type Tokens struct{ file httpserver.Files[[]Token] }

// maxTokens limits the file: each request is compared with every token.
const maxTokens = 1000

// ReadTokens reads a file of tokens. The file does not reveal the tokens.
func ReadTokens(path string, log *slog.Logger) (*Tokens, error) {
	t := &Tokens{}
	t.file.Paths, t.file.Log = []string{path}, log
	t.file.Parse = func(content [][]byte) ([]Token, error) {
		if err := checkWriters(path); err != nil {
			return nil, err
		}
		list, err := parseTokens(content[0])
		if errors.Is(err, errNobody) && len(bytes.TrimSpace(content[0])) > 0 {
			if list, err = []Token{}, nil; log != nil {
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

// OneToken returns a single token without a file.
func OneToken(name, role, secret string) *Tokens {
	t := &Tokens{}
	t.file.Parse = func([][]byte) ([]Token, error) {
		return []Token{tokenOf(name, Grant{Role: role}, sha256.Sum256([]byte(secret)))}, nil
	}
	_ = t.file.Load() // without a file it cannot fail
	return t
}

var errNobody = errors.New("it has no token; embedsidecar token create makes one")

func parseTokens(data []byte) ([]Token, error) {
	var list []Token
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		// The message does not repeat the line, because it may hold a token by mistake.
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
		list = append(list, tokenOf(parts[0], grant, [sha256.Size]byte(sum)))
	}
	switch err := lines.Err(); {
	case err != nil:
		return nil, err
	case len(list) == 0:
		return nil, errNobody
	case len(list) > maxTokens:
		return nil, fmt.Errorf("%d tokens exceed the maximum of %d", len(list), maxTokens)
	}
	return list, nil
}

// Still returns the current data of a token, if it is still valid.
func (t *Tokens) Still(who Token) (now Token, ok bool) {
	list := t.file.Now()
	at := slices.IndexFunc(list, func(t Token) bool { return t.Name == who.Name && t.ID == who.ID })
	if at < 0 || list[at].Expired() {
		return now, false
	}
	return list[at], true
}

// Who returns the token with a secret; ok is false for an expired one, too. The comparison takes constant time.
func (t *Tokens) Who(secret string) (who Token, ok bool) {
	list := t.file.Now()
	hash := sha256.Sum256([]byte(secret))
	for i := range list {
		if subtle.ConstantTimeCompare(hash[:], list[i].hash[:]) == 1 {
			who, ok = list[i], true
		}
	}
	return who, ok && !who.Expired()
}

// The roles of tokens. The first two query; the others administer, on another listener.
const (
	RoleQuery    = "query"    // embed texts and search pipelines
	RoleEmbed    = "embed"    // embed texts, without access to the database
	RoleViewer   = "viewer"   // see the state
	RoleOperator = "operator" // also pause, resume, retry and so on
	RoleAdmin    = "admin"    // also see the configuration and reload plugins
)

// Roles lists the roles.
var Roles = []string{RoleQuery, RoleEmbed, RoleViewer, RoleOperator, RoleAdmin}

// Grant holds the rights of a token. The zero Grant, for a listener without tokens, allows everything.
type Grant struct {
	Role string `json:"role"`
	// pipelines that may be searched, or administered, and whose models may be used; empty: all
	Pipelines []string `json:"pipelines,omitempty"`
	// databases, if there are several; empty: all
	Databases []string `json:"databases,omitempty"`
	// columns with values: searches find only such rows
	Filter map[string][]string `json:"filter,omitempty"`
	// role that searches run as; "": that of the program's connections
	DatabaseRole string `json:"database_role,omitempty"`
	// when the token expires; zero: never
	Expires time.Time `json:"expires,omitzero"`
}

// Names of the parameters of Grant.Limits.
const (
	limitPipeline     = "pipeline"
	limitDatabase     = "database"
	limitFilter       = "filter."
	limitDatabaseRole = "database_role"
	limitExpires      = "expires"
)

// Limits encodes the limits of a grant as URL parameters: pipeline=docs&filter.tenant=7&database_role=reader. "": no
// limits.
func (g Grant) Limits() string {
	v := url.Values{}
	for _, name := range g.Pipelines {
		v.Add(limitPipeline, name)
	}
	for _, name := range g.Databases {
		v.Add(limitDatabase, name)
	}
	for column, values := range g.Filter {
		v[limitFilter+column] = values
	}
	if g.DatabaseRole != "" {
		v.Set(limitDatabaseRole, g.DatabaseRole)
	}
	if !g.Expires.IsZero() {
		v.Set(limitExpires, g.Expires.UTC().Format(time.RFC3339))
	}
	return v.Encode()
}

// limit parses the output of Limits.
func (g *Grant) limit(limits string) error {
	values, err := url.ParseQuery(limits)
	if err != nil {
		return errors.New("the limits are not of the form pipeline=NAME&database=NAME&filter.COLUMN=VALUE&database_role=ROLE&expires=TIME")
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		column, isFilter := strings.CutPrefix(name, limitFilter)
		switch {
		case name == limitPipeline:
			g.Pipelines = values[name]
		case name == limitDatabase:
			g.Databases = values[name]
		case name == limitDatabaseRole && len(values[name]) == 1:
			g.DatabaseRole = values[name][0]
		case name == limitExpires && len(values[name]) == 1:
			if g.Expires, err = time.Parse(time.RFC3339, values[name][0]); err != nil || g.Expires.IsZero() {
				return errors.New("expires is a time such as 2027-01-31T12:00:00Z")
			}
		case isFilter:
			if g.Filter == nil {
				g.Filter = map[string][]string{}
			}
			g.Filter[column] = values[name]
		default: // an unknown limit must not be ignored
			return errors.New("the limits are pipeline, database, filter.COLUMN, database_role and expires, the latter two once")
		}
	}
	return nil
}

func (g Grant) check() error {
	switch {
	case !slices.Contains(Roles, g.Role):
		return errors.New("a role is " + strings.Join(Roles, " or "))
	case g.Administers() && (len(g.Filter) > 0 || g.DatabaseRole != ""):
		return errors.New("a token with the role " + g.Role + " searches nothing: it takes no filter and no database role")
	case g.Role == RoleAdmin && len(g.Pipelines) > 0:
		return errors.New("a token with the role " + g.Role + " is for all pipelines: it allows no pipelines")
	case g.Role == RoleAdmin && len(g.Databases) > 0:
		return errors.New("a token with the role " + g.Role + " is for the whole program: it allows no databases")
	case g.Role == RoleEmbed && len(g.Pipelines)+len(g.Filter)+len(g.DatabaseRole) > 0:
		return errors.New("a token with the role " + g.Role +
			" searches nothing: it takes no pipelines, filter or database role")
	case slices.Contains(g.Pipelines, "") || slices.Contains(g.Databases, ""):
		return errors.New("the name of a pipeline or a database is empty")
	}
	given := append(slices.Concat(g.Pipelines, g.Databases), g.DatabaseRole)
	for column, values := range g.Filter {
		if column == "" || len(values) == 0 {
			return errors.New("a filter's column has no name, or no value")
		}
		given = append(append(given, column), values...)
	}
	for _, text := range given {
		if strings.ContainsRune(text, 0) || !utf8.ValidString(text) {
			return errors.New("a name or value has a NUL character or is not UTF-8")
		}
	}
	return nil
}

// Administers reports whether the role is for the administration, without search and embedding.
func (g Grant) Administers() bool {
	return g.Role == RoleViewer || g.Role == RoleOperator || g.Role == RoleAdmin
}

// Expired reports whether the token has expired.
func (g Grant) Expired() bool { return !g.Expires.IsZero() && !time.Now().Before(g.Expires) }

// Unknown tells the holder of a token why it was rejected.
func (g Grant) Unknown() string {
	if g.Expired() {
		return "this token expired at " + g.Expires.UTC().Format(time.RFC3339)
	}
	return "this token is not known here"
}
