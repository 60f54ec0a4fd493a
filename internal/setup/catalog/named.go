package catalog

import (
	"regexp"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/database"
)

// The names in an expression are checked before the server parses it: the server evaluates literals while it parses,
// and the input functions of arrays, rows and ranges check the constraints of the domains in them.

const (
	quoting = `"(?:[^"]|"")*"|[eE]'(?:[^'\\]|''|\\.)*'|'(?:[^']|'')*'`
	name    = `("(?:[^"]|"")*"|[\w\x{80}-\x{10FFFF}$]+)`
)

var (
	// token is a name or a literal, in the server's syntax: a word, a quoted name, a string.
	token  = regexp.MustCompile(`(?s)` + quoting + `|[\w\x{80}-\x{10FFFF}][\w$\x{80}-\x{10FFFF}]*`)
	number = regexp.MustCompile(`^\d+(?:[eE]\d+)?$`)
	// otherwise matches what the server would not read as tokens and operators.
	otherwise = regexp.MustCompile(`(?i)["'$\\]|--|/\*`)
	// unnamed matches text without names, and quoted names, which stay.
	unnamed   = regexp.MustCompile(`(?s)` + quoting + `|--[^\r\n]*|/\*.*?\*/`)
	qualified = regexp.MustCompile(name + `\s*\.\s*` + name)
)

// foreignName returns the first name in an expression that may be neither a column nor part of PostgreSQL, or "". It
// only reads the text, because the catalog could change before the parsing. alias is the table's; "": a column has that
// name.
func foreignName(alias, expression string) string {
	last, end := "", 0
	all := append(token.FindAllStringIndex(expression, -1), []int{len(expression), len(expression)})
	for _, at := range all {
		between, word := expression[end:at[0]], expression[at[0]:at[1]]
		switch {
		case otherwise.MatchString(between), between == "&" && strings.EqualFold(last, "u") && strings.HasPrefix(word, `"`),
			// A literal continues on the next line, with or without escapes as it began.
			strings.TrimSpace(between) == "" && strings.HasSuffix(last, "'") && strings.HasPrefix(word, "'"):
			return "a comment, or a quotation other than '...', E'...' and \"...\""
		case nameLength(word) > maxName: // the server cuts it off, and what is left may be a column
			return "a name of more than 63 bytes"
		case word != "" && word[0] >= '0' && word[0] <= '9' && !number.MatchString(word):
			return word
		case strings.HasPrefix(strings.TrimLeft(between, " \t\r\n\f\v"), ".") && last != "" && !number.MatchString(last) &&
			!strings.EqualFold(last, "pg_catalog"):
			return last + "." + strings.TrimSpace(expression[end+strings.IndexByte(between, '.')+1:])
		case alias != "" && (strings.EqualFold(word, alias) || word == database.Quote(alias)):
			return "the whole row"
		}
		last, end = word, at[1]
	}
	return ""
}

// maxName is the longest name: Postgres truncates longer ones.
const maxName = 63

// nameLength returns the bytes of a name; 0 for a literal.
func nameLength(word string) int {
	if inner, quoted := strings.CutPrefix(word, `"`); quoted {
		return len(strings.ReplaceAll(strings.TrimSuffix(inner, `"`), `""`, `"`))
	}
	if strings.HasSuffix(word, "'") {
		return 0
	}
	return len(word)
}

// typesNamed returns the schema-qualified names in an expression, which may be types: their schemas and names.
func typesNamed(alias, expression string) (schemas, names []string) {
	schemas, names = []string{}, []string{}
	read := func(written string) string {
		if unquoted, ok := strings.CutPrefix(written, `"`); ok {
			return strings.ReplaceAll(strings.TrimSuffix(unquoted, `"`), `""`, `"`)
		}
		return strings.ToLower(written)
	}
	named := unnamed.ReplaceAllStringFunc(expression, func(s string) string {
		if strings.HasPrefix(s, `"`) {
			return s
		}
		return " "
	})
	for _, m := range qualified.FindAllStringSubmatch(named, -1) {
		if schema := read(m[1]); schema != alias { // else it is a column
			schemas, names = append(schemas, schema), append(names, read(m[2]))
		}
	}
	return schemas, names
}
