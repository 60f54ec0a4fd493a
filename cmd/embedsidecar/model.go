package main

import (
	"context"
	"fmt"

	"github.com/dustin/go-humanize"
	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/app"
	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/manage/generations"
	"github.com/embedsidecar/embedsidecar/internal/manage/verbs"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// modelChange makes the next generation of a pipeline, or says what it would take.
type modelChange struct {
	to, plugin string
	plan       bool
}

func (c *modelChange) flags() []cli.Flag {
	return []cli.Flag{
		own.text("to", &c.to, "`MODEL` to change to", "the one of the configuration"),
		own.text("to-plugin", &c.plugin, "`PLUGIN` that runs it", "the one of the configuration"),
	}
}

func newModelPlan() *command {
	c := &modelChange{plan: true}
	return &command{
		name: "plan", group: groupOperate, usage: "tell what a change of the model would take",
		arguments: "PIPELINE", minArgs: 1, maxArgs: 1,
		description: "Prints rows, tokens (by the new model's tokenizer), time, price (if the model has one in the file) " +
			"and room, what would be made, and what depends on the present vectors. It reads a sample of the rows and " +
			"embeds a few, unless that costs money. Changes nothing. For deciding whether to change.",
		flags: c.flags(), settings: []string{config.GroupDatabase, config.GroupEmbedding}, run: c.run,
	}
}

func newModelChange() *command {
	c := &modelChange{}
	return &command{
		name: "change", group: groupOperate, usage: "make the next generation of a pipeline, by another model",
		arguments: "PIPELINE", minArgs: 1, maxArgs: 1,
		description: "Makes a second destination beside the present one, and a running sidecar fills it after live " +
			"changes. Searches go on with the present vectors; both are kept true. model switch has the next one serve. " +
			"Needs the owner of the source table. For a better model, without a pause of searches.",
		flags: c.flags(), settings: []string{config.GroupDatabase, config.GroupEmbedding}, acts: true, run: c.run,
	}
}

func (c *modelChange) run(ctx context.Context, env *environment) error {
	done, err := app.ChangeModel(ctx, env.node(), app.ModelChange{
		Pipeline: env.args[0], To: pipeline.ModelName{Plugin: c.plugin, Model: c.to},
		DryRun: c.plan || env.dryRun, Estimate: c.plan,
	})
	env.tellWarnings(done.Warnings)
	if err != nil {
		return err
	}
	if c.plan {
		return env.showModelPlan(ctx, &done)
	}
	if env.out.ForPeople() {
		verb := "made"
		if env.dryRun {
			verb = "would make"
		}
		env.tellSteps(done.Steps, verb)
	}
	result := "made"
	switch {
	case done.Next.Existing:
		result = "already_under_way"
	case env.dryRun:
		result = "would_be_made"
	}
	return env.showModelResult(done.Pipeline, result)
}

// modelResult is what became of a pipeline.
type modelResult struct {
	Pipeline string `json:"pipeline"`
	Result   string `json:"result"`
}

func (e *environment) showModelResult(name, result string) error {
	return e.out.Show(modelResult{name, result}, func() output.Table {
		return output.Row([]string{"pipeline", "result"}, name, result)
	})
}

// modelPlan is a plan as programs read it.
type modelPlan struct {
	Pipeline string   `json:"pipeline"`
	From     string   `json:"from"`
	To       string   `json:"to"`
	Dims     int      `json:"dims"`
	Rows     int64    `json:"rows"`
	Texts    int64    `json:"texts"`
	Tokens   int64    `json:"tokens"`
	Seconds  *float64 `json:"seconds"`
	Price    *float64 `json:"price"`
	Bytes    int64    `json:"disk_bytes"`
	Makes    []string `json:"makes"`
	Locks    []string `json:"locks"`
	Warnings []string `json:"warnings"`
}

func (e *environment) showModelPlan(_ context.Context, done *app.ModelChanged) error {
	p := modelPlan{
		Pipeline: done.Pipeline, From: done.Next.Live.Model, To: done.Next.Spec.Model, Dims: done.About.Dims,
		Rows: done.Estimate.Rows, Texts: done.Estimate.Texts, Tokens: done.Estimate.Tokens,
		Seconds: done.Estimate.Seconds, Price: done.Estimate.Price, Bytes: done.Estimate.DiskBytes,
		Makes: []string{}, Locks: modelLocks(&done.Next.Spec), Warnings: append([]string{}, done.Warnings...),
	}
	for i := range done.Steps {
		p.Makes = append(p.Makes, done.Steps[i].What)
	}
	return e.out.Show(p, func() output.Table {
		t := output.Table{Columns: []string{"what", "is"}, Rows: [][]any{
			{"model", fmt.Sprintf("%s, then %s (%d dimensions)", p.From, p.To, p.Dims)},
			{"takes", done.Estimate.Line()},
		}}
		for _, made := range p.Makes {
			t.Rows = append(t.Rows, []any{"makes", made})
		}
		for _, lock := range p.Locks {
			t.Rows = append(t.Rows, []any{"locks", lock})
		}
		return t
	})
}

// modelLocks says what is locked by a change, and for how long.
func modelLocks(next *pipeline.Spec) []string {
	if next.InSource() {
		return []string{
			"change: " + next.Source() + " for the moment of ADD COLUMN, tried for 2 s and given up",
			"switch: " + next.Source() + " for the moment of two RENAMEs, tried for 50 ms and given up, again and again",
			"statements that were prepared with SELECT * are planned anew: the table gets a column",
		}
	}
	return []string{
		"change: nothing that is there",
		"switch: both embedding tables for the moment of two RENAMEs, tried for 50 ms and given up, again and again",
	}
}

// modelAct does what functions of the schema do.
type modelAct struct {
	do    string
	force bool
}

func newModelSwitch() *command {
	c := &modelAct{do: generations.Switch}
	return c.command("have the next generation of a pipeline serve",
		"One short transaction: the vectors get the name of those that served, and questions are embedded by their model "+
			"from that instant on. Refused until the next generation is complete. The old one is kept true until model "+
			"drop-old. For the moment when model status says that it can serve.")
}

func newModelRollback() *command {
	c := &modelAct{do: generations.Rollback}
	return c.command("have the previous generation of a pipeline serve again",
		"model switch the other way, as fast, as long as the previous generation is kept. For a model that turned out "+
			"worse.")
}

func newModelDropOld() *command {
	c := &modelAct{do: generations.DropOld}
	return c.command("take away the generation of a pipeline that does not serve",
		"Drops its vectors and forgets it: the previous generation after a switch, or a next one that is given up. There "+
			"is no way back to it. For the end of a change.")
}

func (c *modelAct) command(usage, description string) *command {
	one := &command{
		name: c.do, group: groupOperate, usage: usage, arguments: "PIPELINE", minArgs: 1, maxArgs: 1,
		description: description, settings: databaseGroups, acts: true, run: c.run,
	}
	if c.do != generations.DropOld {
		one.flags = []cli.Flag{own.toggle("force", &c.force,
			"though rows of it are stale or failed, or an index is missing")}
	}
	return one
}

func (c *modelAct) run(ctx context.Context, env *environment) error {
	pool, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	result, err := generations.Act(ctx, pool, generations.Request{
		Do: c.do, Pipeline: env.args[0], Force: c.force, DryRun: env.dryRun, By: verbs.Person(),
	})
	if err != nil {
		return err
	}
	return env.showModelResult(env.args[0], result)
}

func newModelStatus() *command {
	return &command{
		name: "status", group: groupOperate, usage: "tell how far a change of the model is", arguments: "[PIPELINE]",
		maxArgs: 1,
		description: "Lists the generations of a pipeline, or of all: the one that serves, and the next or the previous " +
			"one, with what it lacks to serve. For waiting for a change, and for knowing which model answers.",
		settings: databaseGroups,
		run: func(ctx context.Context, env *environment) error {
			pool, err := env.connect(ctx)
			if err != nil {
				return err
			}
			defer pool.Close()
			name := ""
			if len(env.args) > 0 {
				name = env.args[0]
			}
			list, err := generations.States(ctx, pool, name)
			if err != nil {
				return err
			}
			columns := []string{"pipeline", "generation", "model", ">dims", "destination", ">done", "state", ">size", "lacks"}
			return output.List(env.out, "generations", list, columns, func(g *generations.Generation) []any {
				return []any{
					g.Pipeline, g.Role, g.Model, g.Dims, g.Destination, fmt.Sprintf("%.0f %%", 100*g.Share()), g.State, size(g.Bytes),
					g.Words(),
				}
			})
		},
	}
}

// size is a number of bytes for people.
func size(bytes *int64) string {
	if bytes == nil {
		return "-"
	}
	return humanize.IBytes(uint64(max(*bytes, 0)))
}
