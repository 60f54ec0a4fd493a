package main

import (
	"context"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/app"
	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/manage/imports"
	"github.com/embedsidecar/embedsidecar/internal/manage/verbs"
)

// importFromCommand takes over what another program has.
type importFromCommand struct{ o app.ImportOptions }

func newImportFrom() *command {
	c := &importFromCommand{}
	return &command{
		name: "import", group: groupStart, usage: "take over the pipelines and vectors of another program",
		arguments: strings.Join(imports.Sources, "|"), minArgs: 1, maxArgs: 1,
		description: "Reads what pgai, pgEdge Vectorizer, Supabase's guide to automatic embeddings or LangChain have in " +
			"the database, writes it as a configuration, takes the vectors over as embedsidecar adopt does, and removes " +
			"triggers and queues of that program in the end; tables and views keep their names and columns. What " +
			"cannot be carried over is named, and stays as it is. --dry-run shows all of it, with the statements. " +
			"It can be interrupted and repeated. For teams that move from another program.",
		flags: []cli.Flag{
			own.text("save", &c.o.Save, "`FILE` to write the configuration to", "embedsidecar.yaml"),
			own.toggle("trust", &c.o.Trust, "do not compare a sample of the vectors"),
		},
		settings: []string{config.GroupDatabase, config.GroupEmbedding}, acts: true, run: c.run,
	}
}

func (c *importFromCommand) run(ctx context.Context, env *environment) error {
	c.o.Source = env.args[0]
	if !slices.Contains(imports.Sources, c.o.Source) {
		return misuse("import takes %s, not %q", strings.Join(imports.Sources, ", "), c.o.Source)
	}
	if c.o.Save == "" {
		c.o.Save = "embedsidecar.yaml"
	}
	c.o.DryRun, c.o.By, c.o.Environ = env.dryRun, verbs.Person(), env.environ
	if env.config.Origin("default_model") != "default" {
		c.o.Model = env.config.DefaultModel
	}
	done, failed := app.Import(ctx, env.node(), c.o)
	if failed != nil && len(done.Items) == 0 {
		return failed
	}
	err := env.out.Show(done, func() output.Table {
		return output.Rows(done.Items, []string{"pipeline", "from", "into", "model", ">rows", ">adopted", "result"},
			func(i *app.ImportedItem) []any {
				rows, adopted := any(""), any("")
				if i.Adopted != nil {
					rows, adopted = i.Adopted.Rows, i.Adopted.Taken.Adopted
				}
				return []any{i.Name, i.From, i.Into, i.Model, rows, adopted, importedWord(i, done.DryRun)}
			})
	})
	if env.out.ForPeople() {
		c.tell(env, &done)
	}
	if failed != nil {
		return failed
	}
	return err
}

// importedWord is what became of a pipeline in a word.
func importedWord(i *app.ImportedItem, dry bool) string {
	switch {
	case !i.Carried():
		return "not carried over"
	case i.Adopted == nil:
		return "failed"
	case dry:
		return "would be imported"
	}
	return "imported"
}

// tell tells a person what the table has no room for.
func (c *importFromCommand) tell(env *environment, done *app.Imported) {
	for n := range done.Items {
		i := &done.Items[n]
		if i.Problem != "" {
			env.say("%s is not carried over: %s", i.Name, i.Problem)
		}
		for _, why := range i.Not {
			env.say("%s is not carried over: %s", i.Name, why)
		}
		for _, note := range i.Notes {
			env.say("%s: %s", i.Name, note)
		}
		if i.Adopted != nil && i.Adopted.Sample != nil {
			env.say("%s: %s", i.Name, i.Adopted.Sample.Line())
		}
		if i.Adopted != nil && !done.DryRun && i.Adopted.Left > 0 {
			env.say("%s: %s left to embed", i.Name, wording.Count(i.Adopted.Left, "row"))
		}
		if done.DryRun && i.Carried() {
			for _, sql := range i.Finish {
				env.say("  %s;", sql)
			}
		}
	}
	if len(done.Items) == 0 {
		env.say("%s has no pipelines left", done.Source)
	}
	for _, left := range done.Left {
		env.say("left: %s", left)
	}
	if done.DryRun && done.Config != "" {
		env.say("nothing was changed; the configuration would be:\n%s", done.Config)
		return
	}
	if done.Config != "" {
		env.say("the configuration is in %s: embedsidecar run --config %[1]s", c.o.Save)
	}
}
