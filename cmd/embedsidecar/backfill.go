package main

import (
	"context"
	"fmt"

	"github.com/embedsidecar/embedsidecar/internal/app"
	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/manage/verbs"
	"github.com/embedsidecar/embedsidecar/internal/setup/estimate"
)

// newEstimated makes the command of a verb whose dry run says what it would take.
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

// taking is what a backfill would take, as a person reads it.
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
