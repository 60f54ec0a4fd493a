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

// Access is what somebody may see who asks through a connection of another's.
type Access struct {
	Columns []string // that a filter of theirs may be about; nil: any
	Fixed   Filters  // conditions that hold beside theirs, on any column
	Role    string   // the database role to search as; "": that of the connection
	// tables with row level security are searched though the role is not subject to its policies
	PastRowSecurity bool
}

// RowSecurityError means that policies of the table would be passed by. Its text is for anyone who runs the program.
type RowSecurityError struct {
	Pipeline, Table string
}

func (e *RowSecurityError) Error() string {
	return fmt.Sprintf("search %q: table %s has row level security, and the role that searches is not subject to its policies", e.Pipeline, e.Table)
}

// Hints are the ways out.
func (*RowSecurityError) Hints() []string {
	return []string{
		"give the token a database role that the policies hold for: embedsidecar token create NAME --database-role ROLE",
		"or let everyone who may query see every row: search: {row_security: ignore} in the pipeline's configuration",
	}
}

// RoleError means that the role of an Access cannot be taken.
type RoleError struct {
	Role string
	Err  error
}

func (e *RoleError) Error() string { return fmt.Sprintf("search as role %q: %v", e.Role, e.Err) }
func (e *RoleError) Unwrap() error { return e.Err }

// Hints are the ways out.
func (e *RoleError) Hints() []string {
	return []string{"GRANT " + quote(e.Role) + " TO the role that this program connects as: it must be a member, from " +
		"PostgreSQL 16 on WITH SET TRUE"}
}

// Barred returns a *RowSecurityError if policies would be passed by with such an access.
func Barred(ctx context.Context, db DB, p *pipeline.Pipeline, a *Access) error {
	return reading(ctx, db, p, a, func(pgx.Tx) error { return nil })
}

// enter takes the role for the rest of the transaction, and makes sure that policies hold.
func (a *Access) enter(ctx context.Context, tx pgx.Tx, p *pipeline.Pipeline) error {
	if a == nil {
		return nil
	}
	// Our sessions have it off, so that a policy cannot hide rows from the worker.
	if _, err := tx.Exec(ctx, "SET LOCAL row_security = on"); err != nil {
		return fmt.Errorf("have policies hold: %w", err)
	}
	if err := a.become(ctx, tx); err != nil {
		return err
	}
	if a.PastRowSecurity {
		return nil
	}
	into := ""
	if !p.InSource() {
		into = p.Into()
	}
	tables := []uint32{p.OID}
	for _, link := range p.Links() {
		tables = append(tables, link.Table().OID)
	}
	var table *string
	err := tx.QueryRow(ctx, sqlfiles.Query("hidden_by_policies"), pgx.StrictNamedArgs{
		"tables": tables, "into": into,
	}).Scan(&table)
	if err != nil {
		return fmt.Errorf("look for row level security of pipeline %q: %w", p.Name, err)
	}
	if table != nil {
		return &RowSecurityError{p.Name, *table}
	}
	return nil
}

// become takes the role.
func (a *Access) become(ctx context.Context, tx pgx.Tx) error {
	if a.Role == "" {
		return nil
	}
	if _, err := tx.Exec(ctx, "SET LOCAL ROLE "+quote(a.Role)); err != nil {
		pg, ok := errors.AsType[*pgconn.PgError](err)
		if ok && (pg.Code == pgerrcode.InsufficientPrivilege || pg.Code == pgerrcode.InvalidParameterValue) {
			return &RoleError{a.Role, err}
		}
		return fmt.Errorf("search as role %q: %w", a.Role, err)
	}
	return nil
}

// leave runs f as the role of the connection.
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

// DeniedError means that the role that searches may not read what a pipeline is searched by. Its text is for anyone who
// runs the program.
type DeniedError struct {
	Pipeline, Role string
	Grants         []string // that are missing
	Err            error
}

func (e *DeniedError) Error() string {
	return fmt.Sprintf("role %q may not read what pipeline %q is searched by", e.Role, e.Pipeline)
}

func (e *DeniedError) Unwrap() error { return e.Err }

// Hints are the ways out.
func (e *DeniedError) Hints() []string { return e.Grants }

// denied tells what a role lacks that was not let in, where that is known.
func denied(ctx context.Context, db DB, p *pipeline.Pipeline, r *Request, err error) error {
	if !database.HasCode(err, pgerrcode.InsufficientPrivilege) {
		return err
	}
	if _, role := errors.AsType[*RoleError](err); role {
		return err
	}
	names := slices.Concat(p.Columns, p.Watched, r.Columns, slices.Collect(maps.Keys(r.Filter)))
	for _, k := range p.Key {
		names = append(names, k.Name)
	}
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
