package main

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/node"
	"github.com/embedsidecar/embedsidecar/internal/node/connection"
	"github.com/embedsidecar/embedsidecar/internal/node/embedders"
	"github.com/embedsidecar/embedsidecar/internal/node/estimate"
	"github.com/embedsidecar/embedsidecar/internal/node/lookup"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/refusal"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/internal/step"
	"github.com/embedsidecar/embedsidecar/internal/wording"
)

// initCommand sets up what pipelines need.
type initCommand struct {
	showSQL  bool // print the statements for somebody else to run
	adopt    bool // the database is a copy of another
	noChange bool // what is set up otherwise stays so
}

// noChangeFlag is --no-change, of whatever sets up.
func noChangeFlag(into *bool) cli.Flag {
	return &cli.BoolFlag{
		Name: "no-change", Destination: into, DisableDefaultText: true,
		Usage: "leave a pipeline as it is that is set up otherwise than it is configured",
	}
}

func newInit() *command {
	c := &initCommand{}
	return &command{
		name: "init", group: groupStart, usage: "set up schema, publication, slot and destinations",
		description: "Needs the owner of the source tables, not a superuser. What is there already stays; doing it twice does no harm. Each thing made is printed with the SQL to undo it. --dry-run tells what would be done, and about what the backfill of each new pipeline takes: texts, tokens (by the model's own tokenizer), time, price (where the model has one in the file) and room. It reads a sample of the rows for that and embeds a few, unless that costs money.",
		flags: []cli.Flag{
			&cli.BoolFlag{
				Name: "show-sql", Destination: &c.showSQL, DisableDefaultText: true,
				Usage: "print the SQL that would be run, and run nothing",
			},
			&cli.BoolFlag{
				Name: "adopt", Destination: &c.adopt, DisableDefaultText: true,
				Usage: "this database was restored or copied from another and shall live on its own: make a new slot and compare every row",
			},
			noChangeFlag(&c.noChange),
		},
		settings:  []string{config.GroupDatabase, config.GroupEmbedding},
		pipelines: true,
		acts:      true,
		run:       c.run,
	}
}

func (c *initCommand) run(ctx context.Context, env *environment) (err error) {
	pool, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	server, err := env.connections().Server(ctx, pool, connection.Few)
	if err != nil {
		return err
	}
	defer server.Close()
	plugins := embedders.New(env.embedders())
	defer func() { err = errors.Join(err, plugins.Close()) }()
	known := func() ([]pipeline.Pipeline, error) {
		if c.adopt { // pipelines may come from the slot of the original
			return lookup.All(ctx, pool)
		}
		return lookup.Stored(ctx, pool, env.config.Slot.Name)
	}
	already, err := known()
	if _, missing := errors.AsType[*refusal.NotSetUpError](err); err != nil && !missing {
		return err
	}
	specs := lookup.Configured(env.config, already)
	described, err := plugins.Describe(ctx, specs)
	if err != nil {
		return err
	}
	dry := c.showSQL || env.dryRun
	done, err := node.Initialize(ctx, env.config, env.log, setup.Options{
		Pool: server, Specs: specs, Descriptions: described, Adopt: c.adopt, DryRun: dry, NoChange: c.noChange,
	})
	env.tellWarnings(done.Warnings)
	env.tellOthers(done.Others)
	var costs []estimate.Estimate
	if err == nil && env.dryRun {
		costs = c.estimate(ctx, env, pool, plugins, specs, already, described)
	}
	return errors.Join(c.show(env, done, costs, dry, err), err)
}

// estimate says of the pipelines that are new what their backfill will take. What cannot be estimated is told, and no
// error of a dry run.
func (c *initCommand) estimate(ctx context.Context, env *environment, pool *pgxpool.Pool, plugins *embedders.Pool,
	specs []pipeline.Spec, already []pipeline.Pipeline, described map[string]embed.Description,
) (list []estimate.Estimate) {
	for _, spec := range specs {
		if lookup.Find(already, spec.Name) >= 0 {
			continue
		}
		by, err := plugins.Get(spec.Plugin, spec.Model)
		if err == nil {
			var e estimate.Estimate
			if e, err = estimate.Make(ctx, estimate.Options{
				DB: pool, Spec: spec, About: described[spec.Name], By: by, Price: env.config.PriceOf(spec.Model),
			}); err == nil {
				list = append(list, e)
			}
		}
		if err != nil {
			env.say("no estimate: %s", err)
		}
	}
	return list
}

// made is a step as JSON shows it.
type made struct {
	What string   `json:"what"`
	SQL  []string `json:"sql"`
	Undo []string `json:"undo"`
}

func (c *initCommand) show(env *environment, done setup.Report, costs []estimate.Estimate, dry bool,
	failed error,
) error {
	if c.showSQL {
		return env.printf("%s", script(done.Steps))
	}
	if env.output != "table" {
		list := []made{}
		for _, step := range done.Steps {
			list = append(list, made{step.What, append([]string{}, step.SQL...), append([]string{}, step.Undo...)})
		}
		answer := map[string]any{"dry_run": dry, "steps": list}
		if env.dryRun {
			answer["estimates"] = append([]estimate.Estimate{}, costs...)
		}
		return env.show(answer, func() listing {
			l := listing{header: []string{"what", "sql", "undo"}}
			for _, step := range list {
				l.rows = append(l.rows, []any{step.What, strings.Join(step.SQL, " "), strings.Join(step.Undo, " ")})
			}
			return l
		})
	}
	verb := "made"
	if dry {
		verb = "would make"
	}
	env.tellSteps(done.Steps, verb)
	for i := range costs {
		env.say("%s", costs[i].Line())
	}
	if len(done.Steps) == 0 && failed == nil {
		env.say("nothing to do: everything is there")
	}
	return nil
}

// script writes steps as SQL for psql.
func script(steps []step.Step) string {
	var b strings.Builder
	for _, step := range steps {
		b.WriteString("-- " + wording.OneLine(step.What) + "\n")
		for _, sql := range step.SQL {
			b.WriteString(terminated(sql) + "\n")
		}
	}
	return b.String()
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
