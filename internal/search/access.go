package search

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// Access limits what a caller may see through a connection of the program.
type Access struct {
	Columns []string // columns that the caller's filter may use; nil: all
	Fixed   Filters  // conditions in addition to the caller's, on any column
	Role    string   // the database role to search as; "": the role of the connection
	// search tables with row level security even if the role is not subject to their policies
	PastRowSecurity bool
}

// RowSecurityError means that a search would bypass policies of a table. Its text is shown to the operator.
type RowSecurityError struct {
	Pipeline, Table string
}

func (e *RowSecurityError) Error() string {
	return fmt.Sprintf("search %q: table %s has row level security, and the role that searches is not subject to its policies", e.Pipeline, e.Table)
}

// Hints returns the hints of the error.
func (*RowSecurityError) Hints() []string {
	return []string{
		"give the token a database role that the policies apply to: embedsidecar token create NAME --database-role ROLE",
		"or let every client see every row: search: {row_security: ignore} in the pipeline's configuration",
	}
}

// RoleError means that the program cannot SET ROLE to the role of an Access, or should not.
type RoleError struct {
	Role string
	Err  error
	hint string
}

func (e *RoleError) Error() string { return fmt.Sprintf("search as role %q: %v", e.Role, e.Err) }
func (e *RoleError) Unwrap() error { return e.Err }

// Hints returns the hints of the error.
func (e *RoleError) Hints() []string {
	if e.hint != "" {
		return []string{e.Err.Error(), e.hint}
	}
	return []string{"GRANT " + database.Quote(e.Role) + " TO the role that this program connects as: it must be a " +
		"member, from PostgreSQL 16 on WITH SET TRUE"}
}

// Barred returns a *RowSecurityError if a search with such an access would bypass policies.
func Barred(ctx context.Context, db DB, p *pipeline.Pipeline, a *Access) error {
	return reading(ctx, db, p, a, func(pgx.Tx) error { return nil })
}

// enter sets the role for the rest of the transaction and checks that policies apply.
func (a *Access) enter(ctx context.Context, tx pgx.Tx, p *pipeline.Pipeline) error {
	if a == nil {
		return nil
	}
	// The program's sessions have it off, so that a policy cannot silently hide rows from the worker.
	if _, err := tx.Exec(ctx, "SET LOCAL row_security = on"); err != nil {
		return fmt.Errorf("enable row security: %w", err)
	}
	if err := a.become(ctx, tx); err != nil {
		return err
	}
	if a.PastRowSecurity && a.Role == "" {
		return nil
	}
	into := ""
	if !p.InSource() {
		into = p.Into()
	}
	var table, policy *string
	err := tx.QueryRow(ctx, sqlfiles.Query("hidden_by_policies"), pgx.StrictNamedArgs{
		"tables": p.Tables(), "into": into, "trusted": database.Trusted(tx.Conn()),
	}).Scan(&table, &policy)
	switch {
	case err != nil:
		return fmt.Errorf("look for row level security of pipeline %q: %w", p.Name, err)
	case policy != nil:
		return &RoleError{
			a.Role, errors.New(*policy + ", in the session of a superuser"),
			"run as the role that embedsidecar roles makes, or name that role with --trust-owner",
		}
	case table != nil && !a.PastRowSecurity:
		return &RowSecurityError{p.Name, *table}
	}
	return nil
}

// become sets the role.
func (a *Access) become(ctx context.Context, tx pgx.Tx) error {
	if a.Role == "" {
		return nil
	}
	if _, err := tx.Exec(ctx, "SET LOCAL ROLE "+database.Quote(a.Role)); err != nil {
		pg, ok := errors.AsType[*pgconn.PgError](err)
		if ok && (pg.Code == pgerrcode.InsufficientPrivilege || pg.Code == pgerrcode.InvalidParameterValue) {
			return &RoleError{Role: a.Role, Err: err}
		}
		return fmt.Errorf("search as role %q: %w", a.Role, err)
	}
	return nil
}

// leave runs f as the role of the connection, then sets the role again.
func (a *Access) leave(ctx context.Context, tx pgx.Tx, f func() error) error {
	if a == nil || a.Role == "" {
		return f()
	}
	if _, err := tx.Exec(ctx, "SET LOCAL ROLE NONE"); err != nil {
		return fmt.Errorf("stop searching as role %q: %w", a.Role, err)
	}
	if err := f(); err != nil {
		return err
	}
	return a.become(ctx, tx)
}

// DeniedError means that the searching role may not read a table or column that the search needs. Its text is shown to
// the operator.
type DeniedError struct {
	Pipeline, Role string
	Grants         []string // the missing grants
	Err            error
}

func (e *DeniedError) Error() string {
	return fmt.Sprintf("role %q lacks privileges to search pipeline %q", e.Role, e.Pipeline)
}

func (e *DeniedError) Unwrap() error { return e.Err }

// Hints returns the hints of the error.
func (e *DeniedError) Hints() []string { return e.Grants }

// denied turns a permission error into a *DeniedError that lists the missing grants, if they can be determined.
func denied(ctx context.Context, db DB, p *pipeline.Pipeline, r *Request, err error) error {
	if !database.HasCode(err, pgerrcode.InsufficientPrivilege) {
		return err
	}
	if _, role := errors.AsType[*RoleError](err); role {
		return err
	}
	names := slices.Concat(p.Columns, p.Watched, r.Columns, slices.Collect(maps.Keys(r.Filter)),
		pipeline.KeyNames(p.Key))
	if p.InSource() {
		names = append(names, p.IntoColumn)
	}
	if r.Access != nil {
		names = slices.AppendSeq(names, maps.Keys(r.Access.Fixed))
	}
	var into pipeline.Destination
	if !p.InSource() {
		into = p.Destination()
	}
	told := &DeniedError{Pipeline: p.Name, Err: err}
	failed := reading(ctx, db, p, r.Access, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, sqlfiles.Query("missing_grants"), pgx.StrictNamedArgs{
			"table": p.OID, "columns": names, "into_schema": into.Schema, "into": into.Table,
		}).Scan(&told.Role, &told.Grants)
	})
	if failed != nil || len(told.Grants) == 0 {
		return err
	}
	return told
}
