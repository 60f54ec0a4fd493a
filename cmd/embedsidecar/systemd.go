package main

import (
	"context"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"

	"github.com/embedsidecar/embedsidecar/internal/node"
)

// supervise tells systemd that the program has started to end, and, where the unit has a watchdog, that it is alive.
// The function it returns ends that. Without systemd (no NOTIFY_SOCKET) nothing is told and nothing is done.
func (e *environment) supervise(ctx context.Context, n *node.Node) (stop func()) {
	limit, err := sd.SdWatchdogEnabled(false)
	if err != nil {
		e.log.WarnContext(ctx, "the watchdog of systemd cannot be used", "error", err)
	}
	e.tellSystemd(ctx, "STATUS=starting: waits for the database, or sets it up")
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		stopping := ctx.Done()
		var ticks <-chan time.Time
		if limit > 0 {
			ticker := time.NewTicker(limit / 3) // one that comes late is no reason to be killed
			defer ticker.Stop()
			ticks = ticker.C
		}
		for {
			select {
			case <-done:
				return
			case <-stopping:
				stopping = nil
				e.tellSystemd(ctx, sd.SdNotifyStopping+"\nSTATUS=ending: finishes what is in work, or gives it back")
			case <-ticks:
				// A lock that nobody gives back keeps it from returning, the watchdog hungry, and systemd ends the program
				// with a trace of every goroutine.
				_ = n.Snapshot()
				e.tellSystemd(ctx, sd.SdNotifyWatchdog)
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// tellWorking tells systemd that the start is over: what waits for this unit may go on.
func (e *environment) tellWorking(ctx context.Context) {
	e.tellSystemd(ctx, sd.SdNotifyReady+"\nSTATUS=working")
}

// tellSystemd sends systemd a line, if it listens.
func (e *environment) tellSystemd(ctx context.Context, state string) {
	if _, err := sd.SdNotify(false, state); err != nil {
		e.log.WarnContext(ctx, "systemd cannot be told", "state", state, "error", err)
	}
}
