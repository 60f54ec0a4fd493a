package config

import (
	"slices"
	"strings"
)

// Matches reports whether a name is one of a pattern, in which * stands for any text and ? for any sign.
func Matches(pattern, name string) bool {
	p, n := []rune(pattern), []rune(name)
	star, from, at := -1, 0, 0
	i := 0
	for i < len(n) {
		switch {
		case at < len(p) && p[at] == '*':
			star, from = at, i
			at++
		case at < len(p) && (p[at] == '?' || p[at] == n[i]):
			at, i = at+1, i+1
		case star >= 0: // the star stands for one more
			from++
			at, i = star+1, from
		default:
			return false
		}
	}
	return strings.Trim(string(p[at:]), "*") == ""
}

// IsPattern reports whether a name has signs that stand for others.
func IsPattern(name string) bool { return strings.ContainsAny(name, "*?") }

// Schemas say in which schemas of a database a pipeline of the file is worked: each that matches has one of its own.
type Schemas struct {
	Match  string // "": the pipeline names its table with its schema
	Except []string
}

// systemSchemas match no pattern.
var systemSchemas = []string{"information_schema", "embedsidecar"}

func systemSchema(name string) bool {
	return strings.HasPrefix(name, "pg_") || slices.Contains(systemSchemas, name)
}

// Takes reports whether a schema is one of those. A name that is not UTF-8, which a database of the encoding SQL_ASCII
// may have, is none that a pipeline, a metric or a file could bear.
func (s *Schemas) Takes(name string) bool {
	return s.Match != "" && !systemSchema(name) && invalidAt(name) < 0 && Matches(s.Match, name) &&
		!slices.ContainsFunc(s.Except, func(but string) bool { return Matches(but, name) })
}

// Schema is a schema of a database, with those of the tables that InSchemas returns which it has.
type Schema struct {
	Name   string
	Tables []string
}

// Spread is what In left out.
type Spread struct {
	Absent []string // tables that schemas which match do not have
	Beyond int      // schemas beyond the limit
}
