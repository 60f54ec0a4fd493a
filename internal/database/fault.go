package database

import (
	"errors"
	"slices"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"
)

// Fault is the apparent cause of a statement's error. Users' functions and triggers may raise any error that the server
// knows. So an error that does not end the session shows only what it looks like, and only a retry without the row can
// confirm the cause.
type Fault int

// The faults.
const (
	Unjudged    Fault = iota // not a server error: nil, our own, of the network or of a context
	Ended                    // the server ended the session
	Locked                   // could not obtain a lock in time
	Conflict                 // lost against another transaction: a retry may succeed
	Canceled                 // took too long, or was cancelled
	Forbidden                // the role lacks a privilege
	Schema                   // an object that the statement names is missing or of another kind
	Unavailable              // a resource is missing: memory, disk space, files, another server
	Data                     // a value, or an error that a user's code raised
)

// schemaStates are the SQLSTATEs of a missing object or one of another kind.
var schemaStates = []string{
	pgerrcode.UndefinedColumn, pgerrcode.UndefinedTable, pgerrcode.UndefinedFunction, pgerrcode.UndefinedObject,
	pgerrcode.InvalidSchemaName,
	pgerrcode.DatatypeMismatch,
	pgerrcode.InvalidColumnReference,       // an embedding table has lost its key
	pgerrcode.ObjectNotInPrerequisiteState, // a view has replaced a table
}

// Judge returns the apparent cause of an error.
func Judge(err error) Fault {
	switch {
	case errors.Is(err, ErrLocked):
		return Locked
	case errors.Is(err, ErrTooLong):
		return Canceled
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

// RowsFault reports whether one row may have caused a statement's error. A retry without that row confirms it.
func RowsFault(err error) bool {
	return slices.Contains([]Fault{Forbidden, Schema, Unavailable, Data}, Judge(err))
}

// OfStatement reports whether an error is about one statement or what it calls, rather than about the session, a lock,
// another transaction or a full server: another statement may succeed.
func OfStatement(err error) bool {
	switch Judge(err) {
	case Forbidden, Schema, Data, Canceled:
		return true
	case Unavailable: // users' functions may raise any error; running out of room concerns the whole server
		pg, ok := errors.AsType[*pgconn.PgError](err)
		return ok && !pgerrcode.IsInsufficientResources(pg.Code)
	case Unjudged, Ended, Locked, Conflict:
	}
	return false
}

// OfCode reports whether a statement failed inside a function of users, whatever error it is: their code raises
// serialization failures and a lack of memory, too. Another statement may succeed.
func OfCode(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Where != "" && mayHoldText(pg) && Judge(err) != Ended && !LockedOut(err)
}

// ErrLocked means that another session has locked a table. A retry may succeed.
var ErrLocked = errors.New("a table is locked by another session")

// ErrTooLong means that the connection was closed because a statement did not end in time.
var ErrTooLong = errors.New("a statement did not end in time: a function or trigger that it runs goes on")

// LockedOut reports whether a statement failed on a lock of another session. It had no effect, and a retry may succeed.
func LockedOut(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return Judge(err) == Locked || ok && pg.Code == pgerrcode.DeadlockDetected
}

// Vanished reports whether another session dropped an object while a statement looked it up ("cache lookup failed",
// "could not open relation"). A retry sees the current catalogs.
func Vanished(err error) bool { return HasCode(err, pgerrcode.InternalError) }

// HasCode reports whether err is a server error with one of the given SQLSTATEs.
func HasCode(err error, codes ...string) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && slices.Contains(codes, pg.Code)
}

// Denied reports whether err says that the role lacks a privilege.
func Denied(err error) bool { return HasCode(err, pgerrcode.InsufficientPrivilege) }

// SQLState describes a server error without its message. The message may hold row values, because a trigger can raise
// any text.
func SQLState(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return "SQLSTATE " + pg.Code
	}
	return "unknown"
}
