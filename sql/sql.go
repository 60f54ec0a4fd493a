// Package sqlfiles holds the SQL of embedsidecar: tables in numbered files, functions and views, one statement per
// query file, and the least-privileged roles. Upgrade upgrades the schema to its newest version.
package sqlfiles

import (
	"embed"
	"strings"
)

//go:embed tables/*.sql functions/*.sql views/*.sql queries/*.sql roles.sql
var files embed.FS

// Schema is the schema of all our objects.
const Schema = "embedsidecar"

// Query returns the statement in queries/name.sql. It panics if there is none. Our sessions read no views (package
// database), so it replaces (VIEW name) by the view's SELECT.
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

// The names of the roles in the script of Roles: the role that works, the role that streams, and the groups that read
// the views, act, and search.
const (
	RunRole      = "embedsidecar_run"
	StreamRole   = "embedsidecar_stream"
	ReaderRole   = "embedsidecar_reader"
	OperatorRole = "embedsidecar_operator"
	SearcherRole = "embedsidecar_searcher"
)

// Roles returns the script that creates the roles, with these names.
func Roles(run, stream, reader, operator, searcher string) string {
	var pairs []string
	for usual, name := range map[string]string{
		RunRole: run, StreamRole: stream, ReaderRole: reader, OperatorRole: operator, SearcherRole: searcher,
	} {
		quoted := usual
		if name != usual {
			quoted = `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
		}
		// The script's literals are in dollar-quoted blocks, where only quotes are doubled.
		pairs = append(pairs, "'"+usual+"'", "'"+strings.ReplaceAll(name, "'", "''")+"'", usual, quoted)
	}
	return strings.NewReplacer(pairs...).Replace(read("roles.sql"))
}
