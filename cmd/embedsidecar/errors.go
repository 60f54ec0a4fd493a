package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/plugins/host"
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
func (f *failure) ExitCode() int   { return f.code }

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
	var own interface{ ExitCode() int }
	if errors.As(err, &own) {
		return own.ExitCode()
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(err, errInterrupted), errors.Is(cause, errInterrupted) && errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.Is(cause, errTimedOut):
		return exitTimeout
	}
	var (
		permission *setup.PermissionError
		conflict   *setup.ConflictError
		missing    *setup.MissingError
		wrong      *setup.ConfigError
		notSetUp   *setup.NotSetUpError
		connect    *database.Error
		embedder   *embed.Error
	)
	switch {
	case errors.As(err, &notSetUp):
		return exitNotSetUp
	case errors.As(err, &permission):
		return exitPermission
	case errors.As(err, &conflict):
		return exitConflict
	case errors.As(err, &missing), errors.As(err, &wrong):
		return exitUsage
	case errors.As(err, &connect):
		return connectCode(connect.Kind)
	case errors.As(err, &embedder) && embedder.Class == embed.Configuration:
		return exitUsage
	}
	return sqlCode(err)
}

func connectCode(kind database.Kind) int {
	switch kind {
	case database.BadURL:
		return exitUsage
	case database.Permission, database.Untrusted:
		return exitPermission
	case database.Unreachable, database.Starting, database.Full, database.Auth, database.NoDatabase, database.TLS,
		database.Standby,
		database.Pooler, database.Other:
	}
	return exitConnect
}

// sqlCode finds the exit status of an answer of the server that nobody on the way has explained.
func sqlCode(err error) int {
	var connect *pgconn.ConnectError
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &connect):
		return exitConnect
	case !errors.As(err, &pg):
		return exitInternal
	}
	switch pg.Code {
	case pgerrcode.InsufficientPrivilege:
		return exitPermission
	// all slots or walsenders are taken
	case pgerrcode.ObjectInUse, pgerrcode.LockNotAvailable, pgerrcode.ConfigurationLimitExceeded:
		return exitConflict
	case pgerrcode.ObjectNotInPrerequisiteState: // how the server is configured
		return exitUsage
	case pgerrcode.InvalidSchemaName:
		return exitNotSetUp
	case pgerrcode.UndefinedTable:
		if strings.Contains(pg.Message, "embedsidecar.") {
			return exitNotSetUp
		}
	}
	if pgerrcode.IsConnectionException(pg.Code) || pgerrcode.IsInvalidAuthorizationSpecification(pg.Code) {
		return exitConnect
	}
	return exitInternal
}

// complain prints an error for a person, or as one JSON object for a program. Neither form holds a password.
func complain(w io.Writer, asJSON bool, redact *config.Redactor, code int, err error) {
	message := redact.Text(err.Error())
	var hints []string
	for _, hint := range hintsOf(err) {
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

// hintsOf collects the ways out that an error brings along, of each of several, or that are known for what the server
// said.
func hintsOf(err error) []string {
	if own := ownHints(err); len(own) > 0 {
		return own
	}
	return database.Hint(err)
}

func ownHints(err error) []string {
	if unknown, ok := err.(*host.UnknownModelError); ok { //nolint:errorlint // one step at a time
		if near := pipeline.Nearest(unknown.Model, unknown.Offered); len(near) > 0 {
			return []string{"did you mean " + strings.Join(near, " or ") + "?"}
		}
	}
	if hinted, ok := err.(interface{ Hints() []string }); ok && len(hinted.Hints()) > 0 {
		return hinted.Hints()
	}
	switch wrapped := err.(type) { //nolint:errorlint // one step at a time
	case interface{ Unwrap() error }:
		return ownHints(wrapped.Unwrap())
	case interface{ Unwrap() []error }:
		var all []string
		for _, e := range wrapped.Unwrap() {
			for _, hint := range ownHints(e) {
				if !slices.Contains(all, hint) {
					all = append(all, hint)
				}
			}
		}
		return all
	}
	return nil
}
