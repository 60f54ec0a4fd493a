// Package catalog asks PostgreSQL's catalogue what is there: tables and their keys, what an expression reads,
// pgvector's types, destinations, whose objects these are, and which version our own schema has. It believes nothing
// else, and changes nothing. All its connections come from package database, so search_path is pg_catalog.
package catalog

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/spelling"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// Table is what the catalogue says of a source table.
type Table struct {
	OID         uint32
	Schema      string
	Name        string
	Kind        string // pg_class.relkind
	Persistence string // pg_class.relpersistence
	Identity    string // pg_class.relreplident
	Children    bool   // other tables inherit from it
	Triggers    bool   // triggers of the user's fire on an UPDATE of it, or of a partition
	RowSecurity bool   // policies hide rows from the current role
	Reader      string // the role that looked
	OwnedByUs   bool   // the current role has the rights of the owner
	Owner       string
	Columns     []Column             `db:"-"`
	Key         []pipeline.KeyColumn `db:"-"`
	As          string               `db:"-"` // what expressions call it; "": r
	Joined      []string             `db:"-"` // names that texts have beside the columns: those of joins
}

// Column is what the catalogue says of a column.
type Column struct {
	Number    int16
	Name      string
	Type      uint32
	Modifier  int32
	TypeName  string // with modifier, ready for a definition
	Category  string // pg_type.typcategory
	NotNull   bool
	Generated bool
	Default   bool
	Base      uint32 // the type of which its own is a domain, or its own
	BaseName  string // with modifier, ready for a definition
	Collation string // as a clause for a definition with BaseName; "" when it is that type's own
}

// Quoted is the name with its schema, for use in SQL.
func (t *Table) Quoted() string { return database.Quote(t.Schema, t.Name) }

// Column returns the column of a name.
func (t *Table) Column(name string) (Column, bool) {
	for _, c := range t.Columns {
		if c.Name == name {
			return c, true
		}
	}
	return Column{}, false
}

// ColumnNames are the names of the columns, in their order.
func (t *Table) ColumnNames() []string {
	return lists.Map(t.Columns, func(c Column) string { return c.Name })
}

// TableByName finds a table and its columns. It returns *MissingError when there is none.
func TableByName(ctx context.Context, q database.Querier, schema, name string) (*Table, error) {
	t, err := loadTable(ctx, q, pgx.StrictNamedArgs{"table": nil, "schema": schema, "name": name})
	if !errors.Is(err, pgx.ErrNoRows) {
		return t, err
	}
	names, err := database.Collect(ctx, q, "table_names", pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	return nil, &refusal.MissingError{ConfigError: refusal.ConfigError{
		Problem: fmt.Sprintf("there is no table %s", database.Quote(schema, name)),
		Hint:    spelling.DidYouMean(schema+"."+name, names),
	}}
}

// TableByOID finds a table that may have been renamed. It returns *MissingError when it is gone.
func TableByOID(ctx context.Context, q database.Querier, oid uint32) (*Table, error) {
	t, err := loadTable(ctx, q, pgx.StrictNamedArgs{"table": oid, "schema": nil, "name": nil})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, &refusal.MissingError{ConfigError: refusal.ConfigError{Problem: "the source table was dropped"}}
	}
	return t, err
}

func loadTable(ctx context.Context, q database.Querier, args pgx.StrictNamedArgs) (*Table, error) {
	rows, err := q.Query(ctx, sqlfiles.Query("find_table"), args)
	if err != nil {
		return nil, fmt.Errorf("look up table: %w", err)
	}
	t, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByName[Table])
	if err != nil {
		return nil, fmt.Errorf("look up table: %w", err)
	}
	rows, err = q.Query(ctx, sqlfiles.Query("table_columns"), pgx.StrictNamedArgs{"table": t.OID})
	if err != nil {
		return nil, fmt.Errorf("look up columns of %s: %w", t.Quoted(), err)
	}
	if t.Columns, err = pgx.CollectRows(rows, pgx.RowToStructByName[Column]); err != nil {
		return nil, fmt.Errorf("look up columns of %s: %w", t.Quoted(), err)
	}
	return t, nil
}

// kinds tells people what a relation that cannot be a source is.
var kinds = map[string]string{
	"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence", "i": "an index", "I": "an index",
	"c": "a composite type", "t": "a TOAST table",
}

// Embeddable returns *ConfigError when no pipeline can read the table.
func (t *Table) Embeddable() error {
	switch {
	case t.Kind != "r" && t.Kind != "p":
		return refusal.Coded(code.Table, fmt.Sprintf("%s is %s: only tables send their changes", t.Quoted(), kinds[t.Kind]),
			"name the table that the rows are in")
	case t.Schema == "pg_catalog" || t.Schema == "information_schema" || t.Schema == "embedsidecar" ||
		strings.HasPrefix(t.Schema, "pg_"):
		return refusal.Coded(code.Table, fmt.Sprintf("%s is a table of the system", t.Quoted()))
	case t.Persistence == "u":
		return refusal.Coded(code.Table, t.Quoted()+" is unlogged: its changes are not in the WAL",
			"ALTER TABLE "+t.Quoted()+" SET LOGGED;")
	case t.Persistence == "t":
		return refusal.Coded(code.Table, t.Quoted()+" is a temporary table")
	case t.RowSecurity:
		return refusal.Coded(code.RLS, t.Quoted()+" has row-level security that hides rows from this role: hidden rows would appear to be deleted", t.bypass()...)
	}
	return nil
}

// bypass is the way out of row-level security.
func (t *Table) bypass() []string {
	return []string{"as superuser: ALTER ROLE " + database.Quote(t.Reader) + " BYPASSRLS;"}
}

// AnyGenerated reports whether one of the columns is made of others.
func (t *Table) AnyGenerated(names []string) bool {
	for _, name := range names {
		if c, _ := t.Column(name); c.Generated {
			return true
		}
	}
	return false
}

// Usable returns *PermissionError when the role may not even name the table: then nothing else about it can be asked.
func Usable(ctx context.Context, q database.Querier, t *Table) error {
	var role string
	var usage bool
	if err := q.QueryRow(ctx, "SELECT current_user::text, has_schema_privilege($1, 'USAGE')", t.Schema).Scan(&role,
		&usage); err != nil {
		return fmt.Errorf("look up privileges on schema %s: %w", database.Quote(t.Schema), err)
	}
	if !usage {
		return &refusal.PermissionError{
			What: "look at table " + t.Quoted(), Role: role,
			SQL: []string{"GRANT USAGE ON SCHEMA " + database.Quote(t.Schema) + " TO " + database.Quote(role) + ";"},
		}
	}
	return nil
}
