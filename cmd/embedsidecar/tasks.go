package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/node/actions"
	"github.com/embedsidecar/embedsidecar/internal/report"
	"github.com/embedsidecar/embedsidecar/internal/spelling"
	"github.com/embedsidecar/embedsidecar/internal/wording"
)

// tasksCommand is a command of the family tasks: it chooses tasks, and shows them or has something done to them.
type tasksCommand struct {
	states, keys cli.StringSlice
	class, code  string
	olderThan    time.Duration
	limit        int
	waiting      bool
}

// filters are the flags that choose; states says that those of any state may be chosen.
func (c *tasksCommand) filters(states bool) []cli.Flag {
	flags := []cli.Flag{
		&cli.StringFlag{Name: "class", Destination: &c.class, Usage: "`CLASS` of the error"},
		&cli.StringFlag{Name: "code", Destination: &c.code, Usage: "`CODE` of the error"},
		&cli.StringSliceFlag{Name: "key", Destination: &c.keys, Usage: "`KEY` of a row; may be given more than once"},
		&cli.DurationFlag{
			Name: "older-than", Destination: &c.olderThan, DefaultText: "any age", Usage: "`DURATION` since the change",
		},
	}
	if states {
		flags = append(flags, &cli.StringSliceFlag{
			Name: "state", Destination: &c.states, Usage: "`STATE`: todo, in_progress, stale, retrying, failed or cancelled; may be given more than once",
		})
	}
	return flags
}

// filter checks what was given.
func (c *tasksCommand) filter() (report.TaskFilter, error) {
	f := report.TaskFilter{
		States: c.states.Value(), Class: c.class, Code: c.code, Keys: c.keys.Value(), OlderThan: c.olderThan,
	}
	for _, state := range f.States {
		if !slices.Contains(report.TaskStates, state) {
			return f, fail(exitUsage, fmt.Errorf("--state: there is no state %q", state),
				spelling.DidYouMean(state, report.TaskStates)...)
		}
	}
	if c.olderThan < 0 {
		return f, misuse("--older-than: expected a duration that is not negative")
	}
	return f, nil
}

func newTasksList() *command {
	c := &tasksCommand{}
	return &command{
		name: "list", group: groupObserve, usage: "list rows that wait, are in work, failed or were cancelled",
		arguments: "[PIPELINE...] | PIPELINE KEY...", maxArgs: -1,
		description: "The oldest tasks first, with state, error, age and next try. No text of a row is shown. embedsidecar explain tells the whole story of one row.",
		flags: append(c.filters(true), &cli.IntFlag{
			Name: "limit", Value: 100, Destination: &c.limit, Usage: "`N` tasks at most",
		}),
		settings: databaseGroups, run: c.list,
	}
}

func (c *tasksCommand) list(ctx context.Context, env *environment) error {
	if c.limit <= 0 {
		return misuse("--limit: expected a number above 0")
	}
	return c.with(ctx, env, func(a *actions.Actions, f report.TaskFilter) error {
		list, err := a.Tasks(ctx, env.args, f, 0, c.limit, env.redact.Text)
		if err != nil {
			return err
		}
		return env.showTasks(list)
	})
}

func newTasksShow() *command {
	c := &tasksCommand{}
	return &command{
		name: "show", group: groupObserve, usage: "show the tasks of rows",
		arguments: "PIPELINE KEY...", minArgs: 2, maxArgs: -1,
		description: "Ends with status 9 when nothing waits for any of these rows. embedsidecar explain tells more.",
		settings:    databaseGroups, run: c.show,
	}
}

func (c *tasksCommand) show(ctx context.Context, env *environment) error {
	return c.with(ctx, env, func(a *actions.Actions, f report.TaskFilter) error {
		f.Keys = env.args[1:]
		list, err := a.Tasks(ctx, env.args[:1], f, 0, len(f.Keys), env.redact.Text)
		if err != nil {
			return err
		}
		if len(list) == 0 {
			err = fail(exitNoMatch, errors.New("nothing waits for these rows, and none failed"),
				"embedsidecar explain tells what became of a row")
		}
		return errors.Join(env.showTasks(list), err)
	})
}

