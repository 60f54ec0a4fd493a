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
		description: "Asks the listener of --ops-listen, on the loopback address where that names all addresses, and gives up after 3 s unless --timeout says otherwise. Ends with status 0, with 4 when the answer is no, with 5 when there is none in time, and with 6 when nobody listens. For the health check of a container: there the address comes from EMBEDSIDECAR_OPS_LISTEN, which run and healthcheck both read.",
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
