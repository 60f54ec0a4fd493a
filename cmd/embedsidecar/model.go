package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/app"
	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/manage/generations"
	"github.com/embedsidecar/embedsidecar/internal/manage/verbs"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/search/compare"
)

// modelChange makes the next generation of a pipeline, or estimates it.
type modelChange struct{ o app.ModelChange }

func newModelChange() *command {
	c := &modelChange{}
	return &command{
		name: "change", group: groupOperate, usage: "make the next generation of a pipeline, with another model",
		arguments: "PIPELINE", minArgs: 1, maxArgs: 1,
		description: "Creates a second destination beside the present one. A running sidecar fills it, with live " +
			"changes first. Searches continue with the present vectors; both are kept up to date. model switch " +
			"makes the next generation serve. Needs the owner of the source table. --dry-run prints rows, tokens (by the " +
			"new model's tokenizer), time, price (if the model has one in the file) and space, what would be created, and " +
			"what depends on the present vectors. For that it reads a sample of the rows and embeds a few, unless that " +
			"costs money. For a better model without an interruption of searches.",
		flags: []cli.Flag{
			own.text("to", &c.o.To.Model, "`MODEL` model to change to", "the one of the configuration"),
			own.text("to-plugin", &c.o.To.Plugin, "`PLUGIN` plugin that runs the model", "the one of the configuration"),
			own.toggle("beside", &c.o.Beside,
				"also take the text, chunking and type that the configuration has for the pipeline"),
		},
		settings: []string{config.GroupDatabase, config.GroupEmbedding}, acts: true, run: c.run,
	}
}

func (c *modelChange) run(ctx context.Context, env *environment) error {
	c.o.Pipeline, c.o.DryRun, c.o.Estimate = env.args[0], env.dryRun, env.dryRun
	done, err := app.ChangeModel(ctx, env.node(), c.o)
	env.tellWarnings(done.Warnings)
	if err != nil {
		return err
	}
	if env.dryRun {
		plan := done.Plan()
		return env.showModelPlan(&plan)
	}
	if env.out.ForPeople() {
		for i := range done.Steps {
			done.Steps[i].Undo = nil // one command undoes all of them
		}
		env.tellSteps(done.Steps, "made")
		name := health.Argument(done.Pipeline)
		env.say("  undo: embedsidecar model drop-old %s", name)
		env.say("next: embedsidecar model status %s says when it can serve, embedsidecar model switch %s switches to it", name, name)
	}
	result := "made"
	if done.Next.Existing {
		result = "already_under_way"
	}
	return env.showModelResult(done.Pipeline, result)
}

// showModelResult prints the result for a pipeline.
func (e *environment) showModelResult(name, result string) error {
	type answer struct {
		Pipeline string `json:"pipeline"`
		Result   string `json:"result"`
	}
	return output.One(e.out, answer{name, result}, []string{"pipeline", "result"}, name, result)
}

func (e *environment) showModelPlan(p *generations.Plan) error {
	return e.out.Show(p, func() output.Table {
		t := output.Table{Columns: []string{"what", "is"}, Rows: [][]any{
			{"model", fmt.Sprintf("%s, then %s (%d dimensions)", p.From, p.To, p.Dims)}, {"takes", p.Words},
		}}
		for what, list := range map[string][]string{"makes": p.Makes, "locks": p.Locks, "depends": p.Depends} {
			for _, one := range list {
				t.Rows = append(t.Rows, []any{what, one})
			}
		}
		slices.SortStableFunc(t.Rows[2:], func(a, b []any) int { return strings.Compare(fmt.Sprint(b[0]), fmt.Sprint(a[0])) })
		return t
	})
}

// modelCompare sends the same queries to both generations of a pipeline.
type modelCompare struct{ queries string }

func newModelCompare() *command {
	c := &modelCompare{}
	return &command{
		name: "compare", group: groupOperate, usage: "send the same queries to both generations of a pipeline",
		arguments: "PIPELINE", minArgs: 1, maxArgs: 1,
		description: "Prints how many of the first ten rows both find, the correlation of their ranks, latencies and " +
			"sizes, and the five queries whose results differ most, side by side. The queries are texts of rows, or " +
			"those of a file: each line is a text, followed by tabs and the keys of rows that should be found, or " +
			"a JSON object with text and keys. With keys it prints recall@10 and nDCG@10 of both. For deciding " +
			"whether to switch.",
		flags: []cli.Flag{own.text("queries", &c.queries, "`FILE` file of queries; - reads standard input",
			"texts of rows")},
		settings: []string{config.GroupDatabase, config.GroupEmbedding}, run: c.run,
	}
}