// showTasks prints tasks in the form that was asked for.
func (e *environment) showTasks(list []report.Task) error {
	return e.show(map[string][]report.Task{"tasks": list}, func() listing {
		l := listing{
			header: []string{
				"pipeline", "key", "state", "priority", "tries", "age", "next try", "class", "code", "message",
			},
			right: []int{4, 5},
		}
		for i := range list {
			t := &list[i]
			next := ""
			if t.NextTryAt != nil {
				next = t.NextTryAt.UTC().Format(time.DateTime)
			}
			l.rows = append(l.rows, []any{
				t.Pipeline, t.Key, t.State, t.Priority, t.Attempt, wording.Age(t.AgeSeconds), next, t.Class, t.Code,
				t.Message,
			})
		}
		return l
	})
}

func newTasksExport() *command {
	c := &tasksCommand{}
	return &command{
		name: "export", group: groupObserve, usage: "print tasks as lines of JSON, however many there are",
		arguments: "[PIPELINE...] | PIPELINE KEY...", maxArgs: -1,
		description: "One object a line, as tasks list -o json has them. They are read in portions, so that no transaction stays open.",
		flags:       c.filters(true), settings: databaseGroups, run: c.export,
	}
}

func (c *tasksCommand) export(ctx context.Context, env *environment) error {
	const page = 1000
	return c.with(ctx, env, func(a *actions.Actions, f report.TaskFilter) error {
		encoder := json.NewEncoder(env.stdout)
		encoder.SetEscapeHTML(false)
		for after := int64(0); ; {
			list, err := a.Tasks(ctx, env.args, f, after, page, env.redact.Text)
			if err != nil {
				return err
			}
			for i := range list {
				if err := encoder.Encode(&list[i]); err != nil {
					return err
				}
				after = list[i].ID
			}
			if len(list) < page {
				return nil
			}
		}
	})
}

func newTasksRetry() *command {
	c := &tasksCommand{}
	return &command{
		name: "retry", group: groupOperate, usage: "try dead letters, and what waits for another try, again at once",
		arguments: "[PIPELINE...] | PIPELINE KEY...", maxArgs: -1,
		description: "As embedsidecar retry, with filters. Thousands are done in portions: when it is interrupted, what was done stays done. --dry-run tells how many there are.",
		flags:       c.filters(false), settings: databaseGroups, acts: true, run: c.retry,
	}
}

func (c *tasksCommand) retry(ctx context.Context, env *environment) error {
	return c.with(ctx, env, func(a *actions.Actions, f report.TaskFilter) error {
		list, err := a.Retry(ctx, env.args, f, env.dryRun)
		if err != nil {
			return err
		}
		return env.showOutcomes(list)
	})
}

func newTasksDiscard() *command {
	c := &tasksCommand{}
	return &command{
		name: "discard", group: groupOperate, usage: "put dead letters away, so that they count as cancelled",
		arguments: "PIPELINE... | PIPELINE KEY...", minArgs: 1, maxArgs: -1,
		description: "They keep their error, and status, wait and explain go on telling of them, as cancelled, until the row changes or embedsidecar tasks requeue takes them back. --dry-run tells how many there are.",
		flags:       c.filters(false), settings: databaseGroups, acts: true, run: c.discard,
	}
}

func (c *tasksCommand) discard(ctx context.Context, env *environment) error {
	return c.with(ctx, env, func(a *actions.Actions, f report.TaskFilter) error {
		list, err := a.Discard(ctx, env.args, f, env.dryRun)
		if err != nil {
			return err
		}
		return env.showOutcomes(list)
	})
}

func newTasksRequeue() *command {
	c := &tasksCommand{}
	return &command{
		name: "requeue", group: groupOperate, usage: "have rows looked at again, or all that were cancelled",
		arguments: "PIPELINE [KEY...]", minArgs: 1, maxArgs: -1,
		description: "A look at a row that needs nothing embeds nothing; embedsidecar reembed embeds it anyway. --dry-run tells how many there are.",
		settings:    databaseGroups, acts: true,
		run: func(ctx context.Context, env *environment) error {
			return c.one(ctx, env, (*actions.Actions).Requeue)
		},
	}
}

func newTasksCancel() *command {
	c := &tasksCommand{}
	return &command{
		name: "cancel", group: groupOperate, usage: "take rows out of the queue",
		arguments: "PIPELINE KEY...", minArgs: 2, maxArgs: -1,
		description: "They are cancelled: not embedded until they change, a comparison of all rows finds that they differ, or embedsidecar tasks requeue takes them back; status, wait and explain tell of them. What is being embedded at this moment is finished. --dry-run tells how many there are.",
		settings:    databaseGroups, acts: true,
		run: func(ctx context.Context, env *environment) error {
			return c.one(ctx, env, (*actions.Actions).Cancel)
		},
	}
}

