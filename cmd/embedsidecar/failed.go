package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// failedCommand names the rows that could not be embedded.
type failedCommand struct{ limit int }

func newFailed() *command {
	c := &failedCommand{limit: 100}
	return &command{
		name: "failed", group: groupObserve, usage: "name the rows that could not be embedded, and why",
		arguments: "[PIPELINE...]", maxArgs: -1,
		description: "Lists dead letters, which nobody tries again by himself, and rows that failed and will be tried again, with key, class, code and message. embedsidecar retry PIPELINE KEY tries one again. No text of a row is shown.",
		flags: []cli.Flag{
			own.number("limit", &c.limit, "`N` rows of each pipeline at most"),
		},
		settings: databaseGroups, run: c.run,
	}
}

func (c *failedCommand) run(ctx context.Context, env *environment) error {
	if c.limit <= 0 {
		return misuse("--limit: expected a number above 0")
	}
	a, done, err := env.actions(ctx)
	if err != nil {
		return err
	}
	defer done()
	list, err := a.Failed(ctx, env.args, c.limit, env.redact.Text)
	if err != nil {
		return err
	}
	columns := []string{"pipeline", "key", "state", "class", "code", ">tries", ">age", ">next try", "message"}
	return output.List(env.out, "rows", list, columns, func(f *report.FailedRow) []any {
		return []any{
			f.Pipeline, f.Key, f.State, f.Class, f.Code, f.Attempt, wording.Age(f.AgeSeconds), f.NextTry(), f.Message,
		}
	})
}
