package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/app"
	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/manage/verbs"
)

// adoptCommand takes over vectors that are there.
type adoptCommand struct {
	o   app.AdoptOptions
	key string
}

func newAdopt() *command {
	c := &adoptCommand{}
	return &command{
		name: "adopt", group: groupStart, usage: "take over vectors that another program made", arguments: "PIPELINE",
		minArgs: 1, maxArgs: 1,
		description: "Sets up a configured pipeline without embedding what has a vector already. 200 texts are embedded again: " +
			"each must have the vector that is there (cosine of at least 0.999), or nothing is changed. Then the " +
			"hash of every text is stored, so that later changes are noticed. Rows without a vector, and those " +
			"whose text is newer than their vector (--updated-at), are embedded by embedsidecar run. It can be " +
			"interrupted and repeated. For teams that have paid for their vectors already.",
		flags: []cli.Flag{
			own.text("from", &c.o.From,
				"`COLUMN|TABLE` where the vectors are: a column of the pipeline's table, a table, or TABLE.COLUMN"),
			own.text("from-key", &c.key,
				"`COLUMN,...` of that table with the key of the pipeline's (default: its foreign key, or the same names)"),
			own.text("chunk", &c.o.Chunk, "`COLUMN` of that table with the text of each chunk, for pipelines with chunking"),
			own.text("updated-at", &c.o.UpdatedAt,
				"`COLUMN` of the pipeline's table that says when a row was changed: older vectors are embedded again"),
			own.text("embedded-at", &c.o.EmbeddedAt,
				"`COLUMN` beside the vectors that says when they were made (default: one with a usual name)"),
			own.toggle("trust", &c.o.Trust, "do not compare a sample"),
		},
		settings: []string{config.GroupDatabase, config.GroupEmbedding}, pipelines: true, acts: true, run: c.run,
	}
}

func (c *adoptCommand) run(ctx context.Context, env *environment) error {
	if c.o.From == "" {
		return misuse("adopt wants --from COLUMN or --from TABLE: where the vectors are")
	}
	c.o.Pipeline, c.o.DryRun, c.o.By, c.o.Key = env.args[0], env.dryRun, verbs.Person(),
		strings.FieldsFunc(c.key, func(r rune) bool { return r == ',' || r == ' ' })
	if env.config.Origin("default_model") == "--model" {
		c.o.Model = env.config.DefaultModel
	}
	done, err := app.Adopt(ctx, env.node(), c.o)
	env.tellWarnings(done.Warnings)
	if env.out.ForPeople() {
		env.tellSteps(done.Steps, "made")
		if done.Sample != nil {
			env.say("%s", done.Sample.Line())
		}
	}
	if err != nil {
		return err
	}
	err = output.List(env.out, "pipelines", []app.Adopted{done}, []string{
		"pipeline", ">rows", ">adopted", ">known", ">stale", ">without vector", ">without text", ">refused",
	}, func(d *app.Adopted) []any {
		return []any{d.Pipeline, d.Rows, d.Adopted, d.Known, d.Stale, d.Missing, d.Empty, d.Taken.Refused}
	})
	if env.out.ForPeople() {
		env.say("%s", adoptedLine(&done))
	}
	return err
}

// adoptedLine says what is left to do.
func adoptedLine(d *app.Adopted) string {
	switch {
	case d.DryRun:
		return fmt.Sprintf("nothing was changed; %s would be adopted", wording.Count(d.Adopted, "row"))
	case d.Left == 0:
		return "nothing is left to embed; embedsidecar run follows changes"
	}
	return wording.Count(d.Left, "row") + " left to embed: embedsidecar run does that"
}
