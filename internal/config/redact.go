package config

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/base/secret"
)

// shownKeys are the settings of a connection string that are safe to show. All others are masked, so that a misspelled
// "passwd=..." is hidden, too.
var shownKeys = []string{
	"host", "hostaddr", "port", "dbname", "database", "user", "sslmode", "application_name", "connect_timeout",
	"target_session_attrs", "service", "search_path", "options", "channel_binding", "sslrootcert", "sslnegotiation",
}

// RedactDSN returns a connection string, in its URL or keyword form, without any password, for logs and errors. If it
// is unclear where a password ends, only the scheme is left.
func RedactDSN(dsn string) string {
	redacted, _ := redactDSN(dsn)
	return redacted
}

// HasPassword reports whether a connection string contains a password, or may contain one because its parts are
// ambiguous.
func HasPassword(dsn string) bool {
	_, password := redactDSN(dsn)
	return password
}

func redactDSN(dsn string) (redacted string, password bool) {
	trimmed, read, scheme := strings.TrimSpace(dsn), redactKeywords, ""
	if trimmed == "" {
		return "", false
	}
	for _, url := range []string{"postgres://", "postgresql://"} {
		if rest, ok := strings.CutPrefix(trimmed, url); ok {
			trimmed, read, scheme = rest, redactURL, url
			break
		}
	}
	redacted, password, ok := read(trimmed)
	if !ok {
		return scheme + secret.Mask, true
	}
	return scheme + redacted, password
}

var passwordKeys = []string{"password", "sslpassword"}

// hostList matches what may stand between user and path: hosts, numeric ports, commas, brackets. Anything else may be
// the end of a password with an unescaped special character.
var hostList = regexp.MustCompile(`^(?:(?:\[[0-9A-Fa-f:.%a-z]*\]|[A-Za-z0-9._%-]*)(?::[0-9]*)?(?:,|$))*$`)

// redactURL redacts what follows the scheme. It also reports whether there was a password; ok is false if the parts are
// ambiguous.
func redactURL(rest string) (redacted string, password, ok bool) {
	if strings.Count(rest, "@") > 1 {
		return "", false, false
	}
	var user string
	if i := strings.IndexAny(rest, "@/"); i >= 0 && rest[i] == '@' { // libpq's rule for the end of the user
		user, rest = rest[:i], rest[i+1:]
		if name, _, ok := strings.Cut(user, ":"); ok {
			user, password = name+":"+secret.Mask, true
		}
		user += "@"
	}
	if strings.Contains(rest, "@") {
		return "", false, false
	}
	rest, query, hasQuery := strings.Cut(rest, "?")
	hosts, path, hasPath := strings.Cut(rest, "/")
	if !hostList.MatchString(hosts) || strings.ContainsAny(path, "/:") {
		return "", false, false
	}
	var b strings.Builder
	b.WriteString(user)
	b.WriteString(hosts)
	if hasPath {
		b.WriteString("/" + path)
	}
	if hasQuery {
		b.WriteByte('?')
		for i, pair := range strings.Split(query, "&") {
			if i > 0 {
				b.WriteByte('&')
			}
			key, _, ok := strings.Cut(pair, "=")
			name, err := url.QueryUnescape(key)
			password = password || err != nil || slices.Contains(passwordKeys, name)
			if ok && err == nil && slices.Contains(shownKeys, name) {
				b.WriteString(pair)
			} else if ok {
				b.WriteString(key + "=" + secret.Mask)
			} else {
				b.WriteString(secret.Mask)
			}
		}
	}
	return b.String(), password, true
}

// redactKeywords redacts key = value pairs as libpq reads them. It also reports whether there was a password; ok is
// false if the text is not such a list.
func redactKeywords(s string) (redacted string, password, ok bool) {
	const space = " \t\n\r\v\f"
	var out []string
	for s = strings.TrimLeft(s, space); s != ""; s = strings.TrimLeft(s, space) {
		key, rest, ok := strings.Cut(s, "=")
		key = strings.TrimRight(key, space)
		if !ok || key == "" || strings.ContainsAny(key, space+"'\\") {
			return "", false, false
		}
		rest = strings.TrimLeft(rest, space)
		end, ok := valueEnd(rest)
		if !ok {
			return "", false, false
		}
		value := rest[:end]
		password = password || slices.Contains(passwordKeys, key)
		if !slices.Contains(shownKeys, key) {
			value = secret.Mask
		}
		out = append(out, key+"="+value)
		s = rest[end:]
	}
	return strings.Join(out, " "), password, true
}

