package catalog

import (
	"regexp"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/database"
)

// What an expression names is judged before the server parses it, too: the server reads a literal while it parses, and
// the input functions of arrays, rows and ranges check the constraints of the domains in them.

const (
	quoting = `"(?:[^"]|"")*"|[eE]'(?:[^'\\]|''|\\.)*'|'(?:[^']|'')*'`
	name    = `("(?:[^"]|"")*"|[\w\x{80}-\x{10FFFF}$]+)`
)

var (
	// token is a name or a literal, as the server reads them: a word, a quoted name, a text.
	token  = regexp.MustCompile(`(?s)` + quoting + `|[\w\x{80}-\x{10FFFF}][\w$\x{80}-\x{10FFFF}]*`)
	number = regexp.MustCompile(`^\d+(?:[eE]\d+)?$`)
	// otherwise is what the server would read as something else than tokens and operators.
	otherwise = regexp.MustCompile(`(?i)["'$\\]|--|/\*`)
	// unnamed is what names nothing, among quoted names, which do.
	unnamed   = regexp.MustCompile(`(?s)` + quoting + `|--[^\r\n]*|/\*.*?\*/`)
	qualified = regexp.MustCompile(name + `\s*\.\s*` + name)
)

// foreignName returns the first name in an expression that may be neither a column nor part of PostgreSQL, or "". It
// reads the text alone: a catalog could change between this and the parsing. alias is the table's; "": it is a column.
func foreignName(alias, expression string) string {
	last, end := "", 0
	all := append(token.FindAllStringIndex(expression, -1), []int{len(expression), len(expression)})
	for _, at := range all {
		between, word := expression[end:at[0]], expression[at[0]:at[1]]
		switch {
		case otherwise.MatchString(between), between == "&" && strings.EqualFold(last, "u") && strings.HasPrefix(word, `"`),
			// A literal goes on in the next line as it began, with backslashes or without.
			strings.TrimSpace(between) == "" && strings.HasSuffix(last, "'") && strings.HasPrefix(word, "'"):
			return "a comment, or a quotation other than '...', E'...' and \"...\""
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

// typesNamed returns what an expression names with a schema, which may be types: the schemas, and the names.
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
		if schema := read(m[1]); schema != alias { // a column
			schemas, names = append(schemas, schema), append(names, read(m[2]))
		}
	}
	return schemas, names
}
