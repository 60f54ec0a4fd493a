package config

import (
	"slices"
	"strings"
)

// Matches reports whether a name matches a pattern, in which * stands for any text and ? for any character.
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
		case star >= 0: // the star matches one more character
			from++
			at, i = star+1, from
		default:
			return false
		}
	}
	return strings.Trim(string(p[at:]), "*") == ""
}

// IsPattern reports whether a name has wildcards.
func IsPattern(name string) bool { return strings.ContainsAny(name, "*?") }

// Schemas says which schemas of a database a pipeline of the file covers: each gets a pipeline of its own.
type Schemas struct {
	Match  string // "": the pipeline is for one table
	Except []string
}

// systemSchemas match no pattern.
var systemSchemas = []string{"information_schema", "embedsidecar"}

func systemSchema(name string) bool {
	return strings.HasPrefix(name, "pg_") || slices.Contains(systemSchemas, name)
}

// Takes reports whether the pipeline covers a schema. It does not cover names that are not UTF-8, which a SQL_ASCII
// database may have: pipelines, metrics and files cannot have such names.
func (s *Schemas) Takes(name string) bool {
	return s.Match != "" && !systemSchema(name) && invalidAt(name) < 0 && Matches(s.Match, name) &&
		!slices.ContainsFunc(s.Except, func(but string) bool { return Matches(but, name) })
}

// Schema is a schema of a database, with those tables of InSchemas that it has.
type Schema struct {
	Name   string
	Tables []string
}

// Spread says what In left out.
type Spread struct {
	Unmet  []string // patterns that no schema matches
	Absent []string // tables that are missing in matching schemas
	Beyond int      // number of schemas beyond the limit
}
