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

// Vanished reports whether a statement met something in the catalogs that another session was just dropping ("cache
// lookup failed", "could not open relation"): the same statement, begun again, sees what is there now.
func Vanished(err error) bool { return HasCode(err, pgerrcode.InternalError) }

// UntilUnlocked does something again while it loses against somebody's lock, for about half a minute, and a few times
// when what it reads vanished. Each try gives way after the session's lock_timeout: one long wait could make a user who
// waits for us the one who must give way.
func UntilUnlocked(ctx context.Context, f func() error) error {
	const tries, few, pause = 50, 5, 100 * time.Millisecond
	for try := 1; ; try++ {
		err := f()
		if again := LockedOut(err) && try < tries || Vanished(err) && try < few; !again {
			return err
		}
		if !sleep.For(ctx, sleep.Between(pause/2, 3*pause/2)) {
			return ctx.Err()
		}
	}
}
