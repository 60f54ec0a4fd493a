// Package systemd tells systemd how the program stands. Without it (no NOTIFY_SOCKET) nothing is told and nothing is
// done.
package systemd

import (
	"context"
	"log/slog"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Unit is what systemd started this program as.
type Unit struct{ Log *slog.Logger }

// Begin tells that the program starts, then that it has started to end, and, where the unit has a watchdog, that it is
// alive, for as long as alive returns. The function it returns ends that.
func (u Unit) Begin(ctx context.Context, alive func()) (stop func()) {
	limit, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		u.Log.WarnContext(ctx, "the watchdog of systemd cannot be used", "error", err)
	}
	u.tell(ctx, "STATUS=starting: waits for the database, or sets it up")
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
				u.tell(ctx, daemon.SdNotifyStopping+"\nSTATUS=ending: finishes what is in work, or gives it back")
			case <-ticks:
				// A lock that nobody gives back keeps it from returning, the watchdog hungry, and systemd ends the program
				// with a trace of every goroutine.
				alive()
				u.tell(ctx, daemon.SdNotifyWatchdog)
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// Working tells that the start is over: what waits for this unit may go on.
func (u Unit) Working(ctx context.Context) {
	u.tell(ctx, daemon.SdNotifyReady+"\nSTATUS=working")
}

func (u Unit) tell(ctx context.Context, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		u.Log.WarnContext(ctx, "systemd cannot be told", "state", state, "error", err)
	}
}
