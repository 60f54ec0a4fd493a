package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/embedsidecar/embedsidecar/testenv"
)

// breaker breaks things while the sidecar works.
type breaker struct {
	server  *testenv.Server
	sidecar *sidecar
	out     *console
	vectors func() int // how many there are
	done    int
}

// fault is a way to break something.
type fault struct {
	what string
	do   func(b *breaker, ctx context.Context) error
}

var faults = []fault{
	{"kill -9 of the sidecar; another one is started", (*breaker).sidecarDies},
	{"kill -9 of the plugin", (*breaker).pluginDies},
	{"the server restarts (fast)", func(b *breaker, ctx context.Context) error {
		return b.server.Restart(ctx,
			testenv.Fast)
	}},
	{"the server restarts (immediate, it must recover)", func(b *breaker, ctx context.Context) error {
		return b.server.Restart(ctx, testenv.Immediate)
	}},
}

// run breaks something every two to four seconds, each kind equally often, until it was often enough. On a slow
// machine it waits until something was embedded since, for a while: faults that find nothing done would prove
// nothing.
func (b *breaker) run(ctx context.Context, times int) error {
	const shortest, spread, timeout = 2 * time.Second, 2 * time.Second, 10 * time.Second
	var deck []int
	for b.done < times {
		before, since := b.vectors(), time.Now()
		next := shortest + rand.N(spread)
		for time.Since(since) < next || b.vectors() == before && time.Since(since) < timeout {
			if err := pause(ctx, 50*time.Millisecond); err != nil {
				return err
			}
		}
		if len(deck) == 0 {
			deck = rand.Perm(len(faults))
		}
		one := faults[deck[0]]
		deck = deck[1:]
		begin := time.Now()
		if err := one.do(b, ctx); err != nil {
			return fmt.Errorf("%s: %w", one.what, err)
		}
		b.done++
		b.out.say("  fault %2d of %d: %s (%.1f s)", b.done, times, one.what, time.Since(begin).Seconds())
	}
	return nil
}

func (b *breaker) sidecarDies(ctx context.Context) error {
	if err := b.sidecar.kill(ctx); err != nil {
		return err
	}
	return b.sidecar.start(ctx)
}

// pluginDies kills the plugin; if it is just being started again, that is waited for.
func (b *breaker) pluginDies(ctx context.Context) error {
	const timeout = time.Minute
	deadline := time.Now().Add(timeout)
	for {
		for _, pid := range b.sidecar.plugins() {
			if err := syscall.Kill(pid, syscall.SIGKILL); err == nil {
				return nil
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("there was no plugin to kill for %s", timeout)
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}
