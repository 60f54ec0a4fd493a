package config

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxIdent is Postgres' NAMEDATALEN - 1: longer names are truncated, and then mean something else.
const maxIdent = 63

// ParseError is a mistake in a one-line text, with its place.
type ParseError struct {
	What    string // "pipeline", "--columns", "pipelines[0].table"
	Input   string // as given
	Offset  int    // in bytes; len(Input) for the end
	Message string // "expected ..., found ..."
}

// Error returns the message and the input's line with a caret below the place.
func (e *ParseError) Error() string { return e.What + ": " + e.shown() }

// shown is the error without its subject.
func (e *ParseError) shown() string {
	line, column := excerpt(e.Input, e.Offset)
	return fmt.Sprintf("%s\n    %s\n    %s^", e.Message, line, strings.Repeat(" ", column))
}

// excerpt returns a section of the line of s at offset, and the column of offset in runes.
func excerpt(s string, offset int) (line string, column int) {
	const before, after = 60, 40
	start := strings.LastIndexByte(s[:offset], '\n') + 1
	end := len(s)
	if i := strings.IndexByte(s[offset:], '\n'); i >= 0 {
		end = offset + i
	}
	head, tail := printable(s[start:offset]), printable(s[offset:end])
	if len(head) > before {
		head = append([]rune("..."), head[len(head)-before:]...)
	}
	if len(tail) > after {
		tail = append(tail[:after:after], []rune("...")...)
	}
	return string(head) + string(tail), len(head)
}

// printable replaces characters that would move the caret or disturb a terminal.
func printable(s string) []rune {
	runes := []rune(strings.ToValidUTF8(s, "\uFFFD"))
	for i, r := range runes {
		if r == '\t' || !unicode.IsPrint(r) {
			runes[i] = ' '
		}
	}
	return runes
}

// scanner reads SQL identifiers and punctuation.
type scanner struct {
	what  string
	input string
	pos   int
}

func (s *scanner) fail(expected string) *ParseError {
	s.skipSpace()
	return s.failAt(s.pos, fmt.Sprintf("expected %s, found %s", expected, s.found()))
}

func (s *scanner) failAt(offset int, message string) *ParseError {
	return &ParseError{What: s.what, Input: s.input, Offset: offset, Message: message}
}

// found describes the text at the current position.
func (s *scanner) found() string {
	rest := s.input[s.pos:]
	if rest == "" {
		return "the end"
	}
	if strings.HasPrefix(rest, "->") {
		return `"->"`
	}
	r, size := utf8.DecodeRuneInString(rest)
	if r == utf8.RuneError && size == 1 {
		return fmt.Sprintf("the byte 0x%02x, which is not UTF-8", rest[0])
	}
	return fmt.Sprintf("%q", string(r))
}

// skipSpace skips SQL white space and returns the new position. Postgres treats other Unicode spaces as letters.
func (s *scanner) skipSpace() int {
	for s.pos < len(s.input) && strings.IndexByte(" \t\n\r\f\v", s.input[s.pos]) >= 0 {
		s.pos++
	}
	return s.pos
}

// symbol reads one fixed character.
func (s *scanner) symbol(sign, expected string) error {
	s.skipSpace()
	if !strings.HasPrefix(s.input[s.pos:], sign) {
		return s.fail(expected)
	}
	s.pos += len(sign)
	return nil
}

// keyword reads word, in any case and unquoted, if it comes next.
func (s *scanner) keyword(word string) bool {
	s.skipSpace()
	end := s.pos
	for end < len(s.input) && identPart(s.input[end]) {
		end++
	}
	if !strings.EqualFold(s.input[s.pos:end], word) {
		return false
	}
	s.pos = end
	return true
}

func (s *scanner) end(expected string) error {
	if s.skipSpace() < len(s.input) {
		return s.fail(expected)
	}
	return nil
}

