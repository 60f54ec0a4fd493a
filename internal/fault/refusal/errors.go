// Package refusal has the errors with which a database, or somebody's wishes for it, are refused. Each says what is
// wrong and knows the ways out.
package refusal

import (
	"fmt"
	"strings"

	"github.com/jackc/pgerrcode"

	"github.com/embedsidecar/embedsidecar/internal/base/spelling"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
)

// ConfigError says that a pipeline, as configured, cannot work with this database. A person must change one or the
// other.
type ConfigError struct {
	Pipeline string // "" when it is not about one pipeline
	Problem  string
	Hint     []string  // ways out, each a sentence or a statement to run
	Code     code.Code // "": that of any pipeline that does not fit
	Trust    []string  // the owners whom --trust-owner would have to name
}

func (e *ConfigError) Error() string {
	if e.Pipeline == "" {
		return e.Problem
	}
	return fmt.Sprintf("pipeline %q: %s", e.Pipeline, e.Problem)
}

// Hints returns the ways out.
func (e *ConfigError) Hints() []string { return e.Hint }

// Owners are those whom --trust-owner would have to name.
func (e *ConfigError) Owners() []string { return e.Trust }

// With adds ways out.
func (e *ConfigError) With(hints ...string) *ConfigError {
	e.Hint = append(e.Hint, hints...)
	return e
}

// Coded returns a *ConfigError of a certain kind that does not know its pipeline.
func Coded(kind code.Code, problem string, hint ...string) error {
	return &ConfigError{Problem: problem, Hint: hint, Code: kind}
}

// MissingError says that a source table is not there.
type MissingError struct{ ConfigError }

// PermissionError says that the role may not do what is needed. SQL is what somebody who may should run.
type PermissionError struct {
	What string   // what was tried
	Role string   // who tried
	SQL  []string // in this order; running init again afterwards does the rest
	Err  error    // what the server said; may be nil

	Pipelines []string // whom it concerns; nil: all
	Each      []Denied // of a plan: what the role may not make
}

// Denied is one thing that a role may not make.
type Denied struct {
	What string   // publication "embedsidecar"
	Why  string   // table "public"."docs" belongs to "shop"
	SQL  []string // that makes it, or lets the role
}

func (e *PermissionError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("%s: role %q may not", e.What, e.Role)
	}
	return fmt.Sprintf("%s: role %q may not: %s", e.What, e.Role, e.Err)
}

// Unwrap returns what the server said.
func (e *PermissionError) Unwrap() error { return e.Err }

// Hints returns the statements somebody who may should run.
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

// ConflictError says that somebody else holds what we need: a slot, a lock, a name.
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

// Hints returns the ways out.
func (e *ConflictError) Hints() []string { return e.Hint }

// LostError says that the slot has a gap, and that the one who configured it (on_lost: stop) wants to decide himself.
type LostError struct{ Slot, Reason string }

func (e *LostError) Error() string {
	return fmt.Sprintf("slot %q: %s, and on_lost is stop", e.Slot, e.Reason)
}

// Hints returns the way out.
func (e *LostError) Hints() []string {
	return []string{"allow a new slot and a comparison of every row, once: embedsidecar run --set slot.on_lost=reconcile"}
}

// UnknownPipeline is the error of a pipeline that is not there, given the names of those that are.
func UnknownPipeline(wrong string, names []string) *ConfigError {
	e := &ConfigError{
		Problem: fmt.Sprintf("there is no pipeline %q", wrong), Hint: spelling.ThereAre(names), Code: code.NoPipeline,
	}
	if len(names) == 0 {
		e.Hint = []string{"none is set up in this database: embedsidecar init sets them up"}
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

// NotSetUpError says that the database has no schema of ours, or one of an older version.
type NotSetUpError struct {
	Err error  // may be nil
	Of  string // the owner of a schema that is to be upgraded; "": there is none
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

// Unwrap returns what the server said.
func (e *NotSetUpError) Unwrap() error { return e.Err }

// Hints returns the way out.
func (e *NotSetUpError) Hints() []string {
	if e.Of != "" {
		return []string{fmt.Sprintf("run embedsidecar init as the owner of the schema, role %q: it upgrades the schema, and waiting sidecars continue",
			e.Of)}
	}
	return []string{"run embedsidecar init, or embedsidecar run, which sets it up within seconds of its start"}
}

// NotSetUp recognises the errors of a database without our schema.
func NotSetUp(err error) error {
	if database.HasCode(err, pgerrcode.InvalidSchemaName, pgerrcode.UndefinedTable, pgerrcode.UndefinedColumn) {
		return &NotSetUpError{Err: err}
	}
	return err
}

// About names the pipeline in an error that does not know it.
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

// Of names the pipeline in a *ConfigError that does not know it, and leaves other errors as they are.
func Of(name string, err error) error {
	if e, ok := err.(*ConfigError); ok { //nolint:errorlint // these come unwrapped from this package
		e.Pipeline = name
	}
	return err
}
