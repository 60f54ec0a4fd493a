package worker

import (
	"context"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/queue"
)

// ofAll finds out whether what failed for a batch fails for any: with what error try ends, which does the same
// without any row. nil means that some row is at fault. A trigger that refuses a row for lack of a privilege looks
// just like a missing GRANT.
func (w *Worker) ofAll(ctx context.Context, err error, try func(context.Context) error) error {
	switch rows.Fault(err) {
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
	_, err := w.table.Read(ctx, nil, 0)
	return err
}

// writeNone reads and writes the tables as for a batch, with no row in hand.
func (w *Worker) writeNone(ctx context.Context) error {
	// Before the transaction: one that waits for a second connection of the pool could wait for others that do the same.
	if err := w.readNone(ctx); err != nil {
		return err
	}
	return w.table.TryWrite(ctx)
}

// rowError is how a row ends whose statement failed for it alone. Only what is likely to be so for ever counts as an
// attempt.
func (w *Worker) rowError(t queue.Task, err error, code, message string) *embed.TextError {
	e := &embed.TextError{Class: embed.Transient, RetryAfter: lockedDelay(t, time.Now()), Message: message}
	switch rows.Fault(err) {
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
