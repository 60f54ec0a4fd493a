package main

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/manage/explain"
	"github.com/embedsidecar/embedsidecar/internal/named/embedders"
)

func newExplain() *command {
	text, tokens := false, false
	return &command{
		name: "explain", group: groupObserve, usage: "explain the state of a row, from its change to its vector",
		arguments: "PIPELINE KEY...", minArgs: 2, maxArgs: -1,
		description: "Shows whether the row exists and passes the filter, its open task, what was last written " +
			"for it, whether the vector is that of its current text, and what to do next. Reads the database only " +
			"and changes nothing. Shows no text of the row without --text. Keys are written as tasks list, " +
			"search and verify print them. For a row that a search does not find.",
		flags: []cli.Flag{
			own.toggle("text", &text, "also show the text of the row"),
			own.toggle("tokens", &tokens,
				"start the pipeline's model, and print how many tokens the text has and whether some are cut off"),
		},
		settings: []string{config.GroupDatabase, config.GroupEmbedding},
		run: withPool(func(ctx context.Context, env *environment, pool *pgxpool.Pool) (err error) {
			o := explain.Options{Text: text, Redact: env.redact.Text}
			if tokens {
				plugins := embedders.New(env.embedders())
				defer func() { err = errors.Join(err, plugins.Close()) }()
				o.Count = plugins.CountTokens
			}
			list, err := explain.Read(ctx, pool, env.args[0], env.args[1:], o)
			if err != nil {
				return err
			}
			if err := showStories(env, list); err != nil {
				return err
			}
			return explain.Unknown(list)
		}),
	}
}

func showStories(env *environment, list []explain.Story) error {
	if !env.out.ForPeople() {
		columns := []string{"pipeline", "key", "verdict", "sentence", "hints"}
		return output.List(env.out, "rows", list, columns, func(s *explain.Story) []any {
			return []any{s.Pipeline, s.Key, s.Verdict.Code, s.Verdict.Sentence, wording.Joined(s.Verdict.Hints)}
		})
	}
	for i := range list {
		for k, line := range list[i].Lines() {
			indent := ""
			if k > 0 {
				indent = "  "
			}
			if err := env.printf("%s%s\n", indent, wording.OneLine(line)); err != nil {
				return err
			}
		}
	}
	return nil
}
