package database

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
)

const tries = 50 // half a minute

type briefly struct{}

// Briefly returns a context for readers that should report a lock rather than wait for it: everything that runs under
// it retries on locks for about three seconds in total.
func Briefly(ctx context.Context) context.Context {
	left := &atomic.Int32{}
	left.Store(tries / 10) //nolint:mnd // of half a minute
	return context.WithValue(ctx, briefly{}, left)
}

// UntilUnlocked retries f while it fails on locks of other sessions, for about half a minute or as Briefly says. It
// also retries a few times when an object vanished while f read it. Each try fails after the session's lock_timeout:
// one long wait could make a user who waits for us the deadlock victim.
func UntilUnlocked(ctx context.Context, f func() error) error {
	const few, pause = 5, 100 * time.Millisecond
	left, brief := ctx.Value(briefly{}).(*atomic.Int32)
	if !brief {
		left = &atomic.Int32{}
		left.Store(tries)
	}
	for try := 1; ; try++ {
		err := f()
		if again := LockedOut(err) && left.Add(-1) > 0 || Vanished(err) && try < few; !again {
			return err
		}
		if !sleep.For(ctx, sleep.Between(pause/2, 3*pause/2)) {
			return ctx.Err()
		}
	}
}

// Isolation holds the options of a transaction that a batch begins.
var Isolation = pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}

// Begin starts a transaction. Through a pooler, it applies the settings of Conduct in the same round trip.
func Begin(ctx context.Context, db Beginner) (pgx.Tx, error) {
	if pool, ok := db.(*pgxpool.Pool); ok && Pooled(pool) {
		return pool.BeginTx(ctx, pgx.TxOptions{BeginQuery: "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; " +
			localConduct})
	}
	return db.Begin(ctx)
}

// BeginSnapshot starts a read-only transaction with one snapshot. Through a pooler, it applies the settings of Conduct.
func BeginSnapshot(ctx context.Context, pool *pgxpool.Pool) (pgx.Tx, error) {
	if Pooled(pool) {
		return pool.BeginTx(ctx, pgx.TxOptions{BeginQuery: "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; " +
			localConduct})
	}
	return pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
}

// ReadOnly runs f in a transaction and always rolls it back.
func ReadOnly(ctx context.Context, db Beginner, f func(tx pgx.Tx) error) error {
	tx, err := Begin(ctx, db)
	if err != nil {
		return fmt.Errorf("begin transaction: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	return f(tx)
}

// Transact runs f in a transaction, and retries it while it fails on locks of other sessions.
func Transact(ctx context.Context, db Beginner, f func(tx pgx.Tx) error) error {
	return UntilUnlocked(ctx, func() error { return pgx.BeginFunc(ctx, db, f) })
}

// RetryReadOnly is ReadOnly with retries while f fails on locks of other sessions. Each retry runs f from the start.
func RetryReadOnly(ctx context.Context, db Beginner, f func(tx pgx.Tx) error) error {
	return UntilUnlocked(ctx, func() error { return ReadOnly(ctx, db, f) })
}

// RolledBack runs f inside a savepoint and undoes what it did.
func RolledBack(ctx context.Context, tx pgx.Tx, f func(tx pgx.Tx) error) error {
	savepoint, err := tx.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin savepoint: %w", err)
	}
	err = f(savepoint)
	if rollback := savepoint.Rollback(ctx); rollback != nil && err == nil {
		return fmt.Errorf("roll back savepoint: %w", rollback)
	}
	return err
}

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
