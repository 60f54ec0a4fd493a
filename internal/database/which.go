package database

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// Which identifies a database, whatever address leads to it. It stays the same after a failover.
func Which(ctx context.Context, pool *pgxpool.Pool) (which string, err error) {
	err = pool.QueryRow(ctx, sqlfiles.Query("which_database")).Scan(&which)
	return which, wrap.Errorf(err, "ask which database it is")
}
