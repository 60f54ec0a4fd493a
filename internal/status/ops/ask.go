package ops

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

	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
)

const (
	askTimeout = 3 * time.Second
	maxAnswer  = 64 << 10 // which is some lines
)

// Ask asks the listener of this machine at listen, as Options has it, whether it is alive, or ready, and returns what
// it says. It gives up after 3 s unless ctx ends before. An answer of no is an error, and so is none.
func Ask(ctx context.Context, listen string, ready bool) (answer []byte, err error) {
	address, err := askedAt(listen)
	if err != nil {
		return nil, err
	}
	path := "/livez"
	if ready {
		path = "/readyz"
	}
	// A deadline that the caller has set, where it is shorter or there at all, has a cause of its own.
	if _, limited := ctx.Deadline(); !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, askTimeout, fmt.Errorf("no answer in %s", askTimeout))
		defer cancel()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", address, err)
	}
	// Not the default transport: a proxy of the environment is not meant for the machine itself.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, problem.New(problem.Timeout, fmt.Errorf("ask http://%s%s: %w", address, path, context.Cause(ctx)))
	case err != nil:
		return nil, problem.New(problem.Connect, fmt.Errorf("ask http://%s%s: %w", address, path, errors.Unwrap(err)))
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, problem.New(problem.Timeout, fmt.Errorf("read what http://%s%s answers: %w", address, path, err))
	}
	if response.StatusCode != http.StatusOK {
		return nil, problem.New(problem.Failed, fmt.Errorf("%s answers %d: %s", path, response.StatusCode,
			strings.ReplaceAll(strings.TrimSpace(string(body)), "\n", "; ")))
	}
	return body, nil
}

// askedAt is where a listener of this machine is asked: one on all addresses by the loopback address.
func askedAt(listen string) (string, error) {
	if listen == "" {
		return "", problem.New(problem.Usage, errors.New("there is nothing to ask: no listener for probes is configured"),
			"set EMBEDSIDECAR_OPS_LISTEN, for example to 127.0.0.1:7471, or give --ops-listen, to run and to healthcheck")
	}
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", problem.New(problem.Usage, fmt.Errorf("--ops-listen: %w", err))
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