func (s *scanner) table(expected string) (schema, table string, err error) {
	if table, err = s.ident(expected); err != nil {
		return "", "", err
	}
	if s.skipSpace(); s.pos == len(s.input) || s.input[s.pos] != '.' {
		return "", table, nil
	}
	s.pos++
	schema = table
	if table, err = s.ident("a table after the schema"); err != nil {
		return "", "", err
	}
	if s.skipSpace(); s.pos < len(s.input) && s.input[s.pos] == '.' {
		return "", "", s.failAt(s.pos, "a table has at most two names, schema.table: the database is that of the connection")
	}
	return schema, table, nil
}

// columns reads identifiers separated by commas.
func (s *scanner) columns() ([]string, error) {
	var columns []string
	for {
		at := s.skipSpace()
		column, err := s.ident("a column")
		if err != nil {
			return nil, err
		}
		if slices.Contains(columns, column) {
			return nil, s.failAt(at, "column "+quoteIdent(column)+" is named twice")
		}
		columns = append(columns, column)
		if s.skipSpace(); s.pos == len(s.input) || s.input[s.pos] != ',' {
			return columns, nil
		}
		s.pos++
	}
}

// ident reads one identifier as Postgres' scanner does.
func (s *scanner) ident(expected string) (string, error) {
	at := s.skipSpace()
	if at == len(s.input) {
		return "", s.fail(expected)
	}
	var name string
	switch c := s.input[at]; {
	case c == '"':
		var err error
		if name, err = s.quoted(); err != nil {
			return "", err
		}
	case identStart(c):
		for s.pos < len(s.input) && identPart(s.input[s.pos]) {
			s.pos++
		}
		name = strings.Map(foldASCII, s.input[at:s.pos])
		if !utf8.ValidString(s.input[at:s.pos]) {
			return "", s.failAt(at+invalidAt(s.input[at:s.pos]), "an identifier must be valid UTF-8")
		}
	default:
		return "", s.fail(expected)
	}
	if len(name) > maxIdent {
		return "", s.failAt(at, fmt.Sprintf("an identifier has at most %d bytes, this one has %d: Postgres would cut it",
			maxIdent, len(name)))
	}
	return name, nil
}

// quoted reads a quoted identifier, in which "" is one quote.
func (s *scanner) quoted() (string, error) {
	at := s.pos
	var b strings.Builder
	for s.pos++; s.pos < len(s.input); s.pos++ {
		switch c := s.input[s.pos]; {
		case c == 0:
			return "", s.failAt(s.pos, "an identifier cannot hold a NUL byte")
		case c != '"':
			b.WriteByte(c)
		case strings.HasPrefix(s.input[s.pos:], `""`):
			b.WriteByte('"')
			s.pos++
		default:
			s.pos++
			name := b.String()
			if name == "" {
				return "", s.failAt(at, "an identifier cannot be empty")
			}
			if i := invalidAt(s.input[at:s.pos]); i >= 0 {
				return "", s.failAt(at+i, "an identifier must be valid UTF-8")
			}
			return name, nil
		}
	}
	return "", s.failAt(at, `this quoted identifier has no closing quote (write "" for a quote inside)`)
}

func identStart(c byte) bool {
	return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= utf8.RuneSelf
}

func identPart(c byte) bool { return identStart(c) || '0' <= c && c <= '9' || c == '$' }

func foldASCII(r rune) rune {
	if 'A' <= r && r <= 'Z' {
		return r + ('a' - 'A')
	}
	return r
}

// invalidAt returns the offset of the first byte that is not UTF-8, or -1.
func invalidAt(s string) int {
	for i, r := range s {
		if r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD") {
			return i
		}
	}
	return -1
}

// quoteIdent quotes an identifier only if this package or SQL needs it. SQL key words stay unquoted: the result is for
// users and for ParsePipeline, not for statements.
func quoteIdent(name string) string {
	bare := name != "" && identStart(name[0])
	for i, r := range name {
		if r < utf8.RuneSelf {
			bare = bare && identPart(name[i]) && foldASCII(r) == r
		} else {
			bare = bare && unicode.IsLetter(r)
		}
	}
	if bare {
		return name
	}
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}
