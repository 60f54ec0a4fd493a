package main

import (
	"context"
	"errors"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/manage/verbs"
	"github.com/embedsidecar/embedsidecar/internal/named/embedders"
)

func newVerify() *command {
	var o verbs.VerifyOptions
	return &command{
		name: "verify", group: groupObserve, usage: "prove that every vector is that of its row's text",
		arguments: "[PIPELINE...]", maxArgs: -1,
		description: "Compares the hash of every row's text with that of its vector. With --deep it also embeds a sample " +
			"again. Ends with status 4 if a vector is missing, stale or orphaned, or if a row cannot be read " +
			"because its text or filter fails: that row is named, and the others are checked. With --repair the " +
			"findings are queued for running sidecars, and only what they cannot repair counts; embedsidecar " +
			"wait --caught-up waits for them. For proof after an incident or a roll-out.",
		flags: []cli.Flag{
			own.number("deep", &o.Deep, "`N` rows of each pipeline to embed again and compare", "0"),
			own.toggle("repair", &o.Repair,
				"queue the findings: rows to re-check, orphaned vectors to remove, and vectors that differ to compute again"),
		},
		reach:    eachDatabase,
		settings: []string{config.GroupDatabase, config.GroupEmbedding},
		run: func(ctx context.Context, env *environment) (err error) {
			if o.Deep < 0 {
				return misuse("--deep: expected a number that is not negative, not %d", o.Deep)
			}
			a, done, err := env.actor(ctx)
			if err != nil {
				return err
			}
			defer done()
			o.Plugins, o.Log = embedders.New(env.embedders()), env.log
			defer func() { err = errors.Join(err, o.Plugins.Close()) }()
			list, err := a.Verify(ctx, env.args, o)
			if err != nil {
				return err
			}
			if err := showVerified(env, list); err != nil {
				return err
			}
			return verbs.Bad(list)
		},
	}
}

func showVerified(env *environment, list []verbs.Verified) error {
	columns := []string{
		"pipeline", ">rows", ">with text", ">covered", ">ignored", ">skipped", ">missing", ">stale", ">orphans", ">refused",
		">sampled", ">differ", "verdict",
	}
	err := output.List(env.out, "pipelines", list, columns, func(v *verbs.Verified) []any {
		return []any{
			v.Pipeline, v.Rows, v.Wanted, v.Covered, v.Ignored, v.Skipped, v.Missing, v.Stale, v.Orphans, v.Refused,
			v.Sampled, v.Differ, v.Verdict(),
		}
	})
	if env.out.ForPeople() {
		for _, v := range list {
			for _, example := range v.Examples {
				env.say("%s, row %s", v.Pipeline, wording.OneLine(example))
			}
		}
	}
	return err
}
