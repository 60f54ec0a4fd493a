package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/code"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/problem"
)

// The exit statuses.
const (
	exitOK          = 0
	exitInternal    = 1
	exitUsage       = 2   // usage or configuration
	exitNotSetUp    = 3   // not initialised, or a migration is pending
	exitFailed      = 4   // checks failed: something is missing, stale, orphaned or unhealthy
	exitTimeout     = 5   // a wait did not come to its end in time
	exitConnect     = 6   // no connection
	exitPermission  = 7   // the role may not
	exitConflict    = 8   // somebody else holds a slot, a lock or a name
	exitNoMatch     = 9   // nothing matched
	exitInterrupted = 130 // by a signal
)

// fail makes an error with an exit status and ways out.
func fail(status int, err error, hints ...string) error {
	for class, ends := range statuses {
		if ends == status {
			return problem.New(class, err, hints...)
		}
	}
	return err
}

// misuse is a mistake on the command line.
func misuse(format string, args ...any) error { return fail(exitUsage, fmt.Errorf(format, args...)) }

// errTimedOut is the cause of a context that --timeout has ended.
var errTimedOut = errors.New("--timeout is over")

// exitCode finds the exit status of an error.
func exitCode(ctx context.Context, err error) int {
	if err == nil {
		return exitOK
	}
	if other, ok := errors.AsType[*ended](err); ok {
		return other.status
	}
	if known, ok := errors.AsType[*problem.Error](err); ok {
		return statuses[known.Class]
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(err, errInterrupted), errors.Is(cause, errInterrupted) && errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.Is(cause, errTimedOut):
		return exitTimeout
	}
	return statuses[problem.Of(err)]
}

// statuses are the exit statuses of what kind of trouble an error is.
var statuses = map[problem.Class]int{
	problem.Internal: exitInternal, problem.Usage: exitUsage, problem.NotSetUp: exitNotSetUp,
	problem.Failed: exitFailed, problem.Connect: exitConnect, problem.Permission: exitPermission,
	problem.Conflict: exitConflict, problem.NoMatch: exitNoMatch, problem.Timeout: exitTimeout,
}

// complaint is an error as JSON shows it.
type complaint struct {
	code.Entry
	Message  string   `json:"message"`
	ExitCode int      `json:"exit_code"`
	SQLState string   `json:"sqlstate,omitempty"`
	Hints    []string `json:"hints,omitempty"`
}

// complain prints an error for a person, or as one JSON object for a program. Neither form holds a password.
func complain(w io.Writer, asJSON bool, redact *config.Redactor, status int, err error) {
	kind := problem.Code(err)
	if status == exitInterrupted {
		kind = code.Interrupted
	}
	c := complaint{Entry: code.Of(kind), Message: redact.Text(err.Error()), ExitCode: status}
	for _, hint := range problem.Hints(err) {
		c.Hints = append(c.Hints, redact.Text(hint))
	}
	if asJSON {
		if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
			c.SQLState = pg.Code
		}
		encoder := json.NewEncoder(w)
		encoder.SetEscapeHTML(false)
		_ = encoder.Encode(map[string]complaint{"error": c}) // where else could a failure of this be told?
		return
	}
	_, _ = fmt.Fprintf(w, "embedsidecar: error %s: %s\n", c.Code, c.Message)
	for _, hint := range c.Hints {
		if isSQL(hint) { // on lines of its own, to be copied
			_, _ = fmt.Fprintf(w, "%s\n", hint)
			continue
		}
		_, _ = fmt.Fprintf(w, "embedsidecar: hint: %s\n", hint)
	}
	if kind != code.Usage && kind != code.Interrupted {
		_, _ = fmt.Fprintf(w, "embedsidecar: more: embedsidecar explain-error %s\n", c.Code)
	}
}

// isSQL reports whether a way out is a statement to run, or a comment between statements.
func isSQL(hint string) bool {
	first, _, _ := strings.Cut(hint, " ")
	return strings.HasPrefix(hint, "-- ") || strings.HasSuffix(hint, ";") && first == strings.ToUpper(first)
}
