package database

import (
	"errors"
	"slices"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"
)

// Fault is what an error of a statement is the fault of. Functions and triggers of the user's may raise any error the
// server knows: one that leaves the session alive tells what it looks like, and only another try without the row can
// tell whether that is so.
type Fault int

// The faults.
const (
	Unjudged    Fault = iota // not the server's word: no error, or one of ours, of the network or of a context
	Ended                    // the server ended the session
	Locked                   // a lock was not to be had in time
	Conflict                 // it lost against another transaction: the same may succeed the next time
	Canceled                 // it took too long, or somebody cancelled it
	Forbidden                // the role may not
	Schema                   // what the statement names is not there, or is something else
	Unavailable              // what the server needs for it is not to be had: room, files, other servers
	Data                     // a value, or what somebody raises for one
)

// schemaStates say that something is not what the statement takes it for.
var schemaStates = []string{
	pgerrcode.UndefinedColumn, pgerrcode.UndefinedTable, pgerrcode.UndefinedFunction, pgerrcode.UndefinedObject,
	pgerrcode.InvalidSchemaName,
	pgerrcode.DatatypeMismatch,
	pgerrcode.InvalidColumnReference,       // an embedding table has lost its key
	pgerrcode.ObjectNotInPrerequisiteState, // a view stands in the place of a table
}

// Judge finds out what an error is the fault of.
func Judge(err error) Fault {
	if errors.Is(err, ErrLocked) {
		return Locked
	}
	pg, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case !ok:
		return Unjudged
	case slices.Contains([]string{"FATAL", "PANIC"}, pg.SeverityUnlocalized):
		return Ended
	case pg.Code == pgerrcode.LockNotAvailable:
		return Locked
	case pgerrcode.IsTransactionRollback(pg.Code):
		return Conflict
	case pg.Code == pgerrcode.QueryCanceled:
		return Canceled
	case pg.Code == pgerrcode.InsufficientPrivilege:
		return Forbidden
	case slices.Contains(schemaStates, pg.Code):
		return Schema
	case pgerrcode.IsConnectionException(pg.Code), pgerrcode.IsInvalidTransactionState(pg.Code),
		pgerrcode.IsInvalidAuthorizationSpecification(pg.Code),
		pgerrcode.IsInsufficientResources(pg.Code), pgerrcode.IsOperatorIntervention(pg.Code),
		pgerrcode.IsSystemError(pg.Code):
		return Unavailable
	}
	return Data
}

// RowsFault reports whether an error of a statement may be the fault of one of its rows. Whether it is, the statement
// without that row tells.
func RowsFault(err error) bool {
	return slices.Contains([]Fault{Forbidden, Schema, Unavailable, Data}, Judge(err))
}

// OfStatement reports whether an error is the server's word about a statement, or what the statement calls, rather than
// about the session, a lock, another transaction or a server that has no room: another statement may do well.
func OfStatement(err error) bool {
	switch Judge(err) {
	case Forbidden, Schema, Data, Canceled:
		return true
	case Unavailable: // functions of the user's may raise what they like; room is the server's as a whole
		pg, ok := errors.AsType[*pgconn.PgError](err)
		return ok && !pgerrcode.IsInsufficientResources(pg.Code)
	case Unjudged, Ended, Locked, Conflict:
	}
	return false
}

// ErrLocked means that another session has locked a table; later the same may work.
var ErrLocked = errors.New("a table is locked by another session")

// LockedOut reports whether a statement gave way to a lock of another session: none of it happened, and the same may
// succeed later.
func LockedOut(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return Judge(err) == Locked || ok && pg.Code == pgerrcode.DeadlockDetected
}

// Vanished reports whether a statement met something in the catalogs that another session was just dropping ("cache
// lookup failed", "could not open relation"): the same statement, begun again, sees what is there now.
func Vanished(err error) bool { return HasCode(err, pgerrcode.InternalError) }
