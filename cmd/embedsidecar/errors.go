package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/embedsidecar/embedsidecar/internal/app/child"
	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/base/signals"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
)

// The exit statuses.
const (
	exitOK          = 0
	exitInternal    = 1
	exitUsage       = 2   // usage or configuration
	exitNotSetUp    = 3   // not initialized, or a migration is pending
	exitFailed      = 4   // checks failed: something is missing, stale, orphaned or unhealthy
	exitTimeout     = 5   // a wait did not end in time
	exitConnect     = 6   // no connection
	exitPermission  = 7   // the role may not
	exitConflict    = 8   // a slot, a lock or a name is taken
	exitNoMatch     = 9   // nothing matched
	exitInterrupted = 130 // by a signal
)

// misuse is the error of a mistake on the command line.
func misuse(format string, args ...any) error {
	return problem.New(problem.Usage, fmt.Errorf(format, args...))
}

// errTimedOut is the cause of a context that --timeout ended.
var errTimedOut = errors.New("--timeout is over")

// exitCode returns the exit status for an error.
func exitCode(ctx context.Context, err error) int {
	if err == nil {
		return exitOK
	}
	if other, ok := errors.AsType[*child.EndedError](err); ok {
		return other.Status
	}
	if known, ok := errors.AsType[*problem.Error](err); ok {
		return statuses[known.Class]
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(err, signals.ErrInterrupted),
		errors.Is(cause, signals.ErrInterrupted) && errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.Is(cause, errTimedOut):
		return exitTimeout
	}
	return statuses[problem.Of(err)]
}

// statuses maps classes of errors to exit statuses.
var statuses = map[problem.Class]int{
	problem.Internal: exitInternal, problem.Usage: exitUsage, problem.NotSetUp: exitNotSetUp,
	problem.Failed: exitFailed, problem.Connect: exitConnect, problem.Permission: exitPermission,
	problem.Conflict: exitConflict, problem.NoMatch: exitNoMatch, problem.Timeout: exitTimeout,
}

// complain prints an error as text, or as one JSON object. Neither contains a password.
func complain(w io.Writer, asJSON bool, redact *config.Redactor, status int, err error) {
	told := problem.Tell(err, redact.Text)
	if told.ExitCode = status; status == exitInterrupted {
		told.Entry = code.Of(code.Interrupted)
	}
	if asJSON {
		_ = output.Encoder(w).Encode(map[string]problem.Told{"error": told}) // where else could a failure of this be told?
		return
	}
	_, _ = io.WriteString(w, told.String())
}

func isDigit(b byte) bool { return b >= '0' && b <= '9' } // error codes have digits, commands have none

// explainCode prints the explanation of an error code.
func explainCode(w io.Writer, asJSON bool, text string) error {
	entry, known := code.Find(text)
	switch {
	case !known:
		return problem.New(problem.NoMatch, fmt.Errorf("there is no code %q", text), "docs/errors.md lists them all")
	case asJSON:
		return output.Encoder(w).Encode(entry)
	}
	const margin = 7
	_, err := fmt.Fprintf(w, "%s: %s\n  why: %s\n  fix: %s\n  docs: %s\n", entry.Code, entry.Title,
		output.Fill(entry.Cause, margin), output.Fill(entry.Fix, margin), entry.Docs)
	return err
}
