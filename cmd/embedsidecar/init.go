package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/app"
	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/internal/setup/estimate"
	"github.com/embedsidecar/embedsidecar/internal/setup/step"
)

// initCommand sets up what pipelines need.
type initCommand struct {
	showSQL  bool // print the statements for somebody else to run
	adopt    bool // the database is a copy of another
	noChange bool // what is set up otherwise stays so
}

// noChangeFlag is --no-change, of whatever sets up.
func noChangeFlag(into *bool) cli.Flag {
	return own.toggle("no-change", into, "do not change pipelines that are set up otherwise than configured")
}

func newInit() *command {
	c := &initCommand{}
	return &command{
		name: "init", group: groupStart, usage: "set up schema, publication, slot and destinations",
		description: "Needs the owner of the source tables, not a superuser. Existing objects stay, and init can be " +
			"repeated. Each step is printed with the SQL that undoes it. --dry-run shows the steps and estimates " +
			"the backfill of each new pipeline: texts, tokens (by the model's own tokenizer), time, price (if " +
			"the model has one in the file) and space. For that it reads a sample of the rows and embeds a few, " +
			"unless that costs money. For a set-up by another role than the one that runs.",
		flags: []cli.Flag{
			own.toggle("show-sql", &c.showSQL, "print the SQL and run nothing"),
			own.toggle("adopt", &c.adopt,
				"this database was restored or copied from another and shall live on its own: make a new slot and compare every row; vectors that an earlier set-up left in embedding tables are kept"),
			noChangeFlag(&c.noChange),
		},
		reach:     eachDatabase,
		settings:  []string{config.GroupDatabase, config.GroupEmbedding},
		pipelines: true,
		acts:      true,
		run:       c.run,
	}
}

func (c *initCommand) run(ctx context.Context, env *environment) error {
	dry := c.showSQL || env.dryRun
	done, err := app.SetUp(ctx, env.node(), app.SetUpOptions{
		Adopt: c.adopt, DryRun: dry, NoChange: c.noChange, Estimate: env.dryRun,
	})
	if !done.Begun {
		return err
	}
	env.tellWarnings(done.Warnings)
	env.tellOthers(done.Others)
	for _, why := range done.Unestimated {
		env.say("no estimate: %s", why)
	}
	return errors.Join(c.show(env, done, dry, err), err)
}

// made is a step as JSON shows it.
type made struct {
	What string   `json:"what"`
	SQL  []string `json:"sql"`
	Undo []string `json:"undo"`
}

func (c *initCommand) show(env *environment, done app.SetUpDone, dry bool, failed error) error {
	if c.showSQL {
		return env.printf("%s", step.Script(done.Steps))
	}
	if !env.out.ForPeople() {
		list := []made{}
		for _, step := range done.Steps {
			list = append(list, made{step.What, append([]string{}, step.SQL...), append([]string{}, step.Undo...)})
		}
		answer := map[string]any{"dry_run": dry, "steps": list}
		if env.dryRun {
			answer["estimates"] = append([]estimate.Estimate{}, done.Estimates...)
		}
		return env.out.Show(answer, func() output.Table {
			return output.Rows(list, []string{"what", "sql", "undo"}, func(m *made) []any {
				return []any{m.What, strings.Join(m.SQL, " "), strings.Join(m.Undo, " ")}
			})
		})
	}
	verb := "made"
	if dry {
		verb = "would make"
	}
	env.tellSteps(done.Steps, verb)
	for i := range done.Estimates {
		env.say("%s", done.Estimates[i].Line())
	}
	if len(done.Steps) == 0 && failed == nil {
		env.say("nothing to do: everything is there")
	}
	return nil
}

// tellOthers names the pipelines that the configuration does not have.
func (e *environment) tellOthers(names []string) {
	for _, name := range names {
		e.say("%s", app.Unconfigured(name))
	}
}

// tellSteps tells a person what was made and how to undo it.
func (e *environment) tellSteps(steps []step.Step, verb string) {
	for i := range steps {
		for _, line := range steps[i].Lines(verb) {
			e.say("%s", line)
		}
	}
}

// tellSetup tells a person what a set-up made, and what else there is to know of it.
func (e *environment) tellSetup(done setup.Report) {
	e.tellWarnings(done.Warnings)
	e.tellSteps(done.Steps, "made")
	e.tellOthers(done.Others)
}

// tellWarnings tells what somebody should know of a set-up, once: it is tried again where only one pipeline cannot
// work.
func (e *environment) tellWarnings(warnings []string) {
	for _, warning := range warnings {
		if !slices.Contains(e.warned, warning) {
			e.say("warning: %s", warning)
			e.warned = append(e.warned, warning)
		}
	}
}
