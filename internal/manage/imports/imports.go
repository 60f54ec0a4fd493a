// Package imports reads how other programs keep vectors in this database (pgai, pgEdge Vectorizer, Supabase's guide,
// LangChain). It returns the equivalent pipelines, the statements that finally remove these programs, and for each what
// cannot be carried over. It changes nothing itself.
package imports

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/manage/adopt"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
)

// Sources lists the supported programs.
var Sources = []string{"pgai", "pgedge", "supabase", "langchain"}

// Item is one pipeline of another program.
type Item struct {
	Name   string        `json:"name"`  // name of the pipeline
	From   string        `json:"from"`  // its name in the other program
	Into   string        `json:"into"`  // its destination
	Model  string        `json:"model"` // as configured
	Not    []string      `json:"not_carried_over"`
	Notes  []string      `json:"notes"`
	Finish []string      `json:"finish"` // statements that remove the other program after all vectors are taken over
	Spec   pipeline.Spec `json:"-"`
	Remote []Setting     `json:"-"` // of a remote model; empty: it is configured, or a folder
	Place  adopt.Place   `json:"-"`
	Filter []string      `json:"-"` // columns that searches over HTTP may filter by
}

// Setting is a key of a configuration and its value.
type Setting struct{ Key, Value string }

// Carried reports whether the pipeline can be carried over.
func (i *Item) Carried() bool { return len(i.Not) == 0 }

// Options configure Read.
type Options struct {
	Source string
	Model  string // the model that made the vectors; "": as the other program records it
}

// Read finds the pipelines of a program in the database. For pgai there may be only an empty schema. It returns
// *refusal.ConfigError if there is nothing, and *refusal.ConflictError if the program still runs.
func Read(ctx context.Context, tx pgx.Tx, o Options) ([]Item, error) {
	read := map[string]func(context.Context, pgx.Tx, Options) ([]Item, error){
		"pgai": pgai, "pgedge": pgedge, "supabase": supabase, "langchain": langchain,
	}[o.Source]
	items, err := read(ctx, tx, o)
	if err != nil {
		return nil, err
	}
	if items == nil || len(items) == 0 && o.Source != "pgai" {
		return nil, refusal.Coded(code.NoTable, "this database has no "+o.Source+" tables",
			"sources are "+strings.Join(Sources, ", "))
	}
	slices.SortFunc(items, func(a, b Item) int { return strings.Compare(a.Name, b.Name) })
	for i := range items {
		n := &items[i]
		n.Spec.Name, n.Spec.Enabled, n.Spec.Priority = n.Name, true, pipeline.Normal
		n.Model = n.Spec.Model
		n.Into = n.Spec.DestinationName()
		for _, list := range []*[]string{&n.Not, &n.Notes, &n.Finish} {
			*list = append([]string{}, *list...)
		}
		if n.Spec.Model == "" {
			n.Not = append(n.Not, "the model of its vectors is unknown: name it with --model")
		}
	}
	return items, nil
}

// there reports whether relations exist. It refuses those of an untrusted owner.
func there(ctx context.Context, tx pgx.Tx, names ...string) (bool, error) {
	all := true
	for _, name := range names {
		var found bool
		if err := tx.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", name).Scan(&found); err != nil {
			return false, fmt.Errorf("look for %s: %w", name, err)
		}
		all = all && found
	}
	return all, catalog.UntrustedOwners(ctx, tx, names, nil) // the caller is about to read them
}

// registry is like there, for tables whose rows determine the import: the source, the model with its address and key,
// and the destination. It also refuses untrusted writers.
func registry(ctx context.Context, tx pgx.Tx, names ...string) (bool, error) {
	ok, err := there(ctx, tx, names...)
	if !ok || err != nil {
		return false, err
	}
	return true, catalog.UntrustedWriters(ctx, tx, names...)
}

// working returns the error for a program that still runs.
func working(who, detail string, hint ...string) error {
	return &refusal.ConflictError{Problem: who + " still works: " + detail, Hint: hint, Code: code.Conflict}
}

// YAML returns the configuration of the pipelines that can be carried over.
func YAML(items []Item) string {
	var models, pipelines strings.Builder
	var named []string
	for i := range items {
		n := &items[i]
		if !n.Carried() {
			continue
		}
		pipelines.WriteString(config.Written(n.Spec))
		if len(n.Filter) > 0 {
			columns := lists.Map(n.Filter, func(name string) string { return config.Quoted(identifier(name)) })
			fmt.Fprintf(&pipelines, "    search: {filterable: [%s]}\n", strings.Join(columns, ", "))
		}
		if len(n.Remote) == 0 || slices.Contains(named, n.Spec.Model) {
			continue
		}
		if named = append(named, n.Spec.Model); len(named) == 1 {
			models.WriteString("models:\n")
		}
		fmt.Fprintf(&models, "  - name: %s\n", config.Quoted(n.Spec.Model))
		for _, s := range n.Remote {
			fmt.Fprintf(&models, "    %s: %s\n", s.Key, config.Quoted(s.Value))
		}
	}
	return "version: 1\n" + models.String() + "pipelines:\n" + pipelines.String()
}

// identifier returns a name as an SQL identifier, quoted only if necessary.
func identifier(name string) string {
	if regexp.MustCompile(`^[a-z_][a-z0-9_]*$`).MatchString(name) {
		return name
	}
	return database.Quote(name)
}

// split parses the name of a table as the server prints it.
func split(ctx context.Context, tx pgx.Tx, name string) (schema, table string, err error) {
	err = tx.QueryRow(ctx, "SELECT n.nspname::text, c.relname::text FROM pg_class AS c JOIN pg_namespace AS n ON n.oid ="+
		" c.relnamespace WHERE c.oid = to_regclass($1)", name).Scan(&schema, &table)
	if errors.Is(err, pgx.ErrNoRows) && !strings.Contains(name, ".") {
		return split(ctx, tx, "public."+name)
	}
	return schema, table, err
}
