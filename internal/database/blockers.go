package database

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
)

// Blocker is an open transaction of the cluster that blocks us: the creation of a slot, the start of a scan, or the
// queueing of a change.
type Blocker struct {
	PID         int32    `json:"pid,omitempty"` // of its session
	GID         string   `json:"gid,omitempty"` // of a prepared transaction, which has no session
	Database    string   `json:"database"`
	Role        string   `json:"role"`
	Application string   `json:"application,omitempty"`
	State       string   `json:"state,omitempty"`       // of the session, if the role may see it
	AgeSeconds  *float64 `json:"age_seconds,omitempty"` // nil: the owner of the schema may not see it
	Words       string   `json:"words"`                 // the whole description as text
}

// String identifies the blocker and how to find it, without its query.
func (b Blocker) String() string { return b.Words }

// Blockers returns the open transactions of the cluster that have an id, the oldest first: all that block the creation
// of a slot, or with the id of a scan's barrier those that block the scan.
func Blockers(ctx context.Context, db Reader, before string) ([]Blocker, error) {
	const most = 10
	args := pgx.StrictNamedArgs{"before": Given(before), "most": most}
	list, err := Collect(ctx, db, "blockers", pgx.RowToStructByPos[Blocker], args)
	return list, wrap.Errorf(err, "list open transactions")
}

// QueueHolders returns others' open transactions that may hold locks on the queue, the oldest first.
func QueueHolders(ctx context.Context, db Reader) ([]Blocker, error) {
	const most = 10
	list, err := Collect(ctx, db, "queue_holders", pgx.RowToStructByPos[Blocker], pgx.StrictNamedArgs{"most": most})
	return list, wrap.Errorf(err, "list blockers of the queue")
}

// LockHolders describes the other sessions and prepared transactions that hold a lock on one of the tables, at most
// ten. With nil tables, it returns those that hold a lock on any table that blocks readers or writers.
func LockHolders(ctx context.Context, db Reader, tables []uint32) ([]string, error) {
	list, err := Collect(ctx, db, "lock_holders", pgx.RowTo[string], pgx.StrictNamedArgs{"tables": tables})
	return list, wrap.Errorf(err, "list locks")
}

// heldError is the error of a statement that failed on a lock, with the possible holders.
type heldError struct {
	error
	holders []string
}

func (e heldError) Unwrap() error { return e.error }

// Hints names the holders.
func (e heldError) Hints() []string {
	return append(e.holders, "wait for it, or end it: SELECT pg_terminate_backend(pid); "+
		"a prepared transaction: COMMIT PREPARED or ROLLBACK PREPARED")
}

// NameHolders adds the possible holders to the error of a statement that failed on a lock.
func NameHolders(ctx context.Context, db Reader, err error) error {
	if !LockedOut(err) {
		return err
	}
	holders, lookErr := LockHolders(ctx, db, nil)
	if lookErr != nil || len(holders) == 0 {
		return err
	}
	return heldError{err, holders}
}

// Named returns the blockers' descriptions.
func Named(list []Blocker) []string {
	return lists.Map(list, func(b Blocker) string { return b.String() })
}

// WatchBlockers calls look after a few seconds and then repeatedly, until ctx ends, and calls tell when there are
// blockers.
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
