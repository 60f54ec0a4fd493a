package setup

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	"github.com/embedsidecar/embedsidecar/internal/setup/step"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// secretSize is the length of the installation's secret in bytes.
const secretSize = 32

// lookAtServer reads the server's state and refuses servers that cannot work.
func (in *initializer) lookAtServer(ctx context.Context) error {
	s := &in.server
	var err error
	if s.Server, err = catalog.ReadServer(ctx, in.o.Pool, in.o.Slot); err != nil {
		return fmt.Errorf("look at the server: %w", err)
	}
	if s.Schema, err = catalog.SchemaVersion(ctx, in.o.Pool); err != nil {
		return err
	}
	if s.Schema > 0 {
		// An init that was killed may have left the tables without the row.
		if err := in.o.Pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM embedsidecar.installation)").Scan(
			&s.Installed); err != nil {
			return fmt.Errorf("look at the installation: %w", err)
		}
	}
	switch {
	case s.Schema != 0 && s.Schema < sqlfiles.FirstVersion:
		return catalog.BeforeFirst(s.Schema)
	case s.TooOld() != nil:
		return s.TooOld()
	case in.o.Sketch:
	case s.OnStandby() != nil:
		return s.OnStandby()
	case s.NotLogical() != nil:
		return s.NotLogical()
	case s.Untested() != "":
		in.report.Warnings = append(in.report.Warnings, s.Untested())
	}
	if s.Schema > sqlfiles.Version && s.Installed {
		in.report.Warnings = append(in.report.Warnings,
			fmt.Sprintf("the schema embedsidecar has version %d, newer than this program's %d: it is not changed",
				s.Schema, sqlfiles.Version))
	}
	return nil
}

func (in *initializer) extension() (a step.Action, schema string) {
	sql, schema := in.server.CreateVector()
	return step.Action{
		Step: step.Step{
			What: "extension vector in schema " + database.Quote(schema), SQL: sql,
			Undo: []string{"DROP EXTENSION vector;"},
		},
		// Only the server knows whether the extension is trusted, so just try.
		Allowed: in.server.Superuser || in.server.MayCreate, Why: in.mayNotCreate(),
		Run: func(ctx context.Context) error {
			err := in.runner().Execute(ctx, step.Action{Step: step.Step{SQL: sql}})
			if database.HasCode(err, "58P01", "0A000", "22023") { // no such file: the package is not installed on the server
				return refusal.Coded(code.Pgvector, "pgvector is not installed on the server", fmt.Sprintf(
					"install the server's package pgvector (such as postgresql-%d-pgvector), then run embedsidecar init again",
					in.server.Major()))
			}
			return err
		},
	}, schema
}

// schema plans our tables, or nothing if they exist.
func (in *initializer) schema() []step.Action {
	if in.server.Schema >= sqlfiles.Version && in.server.Installed {
		return nil
	}
	a := step.Action{Words: true, Run: in.migrate, Allowed: in.server.Owns || in.server.MayCreate || in.server.Superuser}
	a.What = fmt.Sprintf("schema embedsidecar, version %d", sqlfiles.Version)
	a.Grant, a.Why = in.grantCreate(), in.mayNotCreate()
	if in.server.Schema > 0 {
		a.Why = "it belongs to another role"
		a.Allowed, a.Grant = in.server.Owns || in.server.Superuser, "-- embedsidecar init, as the owner of the schema"
	}
	a.SQL = []string{
		"-- tables: pipelines, queue, ledger (which text each vector is of), history, audit log, measurements",
		"-- functions and views: search, status and the verbs; nothing outside of this schema",
	}
	if in.server.Schema == 0 {
		a.Undo = []string{"DROP SCHEMA embedsidecar CASCADE;"}
	}
	return []step.Action{a}
}

// upgrade migrates tables of an older version, or those of an interrupted init, before anything is read from them. It
// returns false in a dry run.
func (in *initializer) upgrade(ctx context.Context) (done bool, err error) {
	plan := in.schema()
	if in.server.Schema == 0 {
		return true, nil // without tables to read, they are made with the rest
	}
	if len(plan) == 0 {
		return true, in.alone(ctx)
	}
	if err := in.perform(ctx, plan); err != nil || in.o.DryRun {
		in.report.Warnings = append(in.report.Warnings, "the rest depends on the schema embedsidecar")
		return false, err
	}
	in.server.Schema, in.server.Installed = max(in.server.Schema, sqlfiles.Version), true
	return true, nil
}

// grantCreate is the statement that lets the role make a schema and a publication.
func (in *initializer) grantCreate() string {
	return "GRANT CREATE ON DATABASE " + database.Quote(in.server.Database) + " TO " + database.Quote(in.server.Role)
}

