// Package refusal has the errors about a database, or a user's request, that cannot be handled. Each says what is wrong
// and has hints.
package refusal

import (
	"fmt"
	"strings"

	"github.com/jackc/pgerrcode"

	"github.com/embedsidecar/embedsidecar/internal/base/spelling"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
)

// ConfigError means that a pipeline, as configured, cannot work with this database. The user must change one of them.
type ConfigError struct {
	Pipeline string // "": not about one pipeline
	Problem  string
	Hint     []string  // what to do, each a sentence or a statement to run
	Code     code.Code // "": that of any unfit pipeline
	Trust    []string  // the owners that --trust-owner would have to name
}

func (e *ConfigError) Error() string {
	if e.Pipeline == "" {
		return e.Problem
	}
	return fmt.Sprintf("pipeline %q: %s", e.Pipeline, e.Problem)
}

// Hints returns what to do.
func (e *ConfigError) Hints() []string { return e.Hint }

// Owners are the owners that --trust-owner would have to name.
func (e *ConfigError) Owners() []string { return e.Trust }

// With adds hints.
func (e *ConfigError) With(hints ...string) *ConfigError {
	e.Hint = append(e.Hint, hints...)
	return e
}

// Coded returns a *ConfigError with a code, without a pipeline.
func Coded(kind code.Code, problem string, hint ...string) error {
	return &ConfigError{Problem: problem, Hint: hint, Code: kind}
}

// For returns a *ConfigError of a pipeline, with a code ("": that of any unfit pipeline).
func For(pipeline string, kind code.Code, problem string, hint ...string) error {
	return &ConfigError{Pipeline: pipeline, Problem: problem, Hint: hint, Code: kind}
}

// MissingError means that a source table does not exist.
type MissingError struct{ ConfigError }

// PermissionError means that the role lacks a privilege. SQL is for a role that has it.
type PermissionError struct {
	What string   // what failed
	Role string   // the role that failed
	SQL  []string // in this order; a further init does the rest
	Err  error    // the server's error; may be nil

	Pipelines []string // that it concerns; nil: all
	Each      []Denied // the steps of a plan that the role may not run
}

// Denied is one thing that a role may not make.
type Denied struct {
	What string   // publication "embedsidecar"
	Why  string   // table "public"."docs" belongs to "shop"
	SQL  []string // makes it, or grants the role the privilege
}

func (e *PermissionError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("%s: role %q may not", e.What, e.Role)
	}
	return fmt.Sprintf("%s: role %q may not: %s", e.What, e.Role, e.Err)
}

// Unwrap returns the server's error.
func (e *PermissionError) Unwrap() error { return e.Err }

// Hints returns the statements for a role with the privilege.
func (e *PermissionError) Hints() []string {
	hints := []string{"let an owner or superuser run:"}
	for _, sql := range e.SQL {
		if !strings.HasPrefix(sql, "--") {
			sql = strings.TrimSuffix(sql, ";") + ";"
		}
		hints = append(hints, sql)
	}
	return hints
}

// ConflictError means that another session holds what we need: a slot, a lock, a name.
type ConflictError struct {
	Problem string
	Hint    []string
	Err     error     // may be nil
	Code    code.Code // "": that of any conflict
}

func (e *ConflictError) Error() string {
	if e.Err == nil {
		return e.Problem
	}
	return e.Problem + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *ConflictError) Unwrap() error { return e.Err }

// Hints returns what to do.
func (e *ConflictError) Hints() []string { return e.Hint }

// LostError means that the slot has a gap, and the configuration (on_lost: stop) leaves the decision to the user.
type LostError struct{ Slot, Reason string }

func (e *LostError) Error() string {
	return fmt.Sprintf("slot %q: %s, and on_lost is stop", e.Slot, e.Reason)
}

// Hints returns what to do.
func (e *LostError) Hints() []string {
	return []string{"allow a new slot and a comparison of every row, once: embedsidecar run --set slot.on_lost=reconcile"}
}

// UnknownPipeline is the error of a pipeline that does not exist; names are those that do.
func UnknownPipeline(wrong string, names []string) *ConfigError {
	e := &ConfigError{
		Problem: fmt.Sprintf("there is no pipeline %q", wrong), Hint: spelling.ThereAre(names), Code: code.NoPipeline,
	}
	if len(names) == 0 {
		e.Hint = []string{"no pipeline is set up in this database: run embedsidecar init"}
		return e
	}
	near := spelling.Nearest(wrong, names)
	if len(near) == 0 { // a name without the schema
		for _, name := range names {
			if _, table, is := strings.Cut(name, "."); is && len(spelling.Nearest(wrong, []string{table})) > 0 {
				near = append(near, name)
			}
		}
	}
	if len(near) > 0 {
		e.Hint = append([]string{spelling.Question(near...)}, e.Hint...)
	}
	return e
}

// NotSetUpError means that the database has no schema of ours, or one of an older version.
type NotSetUpError struct {
	Err error  // may be nil
	Of  string // the owner of a schema that needs an upgrade; "": there is none
}

func (e *NotSetUpError) Error() string {
	switch {
	case e.Err == nil:
		return "the database is not set up"
	case e.Of != "":
		return e.Err.Error()
	}
	return "the database is not set up: " + e.Err.Error()
}

// Unwrap returns the server's error.
func (e *NotSetUpError) Unwrap() error { return e.Err }

// Hints returns what to do.
func (e *NotSetUpError) Hints() []string {
	if e.Of != "" {
		return []string{fmt.Sprintf("run embedsidecar init as the owner of the schema, role %q: it upgrades the schema, and waiting sidecars continue",
			e.Of)}
	}
	return []string{"run embedsidecar init, or embedsidecar run, which sets it up within seconds of its start"}
}

// NotSetUp recognizes the errors of a database without our schema.
func NotSetUp(err error) error {
	if database.HasCode(err, pgerrcode.InvalidSchemaName, pgerrcode.UndefinedTable, pgerrcode.UndefinedColumn) {
		return &NotSetUpError{Err: err}
	}
	return err
}

// About adds the pipeline to an error that does not name it.
func About(name string, err error) error {
	switch e := err.(type) { //nolint:errorlint // these come unwrapped from this package
	case *ConfigError:
		e.Pipeline = name
	case *MissingError:
		e.Pipeline = name
	default:
		return fmt.Errorf("pipeline %q: %w", name, err)
	}
	return err
}

// Of adds the pipeline to a *ConfigError that does not name it, and returns other errors unchanged.
func Of(name string, err error) error {
	if e, ok := err.(*ConfigError); ok { //nolint:errorlint // these come unwrapped from this package
		e.Pipeline = name
	}
	return err
}
