package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/manage/verbs"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// switchCommand pauses pipelines, or lets them go on.
type switchCommand struct {
	on   bool
	time time.Duration // to work for, whatever the hours are; below 0: it was not given
}

func newPause() *command {
	c := &switchCommand{on: false, time: -1}
	return &command{
		name: "pause", group: groupOperate, usage: "embed nothing until resume; changes are queued meanwhile",
		arguments: "[PIPELINE...]", maxArgs: -1,
		description: "Without a name it turns the switch that is over all pipelines. What is being embedded at that moment is finished. Doing it twice does no harm; --dry-run tells what would be done.",
		settings:    databaseGroups, acts: true, run: c.run,
	}
}

func newResume() *command {
	c := &switchCommand{on: true, time: -1}
	return &command{
		name: "resume", group: groupOperate, usage: "take back pause", arguments: "[PIPELINE...]", maxArgs: -1,
		description: "Without a name it turns the switch that is over all pipelines; one that was paused by its name stays so. A pipeline with hours of its own (active) works within these; --for has it work at once and for so long, also if it is paused by its name. Sidecars that run notice within seconds.",
		flags: []cli.Flag{own.duration("for", &c.time,
			"work for `DURATION` whatever the hours of the pipeline are; 0 ends that", "within its hours")},
		settings: databaseGroups, acts: true, run: c.run,
	}
}

// everyPipeline is how the switch over all pipelines is shown.
const everyPipeline = "(all)"

func (c *switchCommand) run(ctx context.Context, env *environment) error {
	return env.act(ctx, func(a *actions.Actions) ([]actions.Outcome, error) {
		if c.time < -1 {
			return nil, misuse("--for: expected a duration that is not negative")
		}
		if c.time >= 0 {
			return a.ResumeFor(ctx, env.args, c.time, env.dryRun)
		}
		s, err := a.Switch(ctx, c.on, env.args, env.dryRun)
		for _, name := range s.Paused {
			env.say("pipeline %s stays paused: embedsidecar resume %s", name, health.Quoted(name))
		}
		return s.Outcomes, err
	})
}

func newRetry() *command {
	return &command{
		name: "retry", group: groupOperate, usage: "try rows again that could not be embedded",
		arguments: "[PIPELINE...] | PIPELINE KEY...", maxArgs: -1,
		description: "Takes the dead letters of these pipelines, or of all, or of these rows alone, which embedsidecar failed names, and puts them back into the queue with all their tries. Rows that wait for their next try anyway do not wait any longer. --dry-run tells how many there are.",
		settings:    databaseGroups, acts: true, run: new(taskFilter).acts((*actions.Actions).Retry),
	}
}

func newReembed() *command {
	return &command{
		name: "reembed", group: groupOperate, usage: "embed rows anew though their texts are what they were",
		arguments: "PIPELINE [KEY...]", minArgs: 1, maxArgs: -1,
		description: "For vectors that are not believed any more. Every row of the pipeline, or these rows alone, are sent to the embedder again: nothing that is stored or remembered is taken instead. The vectors stay where they are until the new ones come. It happens when a sidecar runs; embedsidecar wait --caught-up waits for it. --dry-run tells how many rows there are.",
		settings:    databaseGroups, acts: true, run: rowsOfOne((*actions.Actions).Reembed),
	}
}

// acts runs an action on what the filter lets through.
func (f *taskFilter) acts(
	do func(*actions.Actions, context.Context, []string, report.TaskFilter, bool) ([]actions.Outcome, error),
) func(context.Context, *environment) error {
	return func(ctx context.Context, env *environment) error {
		filter, err := f.checked()
		if err != nil {
			return err
		}
		return env.act(ctx, func(a *actions.Actions) ([]actions.Outcome, error) {
			return do(a, ctx, env.args, filter, env.dryRun)
		})
	}
}

// rowsOfOne runs an action on rows of one pipeline.
func rowsOfOne(
	do func(*actions.Actions, context.Context, string, []string, bool) (actions.Outcome, error),
) func(context.Context, *environment) error {
	return func(ctx context.Context, env *environment) error {
		return env.act(ctx, func(a *actions.Actions) ([]actions.Outcome, error) {
			outcome, err := do(a, ctx, env.args[0], env.args[1:], env.dryRun)
			return []actions.Outcome{outcome}, err
		})
	}
}

// act connects, has something done to pipelines, and shows what became of each.
func (e *environment) act(ctx context.Context, do func(a *actions.Actions) ([]actions.Outcome, error)) error {
	a, done, err := e.actions(ctx)
	if err != nil {
		return err
	}
	defer done()
	list, err := do(a)
	if err != nil {
		return err
	}
	for _, o := range list {
		for _, key := range o.Unknown {
			e.say("warning: pipeline %s knows no row with the key %q; keys are written as failed, search and verify print them",
				o.Pipeline, key)
		}
	}
	return output.List(e.out, "pipelines", list, []string{"pipeline", "result", ">rows"}, func(o *actions.Outcome) []any {
		rows := ""
		if o.Rows > 0 {
			rows = fmt.Sprint(o.Rows)
		}
		return []any{cmp.Or(o.Pipeline, everyPipeline), o.Result, rows}
	})
}
