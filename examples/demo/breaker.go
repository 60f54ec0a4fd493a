package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// faults are the kinds of faults, in the order in which they are used.
var faults = []struct {
	what string
	do   func(ctx context.Context, d *demo) error
}{
	{"kill -9 of the sidecar; another one is started", func(ctx context.Context, d *demo) error {
		return errors.Join(d.sidecar.kill(), d.sidecar.start(ctx))
	}},
	{"kill -9 of the plugin", func(ctx context.Context, d *demo) error { return d.killPlugin(ctx) }},
	{"the server restarts (fast)", func(ctx context.Context, d *demo) error {
		return d.server.Restart(ctx, testenv.Fast)
	}},
	{"the server restarts (immediate, it must recover)", func(ctx context.Context, d *demo) error {
		return d.server.Restart(ctx, testenv.Immediate)
	}},
}

// suffer injects a fault every two to four seconds.
func (d *demo) suffer(ctx context.Context) error {
	const shortest, spread = 2 * time.Second, 2 * time.Second
	for i := range d.o.faults {
		if !sleep.For(ctx, shortest+rand.N(spread)) {
			return ctx.Err()
		}
		one := faults[i%len(faults)]
		if err := one.do(ctx, d); err != nil {
			return fmt.Errorf("%s: %w", one.what, err)
		}
		d.say("  fault %2d of %d: %s", i+1, d.o.faults, one.what)
	}
	return nil
}

// killPlugin kills the plugin. If the plugin is being restarted, it waits.
func (d *demo) killPlugin(ctx context.Context) error {
	const timeout = time.Minute
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); {
		for _, pid := range d.sidecar.processes() {
			if syscall.Kill(pid, syscall.SIGKILL) == nil {
				return nil
			}
		}
		if !sleep.For(ctx, 20*time.Millisecond) {
			return ctx.Err()
		}
	}
	return fmt.Errorf("no plugin ran for %s", timeout)
}
