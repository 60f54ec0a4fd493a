package app

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/status/check"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
	"github.com/embedsidecar/embedsidecar/internal/status/preflight"
)

// check looks at everything that running depends on, as embedsidecar check does: with the embedders that work here, or
// where none does with new ones, since one that was started long ago tells nothing of what is there now.
func (n *Database) check(ctx context.Context, pool *pgxpool.Pool) []check.Finding {
	if n.source.Snapshot().Phase != observe.Queries {
		return preflight.With(ctx, pool, n.config(), n.plugins)
	}
	list, err := preflight.Check(ctx, pool, n.embedders())
	if err != nil {
		list = append(list, check.Finding{Name: "check", Status: check.Wrong, Detail: database.Words(err), Hint: problem.Hints(err)})
	}
	return list
}
