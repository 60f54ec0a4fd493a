package worker

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/queue"
)

// faultOf is database.Judge for what may also be an error of ours.
func faultOf(err error) database.Fault {
	if _, refused := errors.AsType[refusalError](err); refused || errors.Is(err, errSplit) {
		return database.Data
	}
	if errors.Is(err, errMoved) {
		return database.Conflict
	}
	return database.Judge(err)
}

// unfits reports whether an error of a whole pipeline means that it does not fit its table any more.
func unfits(err error) bool {
	fault := faultOf(err)
	return fault == database.Schema || fault == database.Forbidden || errors.Is(err, errOtherTable)
}

// ofSomeRow reports whether a statement that reads rows failed for one of them: without any row it does not fail.
func (w *Worker) ofSomeRow(ctx context.Context, err error) bool {
	switch faultOf(err) {
	case database.Data:
		return true
	case database.Forbidden, database.Schema, database.Unavailable:
		_, all := w.read(ctx, w.o.DB, nil, 0)
		return all == nil
	case database.Unjudged, database.Ended, database.Locked, database.Conflict, database.Canceled:
	}
	return false
}

// ofAll finds out whether what failed for a batch fails for any: with what error try ends, which does the same
// without any row. nil means that some row is at fault. A trigger that refuses a row for lack of a privilege looks
// just like a missing GRANT.
func (w *Worker) ofAll(ctx context.Context, err error, try func(context.Context) error) error {
	switch faultOf(err) {
	case database.Data, database.Conflict, database.Canceled: // half of it, or the same again, may succeed
		return nil
	case database.Locked, database.Forbidden, database.Schema, database.Unavailable:
		return try(ctx)
	case database.Unjudged, database.Ended:
	}
	return err
}

// readNone reads the table as for a batch, with no row in hand.
func (w *Worker) readNone(ctx context.Context) error {
	_, err := w.read(ctx, w.o.DB, nil, 0)
	return err
}

// writeNone reads and writes the tables as for a batch, with no row in hand.
func (w *Worker) writeNone(ctx context.Context) error {
	// Before the transaction: one that waits for a second connection of the pool could wait for others that do the same.
	if err := w.readNone(ctx); err != nil {
		return err
	}
	tx, err := database.Begin(ctx, w.o.DB)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // it only asks
	if w.o.Pipeline.Triggers {
		database.Used(tx)
	}
	if err := w.guard(ctx, tx); err != nil {
		return err
	}
	args, err := keyArrays(w.o.Pipeline, nil)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, w.sql.empty, args...); err != nil {
		return err
	}
	if !w.o.Pipeline.ToColumn() {
		args = append(args, [][]byte{})
	}
	_, err = tx.Exec(ctx, w.sql.write, append(args, parameter(w.o.Pipeline, nil))...)
	return err
}

// rowError is how a row ends whose statement failed for it alone. Only what is likely to be so for ever counts as an
// attempt.
func (w *Worker) rowError(t queue.Task, err error, code, message string) *embed.TextError {
	e := &embed.TextError{Class: embed.Transient, RetryAfter: lockedDelay(t, time.Now()), Message: message}
	switch faultOf(err) {
	case database.Conflict, database.Canceled:
		e.Code, e.RetryAfter = "contended", 0
	case database.Locked:
		e.Code = "locked"
	case database.Unavailable:
		e.Code = "unavailable"
	case database.Unjudged, database.Ended, database.Forbidden, database.Schema, database.Data:
		e.Class, e.Code, e.RetryAfter = embed.Data, code, 0
	}
	return e
}

// sqlState describes a server's error without its message, which may hold row values: a trigger may put in what it
// likes.
func sqlState(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return "SQLSTATE " + pg.Code
	}
	return "unknown"
}
