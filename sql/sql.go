// Package sqlfiles holds the SQL of embedsidecar: migrations, one statement per query file, and the least-privileged role.
package sqlfiles

import (
	"embed"
	"fmt"
	"io/fs"
)

//go:embed migrations/*.sql queries/*.sql roles.sql
var files embed.FS

// Schema is where everything of ours lives.
const Schema = "embedsidecar"

// Migrations returns the migration files, 0001_name.sql and so on, in tern's format.
func Migrations() fs.FS {
	sub, err := fs.Sub(files, "migrations")
	if err != nil {
		panic(err) // the folder is compiled in
	}
	return sub
}

// Query returns the statement in queries/name.sql. A name that is not there is a mistake in the program and panics.
func Query(name string) string {
	b, err := files.ReadFile("queries/" + name + ".sql")
	if err != nil {
		panic(fmt.Sprintf("no such query: %s", name))
	}
	return string(b)
}

// Queries returns the names of all query files.
func Queries() []string {
	entries, err := files.ReadDir("queries")
	if err != nil {
		panic(err) // the folder is compiled in
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name()[:len(e.Name())-len(".sql")])
	}
	return names
}

// Roles returns the script that makes the least-privileged role.
func Roles() string {
	b, err := files.ReadFile("roles.sql")
	if err != nil {
		panic(err) // compiled in
	}
	return string(b)
}
