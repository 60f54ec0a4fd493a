package resolve

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// needs is what running a pipeline asks for.
type needs struct {
	oid    uint32
	name   string   // of the table, quoted; "": the schema is all that is needed
	schema string   // of the table
	read   []string // columns to read; nil: all
	write  []string // columns to update
	whole  bool     // an embedding table: rows are inserted and deleted too
}

// required lists what a role needs to run a pipeline. reads are the columns that its expressions name, nil for all.
func required(spec pipeline.Spec, t *catalog.Table, reads []string, d catalog.Destination) []needs {
	source := needs{oid: t.OID, name: t.Quoted(), schema: t.Schema}
	if reads != nil {
		source.read = slices.Clone(catalog.KeyNames(t.Key))
		for _, c := range reads {
			if !slices.Contains(source.read, c) {
				source.read = append(source.read, c)
			}
		}
	}
	if spec.InSource() {
		if d.Exists {
			source.write = []string{spec.IntoColumn}
			if source.read != nil {
				source.read = append(source.read, spec.IntoColumn)
			}
		}
		return []needs{source}
	}
	all := []needs{source}
	if d.Exists {
		schema := spec.Destination().Schema
		all = append(all, needs{oid: d.IntoOID, name: spec.Into(), schema: schema, whole: true})
	}
	return all
}

// needs lists what a role needs to run the pipeline: its tables, and the schemas of the types that statements name.
func (f *Findings) needs(ctx context.Context, q database.Querier) ([]needs, error) {
	all := required(f.Pipeline.Spec, f.Table, f.Looks, f.Destination)
	for _, j := range f.Joined {
		all = append(all, needs{oid: j.Table.OID, name: j.Table.Quoted(), schema: j.Table.Schema, read: j.Uses})
	}
	schemas, err := database.Collect(ctx, q, "type_schemas", pgx.RowTo[string], pgx.StrictNamedArgs{
		"type": f.Vector.OIDs[pipeline.StoredVector], "table": f.Table.OID, "key": catalog.KeyNames(f.Table.Key),
	})
	if err != nil {
		return nil, fmt.Errorf("look up schemas of types: %w", err)
	}
	for _, schema := range schemas {
		all = append(all, needs{schema: schema})
	}
	return all, nil
}

// grants returns the statements that give a role what it needs, whether or not it has it.
func (n needs) grants(role string) []string {
	to := " TO " + database.Quote(role) + ";"
	if n.name == "" {
		return nil
	}
	if n.whole {
		return []string{"GRANT SELECT, INSERT, UPDATE, DELETE ON " + n.name + to}
	}
	what := "SELECT"
	if n.read != nil {
		what += " (" + database.QuoteAll(n.read) + ")"
	}
	if len(n.write) > 0 {
		what += ", UPDATE (" + database.QuoteAll(n.write) + ")"
	}
	return []string{"GRANT " + what + " ON " + n.name + to}
}

// missing returns those statements of grants that the role still needs.
func (n needs) missing(ctx context.Context, q database.Querier, role string) ([]string, error) {
	var statements []string
	var usage bool
	if err := q.QueryRow(ctx, "SELECT has_schema_privilege($1, $2, 'USAGE')", role, n.schema).Scan(&usage); err != nil {
		return nil, fmt.Errorf("look up privileges on schema %s: %w", database.Quote(n.schema), err)
	}
	if !usage {
		statements = append(statements, "GRANT USAGE ON SCHEMA "+database.Quote(n.schema)+" TO "+database.Quote(role)+";")
	}
	if n.name == "" {
		return statements, nil
	}
	var ok *bool // NULL: the table was dropped in this moment, and needs nothing any more
	var err error
	if n.whole {
		err = q.QueryRow(ctx, sqlfiles.Query("may_write_table"), pgx.StrictNamedArgs{
			"role": role, "table": n.oid,
		}).Scan(&ok)
	} else {
		err = q.QueryRow(ctx, sqlfiles.Query("may_use_columns"), pgx.StrictNamedArgs{
			"role": role, "table": n.oid, "read": n.read, "write": n.write,
		}).Scan(&ok)
	}
	if err != nil {
		return nil, fmt.Errorf("look up privileges on %s: %w", n.name, err)
	}
	if ok != nil && !*ok {
		statements = append(statements, n.grants(role)...)
	}
	return statements, nil
}

// Grants returns the statements that let a role run a confirmed pipeline, for an owner of its tables to run. What the
// role needs besides is in sql/roles.sql.
func Grants(ctx context.Context, db database.Beginner, p *pipeline.Pipeline, role string) ([]string, error) {
	var statements []string
	err := database.RetryReadOnly(ctx, db, func(tx pgx.Tx) error {
		statements = nil
		f, err := Inspect(ctx, tx, p.Spec, catalog.Vectors{Dims: p.Dims, Either: true}, nil)
		if err != nil {
			return err
		}
		all, err := f.needs(ctx, tx)
		if err != nil {
			return err
		}
		schemas := map[string]bool{}
		for _, n := range all {
			if !schemas[n.schema] {
				schemas[n.schema] = true
				statements = append(statements, "GRANT USAGE ON SCHEMA "+database.Quote(n.schema)+" TO "+database.Quote(role)+";")
			}
			statements = append(statements, n.grants(role)...)
		}
		return nil
	})
	return statements, err
}

// missingGrants returns what the current role lacks for a pipeline.
func missingGrants(ctx context.Context, q database.Querier, f *Findings) (role string, statements []string, err error) {
	if err := q.QueryRow(ctx, "SELECT current_user::text").Scan(&role); err != nil {
		return "", nil, fmt.Errorf("look up role: %w", err)
	}
	all, err := f.needs(ctx, q)
	if err != nil {
		return "", nil, err
	}
	for _, n := range all {
		more, err := n.missing(ctx, q, role)
		if err != nil {
			return "", nil, err
		}
		statements = append(statements, more...)
	}
	slices.Sort(statements)
	return role, slices.Compact(statements), nil
}
