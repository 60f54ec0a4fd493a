// Package httpserver runs the program's HTTP listeners, each from its start to an end in good order.
package httpserver

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/loopback"
)

// Run answers until ctx ends, then lets requests under way finish for gracePeriod, and logs when that was not enough.
// It returns nil when it was asked to stop.
func Run(ctx context.Context, server *http.Server, listener net.Listener, gracePeriod time.Duration,
	log *slog.Logger,
) error {
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	// The context has ended; what is under way still gets its moment.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), gracePeriod)
	defer cancel()
	if err := server.Shutdown(last); err != nil {
		log.WarnContext(ctx, "connections that had not ended in time were cut off", "address", listener.Addr().String(),
			"timeout", gracePeriod.String())
		_ = server.Close()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// NamesThisMachine reports whether the Host of a request is localhost or a loopback address. A page on the web could
// have a name of its own lead here, and read what is answered to it.
func NamesThisMachine(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return loopback.Host(strings.Trim(host, "[]"))
}
