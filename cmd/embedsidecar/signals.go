package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/embedsidecar/embedsidecar/internal/node"
)

// errInterrupted is the cause of a context that a signal has ended.
var errInterrupted = errors.New("interrupted")

// withSignals returns a context that ends at the first SIGINT or SIGTERM; the second one calls exit with 130, for a
// person who does not want to wait for an orderly end.
func withSignals(parent context.Context, exit func(int)) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		for range 2 {
			select {
			case <-signals:
			case <-done:
				return
			}
			if ctx.Err() != nil {
				exit(exitInterrupted)
				return
			}
			cancel(errInterrupted)
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel(nil)
	}
}

// reloadAtHangup has the plugins of a running program reloaded at SIGHUP. The function it returns ends that.
func reloadAtHangup(ctx context.Context, n *node.Node) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-hangups:
				n.Reload(ctx, nil)
			}
		}
	}()
	return func() {
		signal.Stop(hangups)
		cancel()
		<-done
	}
}
