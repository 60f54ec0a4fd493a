// Package step runs the changes of a database, one step at a time, and knows how to undo each. It waits for locks only
// briefly, so that users' statements do not queue behind it for long.
package step

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
)

// Step is one object that was made or changed.
type Step struct {
	What string   // a noun: publication "embedsidecar"
	SQL  []string // the statements; for other changes, a comment line
	Undo []string // statements that undo it
}

// Action is a step and how to run it.
type Action struct {
	Step
	Allowed bool     // the catalog says that the role may run it
	Why     string   // the reason if not
	Tables  []uint32 // tables that it locks; on a lock timeout, the error names the lock holders
	Run     func(ctx context.Context) error
	Words   bool   // SQL is only a description: users cannot run it
	Grant   string // lets the role run it, if that is better than running it as the owner; else ""
	Long    bool   // it reads or rewrites a table: Limit does not hold

	Pipelines []string // the pipelines that need it; nil: all

	Check func(ctx context.Context, tx pgx.Tx) error // checks the result before the commit; nil: none
}

// Timeout is how long a user's statement may have to wait behind ours.
const Timeout = 2 * time.Second

const attempts = 5

// Runner runs the statements of steps.
type Runner struct {
	Pool        *pgxpool.Pool
	LockTimeout time.Duration // how long a user's statement may have to wait behind ours
	Limit       time.Duration // of a step, in which the code of an event trigger may go on for ever; 0: none
	Log         *slog.Logger
}

// Execute runs a step's statements in one transaction, with retries. It waits for locks only briefly, so that users'
// statements do not queue behind it for longer.
func (r *Runner) Execute(ctx context.Context, a Action) error {
	for attempt := 1; ; attempt++ {
		err := r.try(ctx, a)
		if !database.LockedOut(err) {
			return err
		}
		holders, lookErr := database.LockHolders(ctx, r.Pool, a.Tables)
		if lookErr != nil {
			return errors.Join(err, lookErr)
		}
		r.Log.WarnContext(ctx, "waiting for a lock", "what", a.What, "attempt", attempt, "holders",
			strings.Join(holders, "; "))
		if attempt == attempts {
			hint := append([]string{"wait for the sessions that hold locks, and run embedsidecar init again"}, holders...)
			return &refusal.ConflictError{
				Problem: fmt.Sprintf("no lock within %d tries of %s", attempts, r.LockTimeout),
				Hint:    hint, Err: err, Code: code.Locked,
			}
		}
		if !sleep.For(ctx, sleep.Between(r.LockTimeout/4, 3*r.LockTimeout/4)) {
			return ctx.Err()
		}
	}
}

func (r *Runner) try(ctx context.Context, a Action) error {
	run := func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, r.Pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d", r.LockTimeout.Milliseconds())); err != nil {
				return err
			}
			for _, sql := range a.SQL {
				if _, err := tx.Exec(ctx, sql); err != nil {
					return err
				}
			}
			if a.Check != nil {
				return a.Check(ctx, tx)
			}
			return nil
		})
	}
	if r.Limit == 0 || a.Long {
		return run(ctx)
	}
	return database.Limited(ctx, r.Limit, run)
}

// Script writes steps as SQL for psql.
func Script(steps []Step) string {
	var b strings.Builder
	for _, s := range steps {
		b.WriteString("-- " + wording.OneLine(s.What) + "\n")
		for _, sql := range s.SQL {
			b.WriteString(terminated(sql) + "\n")
		}
	}
	return b.String()
}

// Lines describes what was made, or would be, and how to undo it.
func (s *Step) Lines(verb string) []string {
	return slices.Concat([]string{verb + " " + wording.OneLine(s.What)},
		lists.Map(s.SQL, func(sql string) string { return "    " + indented(sql) }),
		lists.Map(s.Undo, func(sql string) string { return "  undo: " + indented(sql) }))
}

// terminated ends a statement with a semicolon. It keeps a comment on one line, because names in it may contain line
// breaks.
func terminated(sql string) string {
	if strings.HasPrefix(sql, "-- ") {
		return wording.OneLine(sql)
	}
	return strings.TrimSuffix(sql, ";") + ";"
}

// indented indents the continuation lines of a statement.
func indented(sql string) string {
	return strings.ReplaceAll(terminated(sql), "\n", "\n    ")
}
