package setup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
)

// errAltered is inside errors about an object that an event trigger altered.
var errAltered = errors.New("an event trigger of the database alters it")

// asMade checks, before commit, that an embedding table is as requested: event triggers may add columns or row-level
// security.
func asMade(f *resolve.Findings) func(ctx context.Context, tx pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		spec := f.Pipeline.Spec
		vectors := catalog.Vectors{Dims: f.Pipeline.Dims, Either: true}
		_, err := catalog.FindDestination(ctx, tx, spec, f.Table, f.Vector, vectors)
		if _, altered := errors.AsType[*refusal.ConfigError](err); altered {
			return fmt.Errorf("%w: %w", errAltered, refusal.About(spec.Name, err))
		}
		if err != nil {
			return err
		}
		return notHidden(ctx, tx, spec.Name, "c.oid = $1::regclass", spec.Into())
	}
}

// notHidden checks that no new table has row-level security enabled: the runtime roles would see no rows.
func notHidden(ctx context.Context, tx pgx.Tx, pipeline, where string, argument any) error {
	var hidden *string
	err := tx.QueryRow(ctx, "SELECT min(c.oid::regclass::text) FROM pg_catalog.pg_class AS c WHERE c.relrowsecurity AND "+
		where, argument).Scan(&hidden)
	if err != nil || hidden == nil {
		return err
	}
	return fmt.Errorf("%w: %w", errAltered, &refusal.ConfigError{
		Pipeline: pipeline, Code: code.RLS, Problem: "row-level security is on in the new table " + *hidden,
	})
}

// byTriggers adds to an error the event triggers that may have caused it, and what to do.
func (in *initializer) byTriggers(ctx context.Context, err error) error {
	pg, refused := errors.AsType[*pgconn.PgError](err)
	whole := errors.Is(err, errAltered) || refused && pg.Routine == "check_enable_rls"
	if !whole && (!refused || pg.Where == "") {
		return err
	}
	type trigger struct{ Name, Function string }
	list, failed := database.Collect(ctx, in.o.Pool, "event_triggers", pgx.RowToStructByPos[trigger],
		pgx.StrictNamedArgs{})
	if failed != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(t trigger) bool { return !whole && !strings.Contains(pg.Where, t.Function+"(") })
	if len(list) == 0 {
		return err
	}
	var names, disable []string
	for _, t := range list {
		names, disable = append(names, t.Name), append(disable, "ALTER EVENT TRIGGER "+t.Name+" DISABLE;")
	}
	return problem.New(problem.Of(err), err, append(problem.Hints(err),
		"event triggers run in each statement of a set-up: "+strings.Join(names, ", ")+"; have them leave out the schema "+
			"embedsidecar and embedding tables, or, as a superuser, while embedsidecar init runs: "+strings.Join(disable, " "))...)
}
