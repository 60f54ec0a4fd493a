package database

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Hold keeps others away from what one may do at a time: it locks the table, which serves nothing else, until release
// is called. It returns nil if somebody else holds it. An advisory lock would not do: any login can take those. The
// transaction that it keeps open has neither snapshot nor transaction id, so vacuum and slots do not wait for it.
func Hold(ctx context.Context, pool *pgxpool.Pool, table string) (release func(), err error) {
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return nil, Wrap(err)
	}
	release = func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = tx.Rollback(closing) // the lock goes with the transaction, or with its connection
	}
	for _, sql := range []string{
		"SET LOCAL idle_in_transaction_session_timeout = 0", "LOCK TABLE " + table + " IN EXCLUSIVE MODE NOWAIT",
	} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			release()
			if HasCode(err, pgerrcode.LockNotAvailable) {
				return nil, nil
			}
			return nil, fmt.Errorf("lock %s: %w", table, err)
		}
	}
	return release, nil
}
