package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/app"
	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/manage/verbs"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/setup/estimate"
)

// verbCommand executes a verb. Its flags and output follow from the verb.
type verbCommand struct {
	taskFilter

	verb    *verbs.Verb
	time    time.Duration // --for: how long to work outside the hours; below 0: not given
	waiting bool          // prioritize all pending rows
	at      string        // when re-queued rows become due
}

func newVerb(v *verbs.Verb) *command {
	c := &verbCommand{verb: v, time: -1}
	one := &command{
		name: v.Name, group: groupOperate, usage: v.Usage, arguments: v.Arguments, minArgs: v.MinArgs, maxArgs: -1,
		description: strings.Join(strings.Fields(v.Description), " "), settings: databaseGroups, acts: true, run: c.run,
	}
	switch {
	case v == verbs.ClearHistory:
		one.flags = []cli.Flag{own.duration("older-than", &c.OlderThan, "`DURATION` only tasks that ended longer ago than this", "any age")}
	case v.Has(verbs.Class):
		one.flags = c.flags(false)
	case v.Has(verbs.For):
		one.flags = []cli.Flag{own.duration("for", &c.time,
			"work for `DURATION` whatever the hours of the pipeline are; 0 ends that", "within its hours")}
	case v == verbs.Requeue:
		one.flags = []cli.Flag{
			own.text("at", &c.at, "`TIME` time from which the rows are processed, such as 2026-12-24T18:00:00Z"),
			own.duration("older-than", &c.OlderThan, "`DURATION` only changes older than this", "any age"),
		}
	case v == verbs.Prioritise:
		one.flags = []cli.Flag{own.toggle("waiting", &c.waiting, "all rows of the pipeline that wait")}
	}
	return one
}

// everyPipeline is printed for the switch over all pipelines.
const everyPipeline = "(all)"

func (c *verbCommand) run(ctx context.Context, env *environment) error {
	v, words := c.verb, env.args
	filter, err := c.checked()
	if err != nil {
		return err
	}
	r := verbs.Request{Class: filter.Class, Code: filter.Code, OlderThan: filter.OlderThan, DryRun: env.dryRun}
	if c.at != "" {
		if r.At, err = time.Parse(time.RFC3339, c.at); err != nil {
			return misuse("--at: expected a time such as 2026-12-24T18:00:00Z, not %q", c.at)
		}
	}
	switch {
	case c.time < -1:
		return misuse("--for: expected a duration that is not negative")
	case c.time >= 0:
		r.For = &c.time
	case v == verbs.Prioritise:
		r.Priority = words[1]
		words = append([]string{words[0]}, words[2:]...)
		switch {
		case c.waiting && len(words) > 1:
			return misuse("--waiting means all rows that wait: give it, or keys")
		case !c.waiting && len(words) == 1:
			v = verbs.SetPriority
		}
	}
	a, done, err := env.actor(ctx)
	if err != nil {
		return err
	}
	defer done()
	var behind []string // keys, if the verb takes one pipeline
	if v.One && len(words) > 0 {
		words, behind = words[:1], words[1:]
	}
	names, keys, err := a.Meant(ctx, words)
	if err != nil {
		return err
	}
	if r.Keys = append(append(keys, behind...), filter.Keys...); v.Whole() && len(words) == 0 {
		names = nil
	}
	list, err := a.Do(ctx, v, names, r)
	if err != nil {
		return err
	}
	return env.showOutcomes(list)
}

// showOutcomes prints the results for pipelines.
func (e *environment) showOutcomes(list []verbs.Outcome) error {
	for _, o := range list {
		for _, name := range o.Stay {
			e.say("pipeline %s stays paused: embedsidecar resume %s", name, health.Argument(name))
		}
		for _, key := range o.Unknown {
			e.say("warning: pipeline %s knows no row with the key %q; keys are written as tasks list, search and verify print them",
				o.Pipeline, key)
		}
	}
	return output.List(e.out, "pipelines", list, []string{"pipeline", "result", ">rows"}, func(o *verbs.Outcome) []any {
		rows := ""
		if o.Rows > 0 {
			rows = fmt.Sprint(o.Rows)
		}
		return []any{cmp.Or(o.Pipeline, everyPipeline), o.Result, rows}
	})
}

// newEstimated makes the command of a verb whose dry run estimates the work.
func newEstimated(v *verbs.Verb) *command {
	c := newVerb(v)
	c.settings = []string{config.GroupDatabase, config.GroupEmbedding}
	plain := c.run
	c.run = func(ctx context.Context, env *environment) error {
		if v == verbs.Reembed && !env.dryRun {
			return plain(ctx, env)
		}
		return backfill(ctx, env, v)
	}
	return c
}

func backfill(ctx context.Context, env *environment, v *verbs.Verb) error {
	list, without, err := app.Backfill(ctx, env.node(), v, verbs.Person(), env.args, env.dryRun)
	if err != nil {
		return err
	}
	for i := range list {
		if e := list[i].Estimate; e != nil && e.Cut > 0 {
			env.say("%s: %d of %d texts are longer than the %d tokens that the model takes, and are cut: "+
				"chunking: {strategy: tokens} embeds all of each", e.Pipeline, e.Cut, e.Texts, e.MaxTokens)
		}
	}
	for _, why := range without {
		env.say("no estimate: %s", database.Words(why))
	}
	columns := []string{"pipeline", "result"}
	if env.dryRun {
		columns = append(columns, ">rows", ">to embed", ">tokens", ">time", ">price", ">on disk")
	}
	return output.List(env.out, "pipelines", list, columns, func(b *app.Backfilled) []any {
		row := []any{b.Pipeline, b.Result}
		if env.dryRun && b.Estimate == nil && b.Rows > 0 {
			return append(row, b.Rows, "", "", "", "", "")
		}
		if env.dryRun {
			row = append(row, taking(b.Estimate)...)
		}
		return row
	})
}

func taking(e *estimate.Estimate) []any {
	if e == nil {
		return []any{"", "", "", "", "", ""}
	}
	tokens, time, price := fmt.Sprint(e.Tokens), "", ""
	if e.TokensGuessed {
		tokens += " (guessed)"
	}
	if e.Seconds != nil {
		time = wording.Age(*e.Seconds)
	}
	if e.Price != nil {
		price = wording.Money(*e.Price, e.Currency)
	}
	return []any{e.Rows, e.Texts, tokens, time, price, wording.Size(e.DiskBytes)}
}
