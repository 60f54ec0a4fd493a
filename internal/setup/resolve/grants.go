package resolve

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
)

// needs lists the privileges that running a pipeline requires on one table or schema.
type needs struct {
	table              *catalog.Table // nil: only the schema is needed
	catalog.TypeSchema                // of the table, or of a type
	read               []string       // columns to read; nil: all
	write              []string       // columns to update
	whole              bool           // an embedding table: rows are inserted and deleted too
}

func needsOf(t *catalog.Table) needs {
	return needs{table: t, TypeSchema: catalog.TypeSchema{Name: t.Schema, Usable: t.Usable}}
}

// needs lists what a role needs to run the pipeline: its tables, and the schemas of the types in its statements.
// f.Looks are the columns in its expressions, nil for all.
func (f *Findings) needs() []needs {
	source := needsOf(f.Table)
	if f.Looks != nil {
		source.read = lists.Add(pipeline.KeyNames(f.Table.Key), f.Looks...)
	}
	if f.Pipeline.InSource() && f.Destination.Exists {
		source.write = []string{f.Pipeline.IntoColumn}
		if source.read != nil {
			source.read = append(source.read, f.Pipeline.IntoColumn)
		}
	}
	all := []needs{source}
	if f.Destination.Table != nil {
		into := needsOf(f.Destination.Table)
		into.whole = true
		all = append(all, into)
	}
	for _, j := range f.Joined {
		joined := needsOf(j.Table)
		joined.read = j.Uses
		all = append(all, joined)
	}
	types := f.Table.KeyTypes
	if f.Vector.OIDs[pipeline.StoredVector] != 0 && f.Vector.Schema != "pg_catalog" {
		types = append(slices.Clone(types), catalog.TypeSchema{Name: f.Vector.Schema, Usable: f.Vector.Usable})
	}
	for _, t := range types {
		all = append(all, needs{TypeSchema: t})
	}
	return all
}

// use is the statement that grants a role USAGE on the schema.
func (n needs) use(role string) string {
	return "GRANT USAGE ON SCHEMA " + database.Quote(n.Name) + " TO " + database.Quote(role) + ";"
}

// grants returns the statements that give a role all it needs, including what it already has.
func (n needs) grants(role string) []string {
	to := " TO " + database.Quote(role) + ";"
	if n.table == nil {
		return nil
	}
	if n.whole {
		return []string{"GRANT SELECT, INSERT, UPDATE, DELETE ON " + n.table.Quoted() + to}
	}
	what := "SELECT"
	if n.read != nil {
		what += " (" + database.QuoteAll(n.read) + ")"
	}
	if len(n.write) > 0 {
		what += ", UPDATE (" + database.QuoteAll(n.write) + ")"
	}
	return []string{"GRANT " + what + " ON " + n.table.Quoted() + to}
}

// missing returns the statements of grants that the role still needs.
func (n needs) missing(role string) (statements []string) {
	if !n.Usable {
		statements = append(statements, n.use(role))
	}
	if n.table == nil || n.whole && n.table.Writable || !n.whole && !slices.ContainsFunc(n.table.Columns, n.withheld) {
		return statements
	}
	return append(statements, n.grants(role)...)
}

// withheld reports whether the role lacks a privilege on a column.
func (n needs) withheld(c catalog.Column) bool {
	return !c.Readable && (n.read == nil || slices.Contains(n.read, c.Name)) ||
		!c.Updatable && slices.Contains(n.write, c.Name)
}

// Grants returns the statements that let a role run a confirmed pipeline, to be run by the owner of its tables.
// sql/roles.sql has the role's other grants.
func Grants(ctx context.Context, db database.Beginner, p *pipeline.Pipeline, role string) ([]string, error) {
	var statements []string
	err := database.RetryReadOnly(ctx, db, func(tx pgx.Tx) error {
		statements = nil
		f, err := Inspect(ctx, tx, p.Spec, catalog.Vectors{Dims: p.Dims, Either: true}, nil)
		if err != nil {
			return err
		}
		schemas := map[string]bool{}
		for _, n := range f.needs() {
			if !schemas[n.Name] {
				schemas[n.Name] = true
				statements = append(statements, n.use(role))
			}
			statements = append(statements, n.grants(role)...)
		}
		return nil
	})
	return statements, err
}

// missingGrants returns what the current role lacks for a pipeline.
func (f *Findings) missingGrants() (statements []string) {
	for _, n := range f.needs() {
		statements = append(statements, n.missing(f.Table.Reader)...)
	}
	slices.Sort(statements)
	return slices.Compact(statements)
}
