// Package systemd reports the program's state to systemd. Without systemd (no NOTIFY_SOCKET) it does nothing.
package systemd

import (
	"context"
	"log/slog"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Unit is the program as a systemd unit.
type Unit struct{ Log *slog.Logger }

// Begin reports that the program starts, and at the end that it stops. If the unit has a watchdog, it also reports that
// the program is alive, after each return of alive. The returned function ends that.
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
			ticker := time.NewTicker(limit / 3) // a late one must not get the process killed
			defer ticker.Stop()
			ticks = ticker.C
		}
		for {
			select {
			case <-done:
				return
			case <-stopping:
				stopping = nil
				u.tell(ctx, daemon.SdNotifyStopping+"\nSTATUS=stopping: finishing or returning the work in progress")
			case <-ticks:
				// If a deadlock keeps alive from returning, the watchdog times out, and systemd ends the program with a
				// trace of every goroutine.
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

// Working reports that the start is complete: units that wait for this one may start.
func (u Unit) Working(ctx context.Context) {
	u.tell(ctx, daemon.SdNotifyReady+"\nSTATUS=working")
}

func (u Unit) tell(ctx context.Context, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		u.Log.WarnContext(ctx, "could not notify systemd", "state", state, "error", err)
	}
}
