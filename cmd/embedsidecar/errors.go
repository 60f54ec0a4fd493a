package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

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

// failure is an error with its exit status and ways out.
type failure struct {
	code  int
	err   error
	hints []string
}

func (f *failure) Error() string   { return f.err.Error() }
func (f *failure) Unwrap() error   { return f.err }
func (f *failure) Hints() []string { return f.hints }

// fail makes an error with an exit status and ways out.
func fail(code int, err error, hints ...string) error {
	return &failure{code: code, err: err, hints: hints}
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
	if own, ok := errors.AsType[*failure](err); ok {
		return own.code
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

// complain prints an error for a person, or as one JSON object for a program. Neither form holds a password.
func complain(w io.Writer, asJSON bool, redact *config.Redactor, code int, err error) {
	message := redact.Text(err.Error())
	var hints []string
	for _, hint := range problem.Hints(err) {
		hints = append(hints, redact.Text(hint))
	}
	if asJSON {
		type body struct {
			Message  string   `json:"message"`
			ExitCode int      `json:"exit_code"`
			SQLState string   `json:"sqlstate,omitempty"`
			Hints    []string `json:"hints,omitempty"`
		}
		b := body{Message: message, ExitCode: code, Hints: hints}
		if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
			b.SQLState = pg.Code
		}
		encoder := json.NewEncoder(w)
		encoder.SetEscapeHTML(false)
		_ = encoder.Encode(map[string]body{"error": b}) // where else could a failure of this be told?
		return
	}
	_, _ = fmt.Fprintf(w, "embedsidecar: error: %s\n", message)
	for _, hint := range hints {
		if isSQL(hint) { // on lines of its own, to be copied
			_, _ = fmt.Fprintf(w, "%s\n", hint)
			continue
		}
		_, _ = fmt.Fprintf(w, "embedsidecar: hint: %s\n", hint)
	}
}

// isSQL reports whether a way out is a statement to run, or a comment between statements.
func isSQL(hint string) bool {
	first, _, _ := strings.Cut(hint, " ")
	return strings.HasPrefix(hint, "-- ") || strings.HasSuffix(hint, ";") && first == strings.ToUpper(first)
}
