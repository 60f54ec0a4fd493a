package database

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Hold gives one session at a time exclusive access: it locks the table, which has no other use, until release is
// called. It returns nil if another session holds it. An advisory lock would not do, because any login can take those.
// The open transaction has neither a snapshot nor a transaction id, so vacuum and slots do not wait for it.
func Hold(ctx context.Context, pool *pgxpool.Pool, table string) (release func(), err error) {
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return nil, Wrap(err)
	}
	release = func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = tx.Rollback(closing) // the lock ends with the transaction or the connection
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
