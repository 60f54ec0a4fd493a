package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/status/ops"
)

// healthcheckCommand asks a sidecar of this machine how it is, for health checks of containers, which have no other
// program to ask with.
type healthcheckCommand struct {
	ready bool // ask /readyz instead of /livez
}

func newHealthcheck() *command {
	c := &healthcheckCommand{}
	return &command{
		name: "healthcheck", group: groupObserve, usage: "ask the sidecar on this machine whether it is alive, or ready",
		description: "Asks the listener of --ops-listen, on the loopback address if that names all addresses, and gives " +
			"up after 3 s unless --timeout is given. Ends with status 0 for yes, 4 for no, 5 without an answer " +
			"in time, and 6 if nothing listens. For the health check of a container: run and healthcheck both " +
			"read EMBEDSIDECAR_OPS_LISTEN.",
		flags: []cli.Flag{
			own.toggle("ready", &c.ready, "ask whether it is ready; a sidecar whose database is away is alive and not ready"),
		},
		settings: []string{config.GroupOps},
		probe:    true,
		run:      c.run,
	}
}

func (c *healthcheckCommand) run(ctx context.Context, env *environment) error {
	listen := env.config.Ops.Listen
	answer, err := ops.Ask(ctx, listen, c.ready)
	switch {
	case err != nil && problem.Of(err) == problem.Connect:
		return fail(exitConnect, err, "run it with the same --ops-listen, or EMBEDSIDECAR_OPS_LISTEN for both; "+
			env.config.Origin("ops.listen")+" says "+listen)
	case err != nil:
		return err
	}
	return env.printf("%s", answer)
}
