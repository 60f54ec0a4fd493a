package signals

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
)

// These tests send signals to their own process, so they do not run in parallel.
func TestSignals_FirstEndsTheContextSecondTheProcess(t *testing.T) {
	exited := make(chan struct{})
	ctx, stop := Context(t.Context(), func() { close(exited) })
	defer stop()
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := self.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	if !errors.Is(context.Cause(ctx), ErrInterrupted) {
		t.Errorf("cause %v", context.Cause(ctx))
	}
	if err := self.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	<-exited
}

func TestSignals_StopLeavesNothingBehind(t *testing.T) {
	ctx, stop := Context(t.Context(), func() { t.Error("exit was called") })
	stop()
	<-ctx.Done()
	if errors.Is(context.Cause(ctx), ErrInterrupted) {
		t.Error("stopping counts as an interruption")
	}
}

func TestTake_SomebodyElseEndsWhatRuns(t *testing.T) {
	ctx, stop := Context(t.Context(), func() { t.Error("exit was called") })
	defer stop()
	by := make(chan os.Signal, 1)
	back := Take(ctx, by)
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := self.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := <-by; got != syscall.SIGTERM || ctx.Err() != nil {
		t.Errorf("%s, %v", got, ctx.Err())
	}
	back()
	if err := self.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
}

func TestHangups(t *testing.T) {
	called := make(chan struct{})
	stop := Hangups(t.Context(), func(context.Context) { called <- struct{}{} })
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := self.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		<-called
	}
	stop()
}
