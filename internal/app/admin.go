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

// check runs the checks of embedsidecar check with the embedders in use. A process that only answers queries starts new
// ones, because an embedder that started long ago does not show what is installed now.
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
