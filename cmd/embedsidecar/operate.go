package main

import (
	"context"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/health"
	"github.com/embedsidecar/embedsidecar/internal/node/actions"
	"github.com/embedsidecar/embedsidecar/internal/report"
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
	c := &switchCommand{on: true}
	return &command{
		name: "resume", group: groupOperate, usage: "take back pause", arguments: "[PIPELINE...]", maxArgs: -1,
		description: "Without a name it turns the switch that is over all pipelines; one that was paused by its name stays so. A pipeline with hours of its own (active) works within these; --for has it work at once and for so long, also if it is paused by its name. Sidecars that run notice within seconds.",
		flags: []cli.Flag{&cli.DurationFlag{
			Name: "for", Value: -1, Destination: &c.time, DefaultText: "within its hours",
			Usage: "work for `DURATION` whatever the hours of the pipeline are; 0 ends that",
		}},
		settings: databaseGroups, acts: true, run: c.run,
	}
}

// everyPipeline is how the switch over all pipelines is shown.
const everyPipeline = "(all)"

func (c *switchCommand) run(ctx context.Context, env *environment) error {
	a, done, err := env.actions(ctx)
	if err != nil {
		return err
	}
	defer done()
	if c.time < -1 {
		return misuse("--for: expected a duration that is not negative")
	}
	if c.time >= 0 {
		list, err := a.ResumeFor(ctx, env.args, c.time, env.dryRun)
		if err != nil {
			return err
		}
		return env.showOutcomes(list)
	}
	s, err := a.Switch(ctx, c.on, env.args, env.dryRun)
	if err != nil {
		return err
	}
	for _, name := range s.Paused {
		env.say("pipeline %s stays paused: embedsidecar resume %s", name, health.Quoted(name))
	}
	return env.showOutcomes(s.Outcomes)
}

// retryCommand gives dead letters another try.
type retryCommand struct{}

func newRetry() *command {
	c := &retryCommand{}
	return &command{
		name: "retry", group: groupOperate, usage: "try rows again that could not be embedded",
		arguments: "[PIPELINE...] | PIPELINE KEY...", maxArgs: -1,
		description: "Takes the dead letters of these pipelines, or of all, or of these rows alone, which embedsidecar failed names, and puts them back into the queue with all their tries. Rows that wait for their next try anyway do not wait any longer. --dry-run tells how many there are.",
		settings:    databaseGroups, acts: true, run: c.run,
	}
}

func (c *retryCommand) run(ctx context.Context, env *environment) error {
	a, done, err := env.actions(ctx)
	if err != nil {
		return err
	}
	defer done()
	list, err := a.Retry(ctx, env.args, report.TaskFilter{}, env.dryRun)
	if err != nil {
		return err
	}
	return env.showOutcomes(list)
}

func (e *environment) showOutcomes(list []actions.Outcome) error {
	for _, o := range list {
		for _, key := range o.Unknown {
			e.say("warning: pipeline %s knows no row with the key %q; keys are written as failed, search and verify print them",
				o.Pipeline, key)
		}
	}
	return e.show(map[string][]actions.Outcome{"pipelines": list}, func() listing {
		l := listing{header: []string{"pipeline", "result", "rows"}, right: []int{2}}
		for _, a := range list {
			name, rows := a.Pipeline, ""
			if name == "" {
				name = everyPipeline
			}
			if a.Rows > 0 {
				rows = fmt.Sprint(a.Rows)
			}
			l.rows = append(l.rows, []any{name, a.Result, rows})
		}
		return l
	})
}
