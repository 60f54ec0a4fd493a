package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/base/spelling"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/manage/verbs"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// taskFilter chooses tasks.
type taskFilter struct {
	report.TaskFilter

	states, keys cli.StringSlice
}

// flags returns the flags that choose tasks. states adds the one for states.
func (f *taskFilter) flags(states bool) []cli.Flag {
	flags := []cli.Flag{
		own.text("class", &f.Class, "`CLASS` error class"),
		own.text("code", &f.Code, "`CODE` error code"),
		own.list("key", &f.keys, "`KEY` key of a row; may be given more than once"),
		own.duration("older-than", &f.OlderThan, "`DURATION` only changes older than this", "any age"),
	}
	if states {
		flags = append(flags, own.list("state", &f.states,
			"`STATE` todo, in_progress, stale, retrying, failed or cancelled, or finished alone; may be given more than once"))
	}
	return flags
}

func (f *taskFilter) checked() (report.TaskFilter, error) {
	f.States, f.Keys = f.states.Value(), f.keys.Value()
	for _, state := range f.States {
		if !slices.Contains(report.TaskStates, state) {
			return f.TaskFilter, problem.New(problem.Usage, fmt.Errorf("--state: there is no state %q", state),
				spelling.DidYouMean(state, report.TaskStates)...)
		}
	}
	if f.OlderThan < 0 {
		return f.TaskFilter, misuse("--older-than: expected a duration that is not negative")
	}
	return f.TaskFilter, nil
}

// tasksCommand shows tasks.
type tasksCommand struct {
	taskFilter

	limit int
	after string
	lines bool
}

func newTasksList() *command {
	c := &tasksCommand{limit: 100}
	return &command{
		name: "list", group: groupObserve, usage: "list rows that wait, are in work, failed or were cancelled, or finished tasks",
		arguments: "[PIPELINE...] | PIPELINE KEY...", maxArgs: -1,
		description: "The oldest tasks come first, with state, error, age and next try. Finished tasks come " +
			"newest first, with their outcome. Shows no text of a row. embedsidecar explain shows everything about one " +
			"row. For finding rows that failed.",
		flags: append(c.flags(true), own.number("limit", &c.limit, "`N` most tasks to print"),
			own.text("after", &c.after, "`CURSOR` cursor of the last task of the previous page, as -o json shows it"),
			own.toggle("lines", &c.lines,
				"all tasks, each as a line of JSON; they are read in portions, so no transaction stays open")),
		settings: databaseGroups, run: c.list, reach: eachDatabase,
	}
}

func (c *tasksCommand) list(ctx context.Context, env *environment) error {
	if c.limit <= 0 {
		return misuse("--limit: expected a number above 0")
	}
	if c.lines {
		return c.export(ctx, env)
	}
	return c.read(ctx, env, func(a *verbs.Actor, f report.TaskFilter) error {
		list, err := a.Tasks(ctx, env.args, f, c.after, c.limit, env.redact.Text)
		if errors.Is(err, report.ErrCursor) {
			return misuse("--after: %v; embedsidecar tasks list -o json shows cursors", err)
		}
		if err != nil {
			return err
		}
		return env.showTasks(list)
	})
}

// showTasks prints tasks.
func (e *environment) showTasks(list []report.Task) error {
	names := lists.Map(report.TaskColumns, func(c report.TaskColumn) string { return c.Name })
	return output.List(e.out, "tasks", list, names, func(t *report.Task) []any {
		return lists.Map(report.TaskColumns, func(c report.TaskColumn) any {
			switch v := c.Of(t).(type) {
			case *time.Time:
				return moment(v)
			case report.Seconds:
				return wording.Age(float64(v))
			default:
				return v
			}
		})
	})
}

// moment formats a time for people; nil: empty.
func moment(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format(time.DateTime)
}

// export prints all tasks, one a line.
func (c *tasksCommand) export(ctx context.Context, env *environment) error {
	const page = 1000
	return c.read(ctx, env, func(a *verbs.Actor, f report.TaskFilter) error {
		encoder := output.Encoder(env.stdout)
		for after := c.after; ; {
			list, err := a.Tasks(ctx, env.args, f, after, page, env.redact.Text)
			if err != nil {
				return err
			}
			for i := range list {
				if err := encoder.Encode(&list[i]); err != nil {
					return err
				}
				after = list[i].Cursor
			}
			if len(list) < page {
				return nil
			}
		}
	})
}

// read checks the filter, connects and reads.
func (c *tasksCommand) read(ctx context.Context, env *environment,
	do func(a *verbs.Actor, f report.TaskFilter) error,
) error {
	f, err := c.checked()
	if err != nil {
		return err
	}
	a, done, err := env.actor(ctx)
	if err != nil {
		return err
	}
	defer done()
	return do(a, f)
}

func newAudit() *command {
	limit := 100
	return &command{
		name: "audit", group: groupObserve, usage: "show who did what, and to how many rows",
		arguments: "[PIPELINE...]", maxArgs: -1,
		description: "Lists every action by any interface, newest first, and every scan, bulk load and model " +
			"change: while one is under way, result is its stage. The newest 100,000 of each role are kept for 400 " +
			"days, and the sidecar writes each to its log. A dry run leaves no entry. For teams.",
		flags: []cli.Flag{
			own.number("limit", &limit, "`N` most entries to print"),
		},
		settings: databaseGroups, reach: eachDatabase,
		run: func(ctx context.Context, env *environment) error {
			if limit <= 0 {
				return misuse("--limit: expected a number above 0")
			}
			a, done, err := env.actor(ctx)
			if err != nil {
				return err
			}
			defer done()
			list, err := a.Audit(ctx, env.args, math.MaxInt64, limit)
			if err != nil {
				return err
			}
			columns := []string{"at", "role", "by", "from", "application", "action", "pipeline", "result", ">rows", ">took"}
			return output.List(env.out, "actions", list, columns, func(e *report.Action) []any {
				took := ""
				if e.FinishedAt != nil {
					took = wording.Age(e.FinishedAt.Sub(e.At).Seconds())
				}
				return []any{
					moment(&e.At), e.Role, e.SaidBy, e.Address, e.Application, e.Action,
					cmp.Or(e.Pipeline, everyPipeline), e.Result, e.Changed, took,
				}
			})
		},
	}
}
