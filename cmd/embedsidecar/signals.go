package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/embedsidecar/embedsidecar/internal/node"
)

// errInterrupted is the cause of a context that a signal has ended.
var errInterrupted = errors.New("interrupted")

// taken is who has taken the signals over, if anybody has.
type taken struct {
	mu sync.Mutex
	by chan<- os.Signal
}

type takenKey struct{}

// takeSignals has the signals of a context of withSignals sent to somebody who must end something in order, instead of
// ending the context or the process, until back is called. What he does not take at once is lost to him.
func takeSignals(ctx context.Context, by chan<- os.Signal) (back func()) {
	t, ok := ctx.Value(takenKey{}).(*taken)
	if !ok {
		return func() {}
	}
	t.set(by)
	return func() { t.set(nil) }
}

func (t *taken) set(by chan<- os.Signal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.by = by
}

// took reports whether somebody has taken a signal.
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

// withSignals returns a context that ends at the first SIGINT or SIGTERM; the second one calls exit with 130, for a
// person who does not want to wait for an orderly end.
func withSignals(parent context.Context, exit func(int)) (ctx context.Context, stop func()) {
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
				exit(exitInterrupted)
				return
			default:
				cancel(errInterrupted)
			}
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
