package main

import (
	"context"
	"errors"

	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/status/check"
	"github.com/embedsidecar/embedsidecar/internal/status/preflight"
)

func newCheck() *command {
	return &command{
		name: "check", aliases: []string{"doctor"}, group: groupStart,
		usage: "report what works, what does not, and how to fix it",
		description: "Changes nothing. Ends with status 4 if something would not work. For a first look before run, and " +
			"after every change of the server or the configuration.",
		reach:     eachDatabase,
		settings:  []string{config.GroupDatabase, config.GroupEmbedding},
		pipelines: true,
		run:       checkAll,
	}
}

func checkAll(ctx context.Context, env *environment) error {
	pool, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	list, err := preflight.Check(ctx, pool, env.embedders())
	if list == nil {
		return err
	}
	return errors.Join(showFindings(env, list), preflight.Verdict(list), err)
}

func showFindings(env *environment, list []check.Finding) error {
	if !env.out.ForPeople() {
		return output.List(env.out, "checks", list, []string{"check", "status", "detail"}, func(f *check.Finding) []any {
			return []any{f.Name, f.Status, f.Detail}
		})
	}
	for _, f := range list {
		if f.Status == check.OK && env.quiet {
			continue
		}
		// A line each, because details are sentences.
		if err := env.printf("%-5s  %s: %s\n", f.Status, wording.OneLine(f.Name),
			env.redact.Text(wording.OneLine(f.Detail))); err != nil {
			return err
		}
		for _, hint := range f.Hint {
			if err := env.printf("         %s\n", env.redact.Text(wording.OneLine(hint))); err != nil {
				return err
			}
		}
	}
	return nil
}
