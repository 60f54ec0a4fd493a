package main

import (
	"context"
	"errors"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/search/query"
)

// embedCommand embeds texts of the command line.
type embedCommand struct {
	kind string
}

func newEmbed() *command {
	c := &embedCommand{kind: "document"}
	return &command{
		name: "embed", group: groupSearch, usage: "print the vectors of texts", arguments: "TEXT...", minArgs: 1, maxArgs: -1,
		description: "Prints one vector per line, as pgvector writes them. The argument - reads more texts from standard " +
			"input, one per line. A text without anything to embed has no vector: its line is empty. For queries " +
			"of your own, and for trying a model.",
		flags: []cli.Flag{
			own.text("kind", &c.kind, "`KIND` document or query: what the text is to the model"),
		},
		settings: []string{config.GroupEmbedding},
		run:      c.run,
	}
}

func (c *embedCommand) run(ctx context.Context, env *environment) error {
	kind := embed.Document
	switch c.kind {
	case "document":
	case "query":
		kind = embed.Query
	default:
		return misuse("--kind: expected document or query, not %q", c.kind)
	}
	texts, err := query.Texts(env.args, env.stdin)
	if err != nil {
		return err
	}
	vectors, err := query.Embed(ctx, env.embedders(), kind, texts)
	if vectors == nil {
		return err
	}
	err = errors.Join(vectors.Failed, err)
	for _, remark := range vectors.Remarks {
		env.say("%s", remark)
	}
	if env.out.ForPeople() {
		var b strings.Builder
		for i := range vectors.Embeddings {
			b.WriteString(vectors.Embeddings[i].Text + "\n")
		}
		return errors.Join(env.printf("%s", b.String()), err)
	}
	env.out.Compact = true
	columns := []string{"index", "tokens", "truncated", "empty", "error", "vector"}
	return errors.Join(env.out.Show(vectors, func() output.Table {
		return output.Rows(vectors.Embeddings, columns, func(v *query.Embedding) []any {
			return []any{v.Index, v.Tokens, v.Truncated, v.Empty, v.Error, v.Text}
		})
	}), err)
}
