// Package step runs what changes a database, a step at a time, and knows how to take each back. It waits for locks
// briefly, so that it never stands before the user's own statements for long.
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

// Step is one thing that was made or changed.
type Step struct {
	What string   // a noun: publication "embedsidecar"
	SQL  []string // what did it; for parts that are no SQL, a line of words
	Undo []string // what takes it back
}

// Action is a step and how to do it.
type Action struct {
	Step
	Allowed bool     // the catalogue says that the role may
	Why     string   // or why it may not
	Tables  []uint32 // to lock; their lock holders are named when it does not work out
	Run     func(ctx context.Context) error
	Words   bool   // SQL is words: nobody else can run it
	Grant   string // lets the role do it itself, where that is better than an owner's doing it; "" when it is not

	Pipelines []string // those that it is for; nil: all

	Check func(ctx context.Context, tx pgx.Tx) error // of what was made, before it is committed; nil: none
}

// Timeout is how long a user's statement may have to wait behind ours.
const Timeout = 2 * time.Second

const attempts = 5

// Runner runs the statements of steps.
type Runner struct {
	Pool        *pgxpool.Pool
	LockTimeout time.Duration // how long a user's statement may have to wait behind ours
	Log         *slog.Logger
}

// Execute runs a step's statements in one transaction. It waits for locks briefly, so that it never stands before the
// user's own statements for longer than that, and tries again.
func (r *Runner) Execute(ctx context.Context, a Action) error {
	for attempt := 1; ; attempt++ {
		err := pgx.BeginFunc(ctx, r.Pool, func(tx pgx.Tx) error {
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

// Lines tell a person what was made, or would be, and how to undo it.
func (s *Step) Lines(verb string) []string {
	return slices.Concat([]string{verb + " " + wording.OneLine(s.What)},
		lists.Map(s.SQL, func(sql string) string { return "    " + indented(sql) }),
		lists.Map(s.Undo, func(sql string) string { return "  undo: " + indented(sql) }))
}

// terminated ends a statement with a semicolon; a comment stays as it is, in one line: names in it may hold line
// breaks.
func terminated(sql string) string {
	if strings.HasPrefix(sql, "-- ") {
		return wording.OneLine(sql)
	}
	return strings.TrimSuffix(sql, ";") + ";"
}

// indented keeps the lines of a statement together below a heading.
func indented(sql string) string {
	return strings.ReplaceAll(terminated(sql), "\n", "\n    ")
}
