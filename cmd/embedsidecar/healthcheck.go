package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/config"
)

const (
	probeTimeout = 3 * time.Second
	maxProbe     = 64 << 10 // of an answer, which is some lines
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
			&cli.BoolFlag{
				Name: "ready", Destination: &c.ready, DisableDefaultText: true,
				Usage: "ask whether it is ready; a sidecar whose database is away is alive and not ready",
			},
		},
		settings: []string{config.GroupOps},
		probe:    true,
		run:      c.run,
	}
}

func (c *healthcheckCommand) run(ctx context.Context, env *environment) error {
	address, err := probeAddress(env.config.Ops.Listen)
	if err != nil {
		return err
	}
	path := "/livez"
	if c.ready {
		path = "/readyz"
	}
	// --timeout, where it is shorter or given at all, has ended ctx with a cause of its own.
	if _, limited := ctx.Deadline(); !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, probeTimeout, fmt.Errorf("no answer in %s", probeTimeout))
		defer cancel()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, http.NoBody)
	if err != nil {
		return fmt.Errorf("ask %s: %w", address, err)
	}
	// Not the default transport: a proxy of the environment is not meant for the machine itself.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	switch {
	case err != nil && ctx.Err() != nil:
		return fail(exitTimeout, fmt.Errorf("ask http://%s%s: %w", address, path, context.Cause(ctx)))
	case err != nil:
		return fail(exitConnect, fmt.Errorf("ask http://%s%s: %w", address, path, errors.Unwrap(err)),
			"run it with the same --ops-listen, or EMBEDSIDECAR_OPS_LISTEN for both; "+env.config.Origin("ops.listen")+" says "+
				env.config.Ops.Listen)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxProbe))
	if err != nil {
		return fail(exitTimeout, fmt.Errorf("read what http://%s%s answers: %w", address, path, err))
	}
	if answer := strings.TrimSpace(string(body)); response.StatusCode != http.StatusOK {
		return fail(exitFailed, fmt.Errorf("%s answers %d: %s", path, response.StatusCode, strings.ReplaceAll(answer, "\n",
			"; ")))
	}
	return env.printf("%s", body)
}

// probeAddress is where a listener of this machine is asked: one on all addresses by the loopback address.
func probeAddress(listen string) (string, error) {
	if listen == "" {
		return "", fail(exitUsage, errors.New("there is nothing to ask: no listener for probes is configured"),
			"set EMBEDSIDECAR_OPS_LISTEN, for example to 127.0.0.1:7471, or give --ops-listen, to run and to healthcheck")
	}
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", misuse("--ops-listen: %s", err)
	}
	ip, err := netip.ParseAddr(host)
	switch {
	case host == "" || err == nil && ip.IsUnspecified() && ip.Is4():
		host = "127.0.0.1"
	case err == nil && ip.IsUnspecified():
		host = "::1"
	}
	return net.JoinHostPort(host, port), nil
}
