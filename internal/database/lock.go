package database

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
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
// lookup failed", "could not open relation"): the same statement, begun anew, sees what is there now.
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

// Blocker is an open transaction of the cluster that something of ours waits for: the making of a slot, the
// beginning of a scan, or a change that is to be queued.
type Blocker struct {
	PID         int32    `json:"pid,omitempty"` // of its session
	GID         string   `json:"gid,omitempty"` // of one that is prepared, and has no session
	Database    string   `json:"database"`
	Role        string   `json:"role"`
	Application string   `json:"application,omitempty"`
	State       string   `json:"state,omitempty"`       // of the session, if the role may see it
	AgeSeconds  *float64 `json:"age_seconds,omitempty"` // nil: the owner of the schema may not see it
	Words       string   `json:"words"`                 // all of it, as people read it
}

// String says who it is and how to find it, and nothing of what it does.
func (b Blocker) String() string { return b.Words }

// Blockers returns the open transactions of the cluster that have an id, the oldest first: all that the making of a
// slot waits for, or with the id of a scan's barrier those that the scan waits for.
func Blockers(ctx context.Context, db Reader, before string) ([]Blocker, error) {
	const most = 10
	args := pgx.StrictNamedArgs{"before": nil, "most": most}
	if before != "" {
		args["before"] = before
	}
	list, err := Collect(ctx, db, "blockers", pgx.RowToStructByPos[Blocker], args)
	return list, wrap.Errorf(err, "list open transactions")
}

// QueueHolders returns the open transactions of others that may hold what the queue needs, the oldest first.
func QueueHolders(ctx context.Context, db Reader) ([]Blocker, error) {
	const most = 10
	list, err := Collect(ctx, db, "queue_holders", pgx.RowToStructByPos[Blocker], pgx.StrictNamedArgs{"most": most})
	return list, wrap.Errorf(err, "list who holds the queue")
}

// Named are blockers in words.
func Named(list []Blocker) []string {
	return lists.Map(list, func(b Blocker) string { return b.String() })
}

// WatchBlockers looks who blocks, after a few seconds and then again and again, until ctx ends, and tells if somebody
// does: whoever waits says for whom.
func WatchBlockers(ctx context.Context, look func(ctx context.Context) ([]Blocker, error), tell func(list []Blocker)) {
	const first, again, longest = 3 * time.Second, 10 * time.Second, time.Minute
	for pause := first; ; pause = min(max(2*pause, again), longest) {
		if !sleep.For(ctx, pause) {
			return
		}
		if list, err := look(ctx); err == nil && len(list) > 0 {
			tell(list)
		}
	}
}
