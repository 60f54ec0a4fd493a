// Package signals handles this process's signals: they end contexts, or call functions.
package signals

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// ErrInterrupted is the cause when a signal ends a context of Context.
var ErrInterrupted = errors.New("interrupted")

// taken has the current receiver of signals, if any.
type taken struct {
	mu sync.Mutex
	by chan<- os.Signal
}

type takenKey struct{}

// Take redirects the signals of a context of Context, and more, to a channel until back is called, instead of ending
// the context or the process. It is for a receiver that must end something in order. Signals are lost if the channel is
// not ready.
func Take(ctx context.Context, by chan<- os.Signal, more ...os.Signal) (back func()) {
	if len(more) > 0 {
		signal.Notify(by, more...)
	}
	t, ok := ctx.Value(takenKey{}).(*taken)
	if ok {
		t.set(by)
	}
	return func() {
		if ok {
			t.set(nil)
		}
		signal.Stop(by)
	}
}

func (t *taken) set(by chan<- os.Signal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.by = by
}

// took reports whether a receiver has taken over the signals, and sends it the signal.
func (t *taken) took(s os.Signal) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by == nil {
		return false
	}
	select {
	case t.by <- s:
	default:
	}
	return true
}

// Context returns a context that ends at the first SIGINT or SIGTERM. The second one calls exit, for a user who does
// not want to wait for a graceful end.
func Context(parent context.Context, exit func()) (ctx context.Context, stop func()) {
	var t taken
	ctx, cancel := context.WithCancelCause(context.WithValue(parent, takenKey{}, &t))
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		for {
			var s os.Signal
			select {
			case s = <-signals:
			case <-done:
				return
			}
			switch {
			case t.took(s):
			case ctx.Err() != nil:
				exit()
				return
			default:
				cancel(ErrInterrupted)
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel(nil)
	}
}

// Hangups calls do at each SIGHUP. The returned function ends that.
func Hangups(ctx context.Context, do func(ctx context.Context)) (stop func()) {
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
				do(ctx)
			}
		}
	}()
	return func() {
		signal.Stop(hangups)
		cancel()
		<-done
	}
}

// Outlive makes this process ignore a signal until back is called. Programs that it starts do not ignore it.
func Outlive(s os.Signal) (back func()) {
	unread := make(chan os.Signal, 1)
	signal.Notify(unread, s)
	return func() { signal.Stop(unread) }
}
