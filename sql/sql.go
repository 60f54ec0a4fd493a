// Package sqlfiles holds the SQL of embedsidecar: tables in numbered files, functions and views in whole ones, one
// statement per query file, and the least-privileged roles. Upgrade brings the schema to its newest version.
package sqlfiles

import (
	"embed"
	"strings"
)

//go:embed tables/*.sql functions/*.sql views/*.sql queries/*.sql roles.sql
var files embed.FS

// Schema is where everything of ours lives.
const Schema = "embedsidecar"

// Query returns the statement in queries/name.sql. A name that is not there is a mistake in the program and panics.
// Sessions of ours read no view (package database), so (VIEW name) in it is what that view selects.
func Query(name string) string {
	statement := read("queries/" + name + ".sql")
	for {
		before, rest, found := strings.Cut(statement, "(VIEW ")
		if !found {
			return statement
		}
		view, after, _ := strings.Cut(rest, ")")
		_, selects, _ := strings.Cut(read("views/"+view+".sql"), " AS\n")
		selects, _, _ = strings.Cut(selects, ";")
		statement = before + "(" + selects + ")" + after
	}
}

// What the script of Roles calls the roles: the one that works, the one that streams, and the groups of those who read
// the views, of those who act, and of those who search.
const (
	RunRole      = "embedsidecar_run"
	StreamRole   = "embedsidecar_stream"
	ReaderRole   = "embedsidecar_reader"
	OperatorRole = "embedsidecar_operator"
	SearcherRole = "embedsidecar_searcher"
)

// Roles returns the script that makes the roles, under these names.
func Roles(run, stream, reader, operator, searcher string) string {
	var pairs []string
	for usual, name := range map[string]string{
		RunRole: run, StreamRole: stream, ReaderRole: reader, OperatorRole: operator, SearcherRole: searcher,
	} {
		quoted := usual
		if name != usual {
			quoted = `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
		}
		// The literals of the script stand within a block that is quoted by dollars: there a quote is doubled and nothing
		// else.
		pairs = append(pairs, "'"+usual+"'", "'"+strings.ReplaceAll(name, "'", "''")+"'", usual, quoted)
	}
	return strings.NewReplacer(pairs...).Replace(read("roles.sql"))
}
