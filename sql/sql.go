// Package sqlfiles holds the SQL of embedsidecar: tables in numbered files, functions and views, one statement per
// query file, and the least-privileged roles. Upgrade upgrades the schema to its newest version.
package sqlfiles

import (
	"embed"
	"regexp"
	"strings"
)

//go:embed tables/*.sql functions/*.sql views/*.sql queries/*.sql comments.sql roles.sql
var files embed.FS

// Schema is the schema of all our objects.
const Schema = "embedsidecar"

// trusted stands in a query for the condition that this session trusts the role of a row of pg_roles: a superuser, the
// role itself, one that may act as it anyway (it gains nothing; from PostgreSQL 16 on not every member may), or one of
// the parameter @trusted.
var trusted = regexp.MustCompile(`\(TRUSTED (\w+)\)`)

const trustedMeans = `($1.rolsuper OR $1.rolname = current_user OR $1.rolname = ANY (@trusted::text[])
	OR pg_has_role($1.oid, session_user, CASE WHEN current_setting('server_version_num')::integer < 160000
		THEN 'MEMBER' ELSE 'USAGE, SET, MEMBER WITH ADMIN OPTION' END))`

// Query returns the statement in queries/name.sql. It panics if there is none. It replaces (TRUSTED role) by that
// condition and, because our sessions read no views (package database), (VIEW name) by the view's SELECT.
func Query(name string) string {
	statement := trusted.ReplaceAllString(read("queries/"+name+".sql"), trustedMeans)
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
