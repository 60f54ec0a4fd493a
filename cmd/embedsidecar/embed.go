package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// embedCommand embeds texts of the command line.
type embedCommand struct {
	kind string
}

func newEmbed() *command {
	c := &embedCommand{}
	return &command{
		name: "embed", group: groupSearch, usage: "print the vectors of texts", arguments: "TEXT...", minArgs: 1, maxArgs: -1,
		description: "Prints one vector a line, as pgvector writes them. The text - reads further texts from standard input, one a line. A text without anything to embed has no vector: its line is empty.",
		flags: []cli.Flag{
			&cli.StringFlag{
				Name: "kind", Destination: &c.kind, Value: "document",
				Usage: "`KIND` document or query: what the text is to the model",
			},
		},
		settings: []string{config.GroupEmbedding},
		run:      c.run,
	}
}

func (c *embedCommand) run(ctx context.Context, env *environment) (err error) {
	kind := embed.Document
	switch c.kind {
	case "document":
	case "query":
		kind = embed.Query
	default:
		return misuse("--kind: expected document or query, not %q", c.kind)
	}
	texts, err := env.texts()
	if err != nil {
		return err
	}
	embedder, _, err := env.embedders().Runner("", "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, embedder.Close()) }()
	about, err := embedder.Describe(ctx)
	if err != nil {
		return err
	}
	results, err := embed.All(ctx, embedder, about, kind, texts)
	if err != nil {
		return err
	}
	return printVectors(env, about, results)
}

// texts returns the arguments, with the lines of standard input in place of "-".
func (e *environment) texts() ([]string, error) {
	var texts []string
	for _, arg := range e.args {
		if arg != "-" {
			texts = append(texts, arg)
			continue
		}
		lines := bufio.NewReader(e.stdin)
		for {
			line, err := lines.ReadString('\n')
			if line != "" {
				texts = append(texts, strings.TrimRight(line, "\r\n"))
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("read texts from standard input: %w", err)
			}
		}
	}
	for i, text := range texts {
		if strings.ToValidUTF8(text, "") != text {
			return nil, misuse("text %d is not UTF-8", i+1)
		}
	}
	return texts, nil
}

// printed is one text's answer as JSON and YAML show it. The text itself is not repeated.
type printed struct {
	Index     int       `json:"index"`
	Tokens    int       `json:"tokens,omitempty"`
	Truncated bool      `json:"truncated"`
	Empty     bool      `json:"empty"`
	Error     string    `json:"error,omitempty"`
	Indices   []uint32  `json:"indices,omitempty"` // of a sparse model: the places of the vector's numbers, from 0
	Vector    []float32 `json:"vector"`
}

func printVectors(env *environment, about embed.Description, results []embed.Result) error {
	list := make([]printed, len(results))
	var failed []error
	for i, r := range results {
		list[i] = printed{Index: i, Tokens: r.Tokens, Truncated: r.Truncated, Empty: r.Empty, Vector: r.Vector}
		if about.Sparse && r.Vector != nil {
			list[i].Indices, list[i].Vector = embed.SplitPairs(r.Vector)
		}
		switch {
		case r.Err != nil:
			list[i].Error = r.Err.Error()
			failed = append(failed, fmt.Errorf("text %d: %w", i+1, r.Err))
		case r.Empty:
			env.say("text %d holds nothing to embed: it has no vector", i+1)
		case r.Truncated:
			if about.MaxTokens == 0 {
				env.say("text %d is longer than the model takes: it was cut", i+1)
				continue
			}
			env.say("text %d is longer than the %d tokens the model takes: it was cut", i+1, about.MaxTokens)
		}
	}
	var err error
	if env.output == "table" {
		var b strings.Builder
		for _, r := range results {
			b.WriteString(vectorText(about, r.Vector))
			b.WriteByte('\n')
		}
		err = env.printf("%s", b.String())
	} else {
		type document struct {
			Plugin      string    `json:"plugin"`
			Model       string    `json:"model"`
			Fingerprint string    `json:"fingerprint"`
			Dims        int       `json:"dims"`
			Embeddings  []printed `json:"embeddings"`
		}
		env.compact = true
		err = env.show(document{about.Plugin, about.Model, about.Fingerprint, about.Dims, list}, func() listing {
			l := listing{header: []string{"index", "tokens", "truncated", "empty", "error", "vector"}}
			for i, p := range list {
				l.rows = append(l.rows, []any{
					p.Index, p.Tokens, p.Truncated, p.Empty, p.Error,
					vectorText(about, results[i].Vector),
				})
			}
			return l
		})
	}
	if len(failed) > 0 {
		return errors.Join(err, fail(exitFailed, errors.Join(failed...)))
	}
	return err
}

// vectorText writes a vector as pgvector reads it; "" for none.
func vectorText(about embed.Description, v []float32) string {
	if v == nil {
		return ""
	}
	return pipeline.VectorText(about.Sparse, about.Dims, v)
}
