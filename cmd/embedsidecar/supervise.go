package main

import (
	"context"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
)

// supervise tells systemd that the program has started to end, and, where the unit has a watchdog, that it is alive.
// The function it returns ends that. Without systemd (no NOTIFY_SOCKET) nothing is told and nothing is done.
func (w *watch) supervise(ctx context.Context) (stop func()) {
	limit, err := sd.SdWatchdogEnabled(false)
	if err != nil {
		w.env.log.WarnContext(ctx, "the watchdog of systemd cannot be used", "error", err)
	}
	w.tell(ctx, "STATUS=starting: waits for the database, or sets it up")
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
				w.tell(ctx, sd.SdNotifyStopping+"\nSTATUS=ending: finishes what is in work, or gives it back")
			case <-ticks:
				w.alive(ctx)
				w.tell(ctx, sd.SdNotifyWatchdog)
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// alive returns when the parts have said how they are. It takes the locks that their work takes: one that nobody
// gives back keeps it from returning, the watchdog hungry, and systemd ends the program with a trace of every
// goroutine.
func (w *watch) alive(ctx context.Context) {
	_ = w.ready(ctx)
	_ = w.state()
}

// working tells systemd that the start is over: what waits for this unit may go on.
func (w *watch) working(ctx context.Context) {
	w.tell(ctx, sd.SdNotifyReady+"\nSTATUS=working")
}

// tell sends systemd a line, if it listens.
func (w *watch) tell(ctx context.Context, state string) {
	if _, err := sd.SdNotify(false, state); err != nil {
		w.env.log.WarnContext(ctx, "systemd cannot be told", "state", state, "error", err)
	}
}
