package main

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/status/check"
	"github.com/embedsidecar/embedsidecar/internal/status/ops"
	"github.com/embedsidecar/embedsidecar/internal/status/preflight"
)

func newCheck() *command {
	return &command{
		name: "check", group: groupStart,
		usage: "report what works, what does not, and how to fix it",
		description: "Changes nothing. Ends with status 4 if something would not work. For a first look before run, and " +
			"after every change of the server or the configuration.",
		reach:     eachDatabase,
		settings:  []string{config.GroupDatabase, config.GroupEmbedding},
		pipelines: true,
		run: withPool(func(ctx context.Context, env *environment, pool *pgxpool.Pool) error {
			list, err := preflight.Check(ctx, pool, env.embedders())
			if list == nil {
				return err
			}
			return errors.Join(showFindings(env, list), preflight.Verdict(list), err)
		}),
	}
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
		// One line each, because details are sentences.
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

// newHealthcheck returns the command that probes a sidecar of this machine, for health checks of containers that have
// no other program for it.
func newHealthcheck() *command {
	ready := false // ask /readyz instead of /livez
	return &command{
		name: "healthcheck", group: groupObserve, usage: "ask the sidecar on this machine whether it is alive, or ready",
		description: "Asks the listener of --ops-listen, on the loopback address if that names all addresses, and gives " +
			"up after 3 s unless --timeout is given. Ends with status 0 for yes, 4 for no, 5 without an answer " +
			"in time, and 6 if nothing listens. For the health check of a container: run and healthcheck both " +
			"read EMBEDSIDECAR_OPS_LISTEN.",
		flags: []cli.Flag{
			own.toggle("ready", &ready, "ask whether it is ready; a sidecar that cannot reach its database is alive but not ready"),
		},
		settings: []string{config.GroupOps},
		probe:    true,
		run: func(ctx context.Context, env *environment) error {
			listen := env.config.Ops.Listen
			answer, err := ops.Ask(ctx, listen, ready)
			switch {
			case err != nil && problem.Of(err) == problem.Connect:
				return problem.New(problem.Connect, err, "run it with the same --ops-listen, or EMBEDSIDECAR_OPS_LISTEN for both; "+
					env.config.Origin("ops.listen")+" says "+listen)
			case err != nil:
				return err
			}
			return env.printf("%s", answer)
		},
	}
}
