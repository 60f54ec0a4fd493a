// Package problem classifies errors of other packages and collects hints for them. It makes only errors that belong to
// no other package.
package problem

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/spelling"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/plugins/host"
)

// Class is a class of errors. Each has an exit status.
type Class int

// The classes.
const (
	Internal   Class = iota // unknown: possibly a bug
	Usage                   // usage or configuration: the user must fix it
	NotSetUp                // not set up, or a migration is pending
	Failed                  // a check failed
	Connect                 // no connection
	Permission              // the role lacks a privilege
	Conflict                // another session holds a slot, a lock or a name
	NoMatch                 // nothing matched the given names
	Timeout                 // a wait timed out
)

// Error is an error whose class and hints are known where it is made.
type Error struct {
	Class Class
	Err   error
	Hint  []string  // what to do
	Code  code.Code // "": Code determines it
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the classified error.
func (e *Error) Unwrap() error { return e.Err }

// Hints returns what to do.
func (e *Error) Hints() []string { return e.Hint }

// New classifies an error and adds hints.
func New(class Class, err error, hints ...string) error {
	return &Error{Class: class, Err: err, Hint: hints}
}

// Of returns the class of an error.
func Of(err error) Class {
	if own, ok := errors.AsType[*Error](err); ok {
		return own.Class
	}
	switch {
	case is[*config.Error](err), is[*config.NotFoundError](err), is[*config.ParseError](err):
		return Usage
	case is[*refusal.NotSetUpError](err):
		return NotSetUp
	case is[*refusal.PermissionError](err):
		return Permission
	case is[*refusal.ConflictError](err):
		return Conflict
	case is[*refusal.LostError](err):
		return Failed
	case is[*refusal.MissingError](err), is[*refusal.ConfigError](err):
		return Usage
	}
	if connect, ok := errors.AsType[*database.Error](err); ok {
		return connectClass(connect.Kind)
	}
	if embedder, ok := errors.AsType[*embed.Error](err); ok && embedder.Class == embed.Configuration {
		return Usage
	}
	if is[*pgconn.ConnectError](err) {
		return Connect
	}
	return answerOf(err).class
}

// is reports whether the error tree contains an error of type T.
func is[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

func connectClass(kind database.Kind) Class {
	switch kind {
	case database.BadURL:
		return Usage
	case database.Permission, database.Untrusted:
		return Permission
	case database.Unreachable, database.Starting, database.Full, database.Auth, database.NoDatabase, database.TLS,
		database.Standby, database.Pooler, database.Other:
	}
	return Connect
}

// Hints returns the hints of an error, of each joined error, or those for its server error.
func Hints(err error) []string {
	if own := ownHints(err); len(own) > 0 {
		return own
	}
	return answerHints(err)
}

func ownHints(err error) []string {
	if unknown, ok := err.(*host.UnknownModelError); ok { //nolint:errorlint // one step at a time
		if near := spelling.Nearest(unknown.Model, unknown.Offered); len(near) > 0 {
			return []string{spelling.Question(near...)}
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
			all = lists.Add(all, ownHints(e)...)
		}
		return all
	}
	return nil
}