func (c *modelCompare) run(ctx context.Context, env *environment) error {
	var questions []compare.Question
	if c.queries != "" {
		from := env.stdin
		if c.queries != "-" {
			file, err := os.Open(c.queries)
			if err != nil {
				return problem.New(problem.Usage, err)
			}
			defer func() { _ = file.Close() }() // it was only read
			from = file
		}
		var err error
		if questions, err = compare.ReadQuestions(from); err != nil {
			return misuse("--queries: %v", err)
		}
		if len(questions) == 0 {
			return misuse("--queries: %s has no question", c.queries)
		}
	}
	r, err := app.CompareModel(ctx, env.node(), env.args[0], questions)
	if err != nil {
		return err
	}
	if env.out.ForPeople() {
		defer env.tellPairs(&r)
	}
	return env.out.Show(r, func() output.Table {
		t := output.Table{Columns: []string{"what", ">" + r.Sides[0].Model, ">" + r.Sides[1].Model}}
		add := func(what string, of func(s *compare.Side) string) {
			t.Rows = append(t.Rows, []any{what, of(&r.Sides[0]), of(&r.Sides[1])})
		}
		add("generation", func(s *compare.Side) string { return s.Role })
		add("p50 of a question", func(s *compare.Side) string { return fmt.Sprintf("%.1f ms", s.P50) })
		add("p99 of a question", func(s *compare.Side) string { return fmt.Sprintf("%.1f ms", s.P99) })
		add("size", func(s *compare.Side) string { return size(s.Bytes) })
		if r.Labelled > 0 {
			add("recall@10", func(s *compare.Side) string { return fmt.Sprintf("%.3f", *s.Found) })
			add("nDCG@10", func(s *compare.Side) string { return fmt.Sprintf("%.3f", *s.NDCG) })
		}
		t.Rows = append(t.Rows, []any{"overlap of 10", fmt.Sprintf("%.3f", r.Overlap), ""},
			[]any{"rank correlation", fmt.Sprintf("%.3f", r.Correlation), ""}, []any{"questions", r.Questions, ""})
		return t
	})
}

// tellPairs prints the queries whose results differ, side by side.
func (e *environment) tellPairs(r *compare.Result) {
	for _, p := range r.Pairs {
		_ = e.printf("\n%s (overlap %.1f)\n", p.Question, p.Overlap)
		for i := range max(len(p.Rows[0]), len(p.Rows[1])) {
			line := [2]string{}
			for side := range line {
				if i < len(p.Rows[side]) {
					row := p.Rows[side][i]
					line[side] = strings.TrimSpace(row.Key + " " + row.Text)
				}
				line[side] = string([]rune(line[side])[:min(half, len([]rune(line[side])))])
			}
			_ = e.printf("  %-*s  %s\n", half, line[0], line[1])
		}
	}
}

// half is the width of one side of a comparison.
const half = 50

// modelAct switches, rolls back or drops a generation.
type modelAct struct {
	do    *generations.Act
	force bool
}

func newModelAct(do *generations.Act) *command {
	c := &modelAct{do: do}
	one := &command{
		name: do.Name, group: groupOperate, usage: do.Usage, arguments: "PIPELINE", minArgs: 1, maxArgs: 1,
		description: do.Description, settings: databaseGroups, acts: true, run: withPool(c.run),
	}
	if do.Force {
		one.flags = []cli.Flag{own.toggle("force", &c.force,
			"even if rows of it are stale or failed, or an index is missing")}
	}
	return one
}

func (c *modelAct) run(ctx context.Context, env *environment, pool *pgxpool.Pool) error {
	result, err := generations.Do(ctx, pool, generations.Request{
		Do: c.do, Pipeline: env.args[0], Force: c.force, DryRun: env.dryRun, By: verbs.Person(),
	})
	if err != nil {
		return err
	}
	return env.showModelResult(env.args[0], result)
}

func newModelStatus() *command {
	return &command{
		name: "status", group: groupOperate, usage: "show the progress of a model change", arguments: "[PIPELINE]",
		maxArgs: 1,
		description: "Lists the generations of a pipeline, or of all: the one that serves, and the next or the previous " +
			"one, with what it lacks to serve. For following a change, and for finding out which model serves.",
		settings: databaseGroups,
		run: withPool(func(ctx context.Context, env *environment, pool *pgxpool.Pool) error {
			name := strings.Join(env.args, "") // at most one
			list, err := generations.States(ctx, pool, name)
			if err != nil {
				return err
			}
			columns := []string{
				"pipeline", "generation", "model", "differs in", ">dims", "destination", ">done", "state", ">size", "lacks",
			}
			return output.List(env.out, "generations", list, columns, func(g *generations.Generation) []any {
				return []any{
					g.Pipeline, g.Role, g.Model, words(g.Differs), g.Dims, g.Destination, fmt.Sprintf("%.0f %%", 100*g.Share()), g.State, size(g.Bytes),
					g.Words(),
				}
			})
		}),
	}
}

func words(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// size formats a number of bytes for people.
func size(bytes *int64) string {
	if bytes == nil {
		return "-"
	}
	return humanize.IBytes(uint64(max(*bytes, 0)))
}
