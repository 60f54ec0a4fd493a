package database

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
)

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
	args := pgx.StrictNamedArgs{"before": Given(before), "most": most}
	list, err := Collect(ctx, db, "blockers", pgx.RowToStructByPos[Blocker], args)
	return list, wrap.Errorf(err, "list open transactions")
}

// QueueHolders returns the open transactions of others that may hold what the queue needs, the oldest first.
func QueueHolders(ctx context.Context, db Reader) ([]Blocker, error) {
	const most = 10
	list, err := Collect(ctx, db, "queue_holders", pgx.RowToStructByPos[Blocker], pgx.StrictNamedArgs{"most": most})
	return list, wrap.Errorf(err, "list who holds the queue")
}

// LockHolders describes the other sessions and prepared transactions that hold a lock on one of the tables, at most
// ten; nil: on any, of a kind that keeps readers or writers out.
func LockHolders(ctx context.Context, db Reader, tables []uint32) ([]string, error) {
	list, err := Collect(ctx, db, "lock_holders", pgx.RowTo[string], pgx.StrictNamedArgs{"tables": tables})
	return list, wrap.Errorf(err, "list locks")
}

// heldError is an error of a statement that gave way to a lock, with those who may hold it.
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

// NameHolders adds to the error of a statement that gave way to a lock who may hold it.
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

// Named are blockers in words.
func Named(list []Blocker) []string {
	return lists.Map(list, func(b Blocker) string { return b.String() })
}

// WatchBlockers looks who blocks, after a few seconds and then again and again, until ctx ends, and tells if somebody
// does: anyone who waits says for whom.
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
