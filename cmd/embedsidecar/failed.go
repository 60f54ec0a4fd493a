package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/report"
	"github.com/embedsidecar/embedsidecar/internal/wording"
)

// failedCommand names the rows that could not be embedded.
type failedCommand struct{ limit int }

func newFailed() *command {
	c := &failedCommand{}
	return &command{
		name: "failed", group: groupObserve, usage: "name the rows that could not be embedded, and why",
		arguments: "[PIPELINE...]", maxArgs: -1,
		description: "Lists dead letters, which nobody tries again by himself, and rows that failed and will be tried again, with key, class, code and message. embedsidecar retry PIPELINE KEY tries one again. No text of a row is shown.",
		flags: []cli.Flag{
			&cli.IntFlag{Name: "limit", Value: 100, Destination: &c.limit, Usage: "`N` rows of each pipeline at most"},
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
	return env.show(map[string][]report.FailedRow{"rows": list}, func() listing {
		l := listing{
			header: []string{"pipeline", "key", "state", "class", "code", "tries", "age", "next try", "message"},
			right:  []int{5, 6, 7},
		}
		for _, f := range list {
			l.rows = append(l.rows, []any{
				f.Pipeline, f.Key, f.State, f.Class, f.Code, f.Attempt, wording.Age(f.AgeSeconds), f.NextTry(),
				f.Message,
			})
		}
		return l
	})
}
