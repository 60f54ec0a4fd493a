package worker

import (
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/queue"
)

// unfits reports whether an error of a whole pipeline means that it does not fit its table any more.
func unfits(err error) bool {
	fault := rows.Fault(err)
	return fault == database.Schema || fault == database.Forbidden || errors.Is(err, rows.ErrOtherTable) ||
		errors.Is(err, rows.ErrOtherColumn) || errors.Is(err, rows.ErrTrigger)
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
