package database

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
)

// ErrLocked means that somebody holds a table at this moment; later it may work.
var ErrLocked = errors.New("a table is locked by another session")

// LockedOut reports whether a statement lost against somebody's lock: none of it happened, and the same may succeed
// later.
func LockedOut(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return Judge(err) == Locked || ok && pg.Code == pgerrcode.DeadlockDetected
}

// UntilUnlocked does something again while it loses against somebody's lock, for about half a minute. Each try gives
// way after the session's lock_timeout: one long wait could make a user who waits for us the one who must give way.
func UntilUnlocked(ctx context.Context, f func() error) error {
	const tries, pause = 50, 100 * time.Millisecond
	for try := 1; ; try++ {
		err := f()
		if !LockedOut(err) || try == tries {
			return err
		}
		if !sleep.For(ctx, sleep.Between(pause/2, 3*pause/2)) {
			return ctx.Err()
		}
	}
}