// one does something to rows of one pipeline.
func (c *tasksCommand) one(ctx context.Context, env *environment,
	do func(a *actions.Actions, ctx context.Context, name string, keys []string, dry bool) (actions.Outcome, error),
) error {
	return c.with(ctx, env, func(a *actions.Actions, _ report.TaskFilter) error {
		outcome, err := do(a, ctx, env.args[0], env.args[1:], env.dryRun)
		if err != nil {
			return err
		}
		return env.showOutcomes([]actions.Outcome{outcome})
	})
}

func newTasksPrioritise() *command {
	c := &tasksCommand{}
	return &command{
		name: "prioritise", group: groupOperate, usage: "give a pipeline's live changes, or rows that wait, another priority",
		arguments: "PIPELINE PRIORITY [KEY...]", minArgs: 2, maxArgs: -1,
		description: "low, normal, high or urgent. Without keys it is that of changes from now on, what waits keeps its own, and a configuration that says otherwise takes it back at the next run. With keys, or --waiting, it is that of rows that wait, and of nothing else. --dry-run tells how many there are.",
		flags: []cli.Flag{&cli.BoolFlag{
			Name: "waiting", Destination: &c.waiting, DisableDefaultText: true, Usage: "all rows of the pipeline that wait",
		}},
		settings: databaseGroups, acts: true, run: c.prioritise,
	}
}

func (c *tasksCommand) prioritise(ctx context.Context, env *environment) error {
	if !slices.Contains(actions.Priorities, env.args[1]) {
		return fail(exitUsage, fmt.Errorf("there is no priority %q", env.args[1]),
			spelling.DidYouMean(env.args[1], actions.Priorities)...)
	}
	if c.waiting && len(env.args) > 2 {
		return misuse("--waiting means all rows that wait: give it, or keys")
	}
	return c.with(ctx, env, func(a *actions.Actions, _ report.TaskFilter) error {
		prioritise := func() (actions.Outcome, error) {
			return a.PrioritiseWaiting(ctx, env.args[0], env.args[1], env.args[2:], env.dryRun)
		}
		if !c.waiting && len(env.args) == 2 {
			prioritise = func() (actions.Outcome, error) {
				return a.Prioritise(ctx, env.args[0], env.args[1], env.dryRun)
			}
		}
		outcome, err := prioritise()
		if err != nil {
			return err
		}
		return env.showOutcomes([]actions.Outcome{outcome})
	})
}

// with checks the filter, connects and does something.
func (c *tasksCommand) with(ctx context.Context, env *environment,
	do func(a *actions.Actions, f report.TaskFilter) error,
) error {
	f, err := c.filter()
	if err != nil {
		return err
	}
	a, done, err := env.actions(ctx)
	if err != nil {
		return err
	}
	defer done()
	return do(a, f)
}

// auditCommand tells what was done.
type auditCommand struct{ limit int }

func newAudit() *command {
	c := &auditCommand{}
	return &command{
		name: "audit", group: groupObserve, usage: "tell who had what done, and to how many rows",
		arguments: "[PIPELINE...]", maxArgs: -1,
		description: "Every pause, resume, retry, requeue, cancel, discard, rescan, reembed and change of priority, by whatever way it came, the newest first. The newest 100,000 are kept; a dry run leaves no entry.",
		flags: []cli.Flag{
			&cli.IntFlag{Name: "limit", Value: 100, Destination: &c.limit, Usage: "`N` entries at most"},
		},
		settings: databaseGroups, run: c.run,
	}
}

func (c *auditCommand) run(ctx context.Context, env *environment) error {
	if c.limit <= 0 {
		return misuse("--limit: expected a number above 0")
	}
	a, done, err := env.actions(ctx)
	if err != nil {
		return err
	}
	defer done()
	list, err := a.Audit(ctx, env.args, c.limit)
	if err != nil {
		return err
	}
	return env.show(map[string][]report.Action{"actions": list}, func() listing {
		l := listing{
			header: []string{"at", "role", "by", "from", "application", "action", "pipeline", "result", "rows"},
			right:  []int{8},
		}
		for i := range list {
			e := &list[i]
			name := e.Pipeline
			if name == "" {
				name = everyPipeline
			}
			l.rows = append(l.rows, []any{
				e.At.UTC().Format(time.DateTime), e.Role, e.SaidBy, e.Address, e.Application, e.Action, name, e.Result,
				e.Changed,
			})
		}
		return l
	})
}