func (in *initializer) mayNotCreate() string {
	return fmt.Sprintf("role %q may not create in database %q", in.server.Role, in.server.Database)
}

// migrate updates our schema to this program's version and writes the installation's row.
func (in *initializer) migrate(ctx context.Context) error {
	err := database.Transact(ctx, in.o.Pool, func(tx pgx.Tx) error {
		var hidden []uint32 // tables that had row-level security before the upgrade
		if err := tx.QueryRow(ctx, "SELECT coalesce(array_agg(c.oid), '{}') FROM pg_catalog.pg_class AS c WHERE "+
			"c.relrowsecurity AND c.relnamespace = to_regnamespace('embedsidecar')").Scan(&hidden); err != nil {
			return fmt.Errorf("look for row-level security: %w", err)
		}
		if err := sqlfiles.Upgrade(ctx, tx); err != nil {
			return err
		}
		if err := notHidden(ctx, tx, "", "c.relnamespace = 'embedsidecar'::regnamespace AND c.oid <> ALL ($1)",
			hidden); err != nil {
			return err
		}
		return ensureInstallation(ctx, tx)
	})
	switch {
	case database.HasCode(err, pgerrcode.DuplicateSchema, pgerrcode.DuplicateTable, pgerrcode.UniqueViolation):
		return errRunning // another process made it at the same time
	case err != nil:
		return err
	}
	return in.alone(ctx)
}

// ensureInstallation writes the installation's row with a new secret, unless it exists.
func ensureInstallation(ctx context.Context, tx pgx.Tx) error {
	key := make([]byte, secretSize)
	if _, err := rand.Read(key); err != nil {
		return fmt.Errorf("make a secret: %w", err)
	}
	_, err := tx.Exec(ctx, "INSERT INTO embedsidecar.installation (secret) VALUES ($1) ON CONFLICT (only_row) DO NOTHING", key)
	return wrap.Errorf(err, "write installation")
}

func (in *initializer) comment(f *resolve.Findings) string {
	return "COMMENT ON " + f.Pipeline.DestinationObject() + " IS " +
		database.Literal(catalog.MarkOf(f.Table, in.o.Descriptions[f.Pipeline.Name].Fingerprint))
}

// markAnew plans a new comment for one of our destinations when its embedder changes.
func (in *initializer) markAnew(f *resolve.Findings) (a step.Action, needed bool) {
	now, want := f.Destination.Mark, catalog.MarkOf(f.Table, in.o.Descriptions[f.Pipeline.Name].Fingerprint)
	if now == want || !strings.HasPrefix(now, catalog.MarkOf(f.Table, "")) || !f.Destination.Owned {
		return a, false
	}
	return step.Action{
		Step:    step.Step{What: "comment on " + f.Pipeline.DestinationName(), SQL: []string{in.comment(f)}},
		Allowed: true,
	}, true
}

// takesUp reports whether a destination that holds vectors may be taken over without --overwrite: an embedding table
// that an earlier init made for the same source and embedder, or a column whose ledger was kept. Any other column may
// have been written by another program since.
func (in *initializer) takesUp(f *resolve.Findings) bool {
	return f.Kept != 0 || !f.Pipeline.InSource() && f.Destination.Mark == catalog.MarkOf(f.Table,
		in.o.Descriptions[f.Pipeline.Name].Fingerprint)
}

// occupied is the error of a destination that holds vectors and is not taken over.
func (in *initializer) occupied(f *resolve.Findings) error {
	name := f.Pipeline.DestinationName()
	e := &refusal.ConfigError{
		Pipeline: f.Pipeline.Name, Problem: "the destination " + name + " holds vectors that this pipeline did not write",
		Hint: []string{
			"keep these vectors: embedsidecar adopt " + f.Pipeline.Name + " --from COLUMN|TABLE",
			"or name another destination, or replace every vector in this one: --overwrite",
		},
		Code: code.Taken,
	}
	source, fingerprint, ours := strings.Cut(strings.TrimPrefix(f.Destination.Mark, catalog.VectorsOf), " by ")
	switch {
	case !ours:
	case f.Pipeline.InSource() && source == f.Table.Quoted():
		e.Problem = "the destination " + name +
			" holds vectors that an earlier set-up left, unless someone else has written there since"
	case source != f.Table.Quoted():
		e.Problem = fmt.Sprintf("the destination %s holds vectors that an earlier set-up left, of the rows of %s", name,
			source)
	default:
		e.Problem = fmt.Sprintf("the destination %s holds vectors that an earlier set-up left, made by another model (%s)",
			name, brief(fingerprint))
	}
	return e
}