// valueEnd returns the end of the value at the start of s.
func valueEnd(s string) (int, bool) {
	quoted := strings.HasPrefix(s, "'")
	i := 0
	if quoted {
		i = 1
	}
	for ; i < len(s); i++ {
		switch {
		case s[i] == '\\':
			i++
		case quoted && s[i] == '\'':
			return i + 1, true
		case !quoted && strings.IndexByte(" \t\n\r\v\f", s[i]) >= 0:
			return i, true
		}
	}
	return len(s), !quoted
}

// Redactor removes passwords from other programs' texts: error messages of drivers, log lines. The zero value and nil
// know no passwords, and mask what looks like one. It is safe for concurrent use.
type Redactor struct {
	mu      sync.RWMutex
	secrets []string
}

// Learn adds the secrets of another Redactor.
func (r *Redactor) Learn(other *Redactor) { r.with(other.known()...) }

// known returns the current secrets.
func (r *Redactor) known() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.secrets
}

// minSecret is the shortest password that is masked: shorter ones would garble every text.
const minSecret = 4

// NewRedactor returns a Redactor for the passwords of these connection strings, as written and decoded.
func NewRedactor(dsns ...string) *Redactor {
	r := &Redactor{}
	for _, dsn := range dsns {
		r.secrets = append(r.secrets, secretsOf(dsn)...)
	}
	return r.with()
}

func (r *Redactor) with(secrets ...string) *Redactor {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := slices.Clone(r.secrets)
	for _, s := range secrets {
		if len(s) >= minSecret && !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	// Longest first: a password that begins with another one is masked as a whole.
	slices.SortFunc(list, func(a, b string) int { return len(b) - len(a) })
	r.secrets = list
	return r
}

func secretsOf(dsn string) []string {
	var found []string
	// frequent words of messages: masking them would only garble the text
	public := []string{"postgres", "password", "embedsidecar"}
	add := func(s string) {
		if len(s) >= minSecret && !slices.Contains(found, s) && !slices.Contains(public, s) {
			found = append(found, s)
		}
	}
	if cfg, err := pgconn.ParseConfig(dsn); err == nil {
		public = append(public, cfg.User, cfg.Database, cfg.Host)
		add(cfg.Password) // from the string, PGPASSWORD or a password file
	}
	for _, scheme := range []string{"postgres://", "postgresql://"} {
		rest, ok := strings.CutPrefix(strings.TrimSpace(dsn), scheme)
		if !ok {
			continue
		}
		if at := strings.LastIndexByte(rest, '@'); at >= 0 {
			if _, password, ok := strings.Cut(rest[:at], ":"); ok {
				add(password)
				if decoded, err := url.PathUnescape(password); err == nil {
					add(decoded)
				}
			}
		}
	}
	return found
}

var (
	urlInText     = regexp.MustCompile("postgres(?:ql)?://[^\\s\"'`]+")
	keywordInText = regexp.MustCompile(`(?i)\b((?:ssl)?password|passwd|pgpassword)(\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s"']+)`)
)

// Text returns s without any password.
func (r *Redactor) Text(s string) string {
	if r != nil {
		for _, known := range r.known() {
			s = strings.ReplaceAll(s, known, secret.Mask)
		}
	}
	if strings.Contains(s, "://") {
		s = urlInText.ReplaceAllStringFunc(s, func(dsn string) string {
			bare := strings.TrimRight(dsn, ":,;.)") // punctuation of the sentence around it
			return RedactDSN(bare) + dsn[len(bare):]
		})
	}
	if strings.Contains(s, "=") {
		s = keywordInText.ReplaceAllString(s, "${1}${2}"+secret.Mask)
	}
	return s
}
