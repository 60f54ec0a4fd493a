package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/app"
	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/manage/imports"
	"github.com/embedsidecar/embedsidecar/internal/manage/verbs"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/internal/setup/estimate"
	"github.com/embedsidecar/embedsidecar/internal/setup/step"
)

// initCommand sets up what pipelines need.
type initCommand struct {
	showSQL bool // print the statements for another user to run
	adopt   bool // the database is a copy of another
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
				"for a database that was restored or copied and is to be used on its own: create a new slot and compare every row; keeps vectors that an earlier set-up left in embedding tables"),
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
		Adopt: c.adopt, DryRun: dry, Estimate: env.dryRun,
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

// made is a step in JSON output.
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
		list := lists.Map(done.Steps, func(s step.Step) made {
			return made{s.What, append([]string{}, s.SQL...), append([]string{}, s.Undo...)}
		})
		answer := map[string]any{"dry_run": dry, "steps": list}
		if env.dryRun {
			answer["estimates"] = append([]estimate.Estimate{}, done.Estimates...)
		}
		return output.Each(env.out, answer, list, []string{"what", "sql", "undo"}, func(m *made) []any {
			return []any{m.What, strings.Join(m.SQL, " "), strings.Join(m.Undo, " ")}
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
		env.say("nothing to do: everything exists")
	}
	return nil
}

// tellOthers prints the pipelines that the configuration does not have.
func (e *environment) tellOthers(names []string) {
	for _, name := range names {
		e.say("%s", app.Unconfigured(name))
	}
}

// tellSteps prints what was made and how to undo it.
func (e *environment) tellSteps(steps []step.Step, verb string) {
	for i := range steps {
		for _, line := range steps[i].Lines(verb) {
			e.say("%s", line)
		}
	}
}

// tellSetup prints the report of a set-up.
func (e *environment) tellSetup(done setup.Report) {
	e.tellWarnings(done.Warnings)
	e.tellSteps(done.Steps, "made")
	e.tellOthers(done.Others)
}

// tellWarnings prints each warning of a set-up once: a set-up is retried while a pipeline cannot work.
func (e *environment) tellWarnings(warnings []string) {
	for _, warning := range warnings {
		if !slices.Contains(e.warned, warning) {
			e.say("warning: %s", warning)
			e.warned = append(e.warned, warning)
		}
	}
}

type adoptCommand struct {
	o   app.AdoptOptions
	key string
}

func newAdopt() *command {
	c := &adoptCommand{}
	return &command{
		name: "adopt", group: groupStart, usage: "take over vectors that another program made", arguments: "PIPELINE",
		minArgs: 1, maxArgs: 1,
		description: "Sets up a configured pipeline without embedding rows that already have a vector. Embeds 200 " +
			"texts again and compares the vectors: if one differs (cosine below 0.999), nothing is changed. Then the " +
			"hash of every text is stored, so that later changes are noticed. Rows without a vector, and those " +
			"whose text is newer than their vector (--updated-at), are embedded by embedsidecar run. It can be " +
			"interrupted and repeated. For teams that have paid for their vectors already.",
		flags: []cli.Flag{
			own.text("from", &c.o.From,
				"`COLUMN|TABLE` where the vectors are: a column of the pipeline's table, a table, or TABLE.COLUMN"),
			own.text("from-key", &c.key,
				"`COLUMN,...` columns of that table that hold the key of the pipeline's table (default: its foreign key, or the same names)"),
			own.text("chunk", &c.o.Chunk, "`COLUMN` column of that table with the text of each chunk, for pipelines with chunking"),
			own.text("updated-at", &c.o.UpdatedAt,
				"`COLUMN` column of the pipeline's table with the time of a row's last change: rows with older vectors are embedded again"),
			own.text("embedded-at", &c.o.EmbeddedAt,
				"`COLUMN` column beside the vectors with the time when they were made (default: one with a usual name)"),
			own.toggle("trust", &c.o.Trust, "do not compare a sample"),
		},
		settings: []string{config.GroupDatabase, config.GroupEmbedding}, pipelines: true, acts: true, run: c.run,
	}
}

func (c *adoptCommand) run(ctx context.Context, env *environment) error {
	if c.o.From == "" {
		return misuse("adopt needs --from COLUMN or --from TABLE: where the vectors are")
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

type importFromCommand struct{ o app.ImportOptions }

func newImportFrom() *command {
	c := &importFromCommand{app.ImportOptions{Save: "embedsidecar.yaml"}}
	return &command{
		name: "import", group: groupStart, usage: "take over the pipelines and vectors of another program",
		arguments: strings.Join(imports.Sources, "|"), minArgs: 1, maxArgs: 1,
		description: "Reads what pgai, pgEdge Vectorizer, Supabase's guide to automatic embeddings or LangChain have in " +
			"the database, writes it as a configuration, takes the vectors over as embedsidecar adopt does, and " +
			"removes triggers and queues of that program at the end; tables and views keep their names and " +
			"columns. Reports what it cannot carry over, and leaves that unchanged. --dry-run shows all of it, " +
			"with the statements. It can be interrupted and repeated. For teams that move from another program.",
		flags: []cli.Flag{
			own.text("save", &c.o.Save, "`FILE` file to write the configuration to"),
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
	c.o.DryRun, c.o.By, c.o.Environ = env.dryRun, verbs.Person(), env.environ
	if env.config.Origin("default_model") != "default" {
		c.o.Model = env.config.DefaultModel
	}
	done, failed := app.Import(ctx, env.node(), c.o)
	if failed != nil && len(done.Items) == 0 {
		return failed
	}
	columns := []string{"pipeline", "from", "into", "model", ">rows", ">adopted", "result"}
	err := output.Each(env.out, done, done.Items, columns, func(i *app.ImportedItem) []any {
		rows, adopted := any(""), any("")
		if i.Adopted != nil {
			rows, adopted = i.Adopted.Rows, i.Adopted.Taken.Adopted
		}
		return []any{i.Name, i.From, i.Into, i.Model, rows, adopted, importedWord(i, done.DryRun)}
	})
	if env.out.ForPeople() {
		c.tell(env, &done, failed != nil)
	}
	return cmp.Or(failed, err)
}

// importedWord is the result for a pipeline in a few words.
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

// tell prints what the table has no room for.
func (c *importFromCommand) tell(env *environment, done *app.Imported, failed bool) {
	for n := range done.Items {
		i := &done.Items[n]
		if i.Problem != "" {
			env.say("%s was not imported: %s", i.Name, i.Problem)
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
	switch {
	case failed:
		env.say("fix that and repeat the command: imported pipelines stay")
	case done.Config != "":
		env.say("the configuration is in %s: embedsidecar run --config %[1]s", c.o.Save)
	}
}
