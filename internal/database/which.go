package database

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// Which tells a database from all others, whatever address leads to it. It is the same after a failover.
func Which(ctx context.Context, pool *pgxpool.Pool) (which string, err error) {
	if err := pool.QueryRow(ctx, sqlfiles.Query("which_database")).Scan(&which); err != nil {
		return "", fmt.Errorf("ask which database it is: %w", err)
	}
	return which, nil
}
