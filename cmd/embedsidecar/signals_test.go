package main

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
)

// The two tests send signals to this very process, so they do not run in parallel with others.
func TestSignals_FirstEndsTheContextSecondTheProcess(t *testing.T) {
	exited := make(chan int, 1)
	ctx, stop := withSignals(t.Context(), func(status int) { exited <- status })
	defer stop()
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := self.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	if !errors.Is(context.Cause(ctx), errInterrupted) {
		t.Errorf("cause %v", context.Cause(ctx))
	}
	if err := self.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if got := <-exited; got != exitInterrupted {
		t.Errorf("status %d", got)
	}
}

func TestSignals_StopLeavesNothingBehind(t *testing.T) {
	ctx, stop := withSignals(t.Context(), func(int) { t.Error("exit was called") })
	stop()
	<-ctx.Done()
	if errors.Is(context.Cause(ctx), errInterrupted) {
		t.Error("stopping counts as an interruption")
	}
}

func TestRun_Interrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	p := &program{commands: commands(), stdout: os.Stderr, stderr: discard{}, hostname: "h", executable: "/x"}
	for _, c := range leaves(p.commands) {
		c.run = func(ctx context.Context, _ *environment) error {
			cancel(errInterrupted)
			<-ctx.Done()
			return ctx.Err()
		}
	}
	if got := p.run(ctx, []string{"embedsidecar", "status"}); got != exitInterrupted {
		t.Errorf("status %d", got)
	}
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }
