package worker

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
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

// raisedBy is where a trigger raised an exception, in what the server says of it.
var raisedBy = regexp.MustCompile(`^PL/pgSQL function ([^()\n]+)\([^\n]*\) line (\d+)`)

// refusal describes why the database refused the row of an item.
func (w *Worker) refusal(it *item, err error) string {
	what := database.SQLState(err)
	if refusal, ok := errors.AsType[rows.RefusalError](err); ok {
		return refusal.Error()
	}
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if ok && pg.Code == pgerrcode.RaiseException { // a trigger's own words may be any of the row's
		if at := raisedBy.FindStringSubmatch(pg.Where); at != nil {
			what += ": raised by " + oneLine(at[1], longestMessage) + ", line " + at[2]
		}
		return what
	}
	if !ok || pg.Code != pgerrcode.ProgramLimitExceeded || w.o.Pipeline.Stored != pipeline.StoredSparse {
		return what
	}
	most := len(it.vector)
	for i := range it.chunks {
		most = max(most, len(it.chunks[i].Vector))
	}
	if most <= 2*pipeline.MaxSparseIndexed {
		return what
	}
	return fmt.Sprintf("%s: %d numbers of its sparse vector are not zero, and an HNSW index takes %d: drop the index, or have the model keep fewer", what, most/2, pipeline.MaxSparseIndexed)
}

// unfits reports whether an error of a whole pipeline means that it does not fit its table any more.
func unfits(err error) bool {
	fault := rows.Fault(err)
	return fault == database.Schema || fault == database.Forbidden || errors.Is(err, rows.ErrOtherTable) ||
		errors.Is(err, rows.ErrOtherColumn) || errors.Is(err, rows.ErrTrigger) || errors.Is(err, rows.ErrOtherTriggers) ||
		errors.Is(err, rows.ErrOtherOwner)
}

// unfilled reports whether an embedding table has a NOT NULL column that we do not write: no row is at fault.
func (w *Worker) unfilled(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == pgerrcode.NotNullViolation && pg.ColumnName != "" && !w.table.OfUsers()
}

// errParked means that the pipeline does not fit its table any more: its tasks wait.
var errParked = errors.New("the pipeline does not fit its table")

// quiet keeps what a server says out of the log: a user's trigger may have put a row's text into it.
func quiet(err error) any {
	if _, ok := errors.AsType[*pgconn.PgError](err); ok {
		return database.SQLState(err)
	}
	return err
}

// embedderError is an error of the embedder, to be told from those of the database.
type embedderError struct{ error }

func (e embedderError) Unwrap() error { return e.error }

// refusedWords tells people why tasks are refused; nil: they are not.
func refusedWords(err error) *string {
	if err == nil {
		return nil
	}
	words := database.Words(err)
	return &words
}

// codeOf is what a trace tells of an error: no message, which may hold a text.
func codeOf(err error) string {
	if err == nil {
		return ""
	}
	return database.SQLState(err)
}

// longestMessage is how many characters of somebody else's message are kept.
const longestMessage = 200

// oneLine is the beginning of a message, on one line.
func oneLine(message string, limit int) string {
	message = strings.Join(strings.Fields(message), " ")
	if runes := []rune(message); len(runes) > limit {
		return string(runes[:limit]) + "..."
	}
	return message
}

// lockedDelay is when a row that somebody else is changing is due again: soon, and less often the longer it takes.
func lockedDelay(t queue.Task, now time.Time) time.Duration {
	return min(max(now.Sub(t.EnqueuedAt)/10, 50*time.Millisecond), 5*time.Second)
}
