// Package problem says what kind of trouble an error is, and what a person can do about it. It looks at errors that
// other packages made, and takes no part in making them, but for those that belong to nobody else.
package problem

import (
	"errors"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/spelling"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/plugins/host"
)

// Class is what kind of trouble an error is. Programs end with a status for each.
type Class int

// The classes.
const (
	Internal   Class = iota // nobody knows: it may be a mistake of this program
	Usage                   // usage or configuration: a person must mend it
	NotSetUp                // not initialised, or a migration is pending
	Failed                  // what was checked is not as it should be
	Connect                 // no connection
	Permission              // the role may not
	Conflict                // somebody else holds a slot, a lock or a name
	NoMatch                 // nothing matched what was named
	Timeout                 // a wait did not come to its end in time
)

// Error is an error whose class and ways out are known where it is made.
type Error struct {
	Class Class
	Err   error
	Hint  []string  // ways out
	Code  code.Code // "": as Code finds out
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the error that was classified.
func (e *Error) Unwrap() error { return e.Err }

// Hints returns the ways out.
func (e *Error) Hints() []string { return e.Hint }

// New classifies an error and adds ways out.
func New(class Class, err error, hints ...string) error {
	return &Error{Class: class, Err: err, Hint: hints}
}

// Of finds the class of an error.
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

// is reports whether an error of this type is in the tree of another.
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

// Hints collects the ways out that an error brings along, of each of several, or that are known for what the server
// said.
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
