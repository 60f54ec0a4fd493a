package host

import (
	"context"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// memoryInterval is how often a process with a memory limit is measured.
const memoryInterval = time.Second

// guard measures a process that has a memory limit, looks whether it keeps quiet when it has nothing to do, and asks
// it the canary texts now and then, until it has ended.
func (i *instance) guard(ctx context.Context) {
	var measure, selfTest <-chan time.Time
	if i.slot.opts.MemoryLimit > 0 {
		t := time.NewTicker(i.slot.opts.memoryInterval())
		defer t.Stop()
		measure = t.C
	}
	if i.slot.opts.Canary > 0 {
		t := time.NewTicker(i.slot.opts.Canary)
		defer t.Stop()
		selfTest = t.C
	}
	idle := time.NewTicker(i.slot.opts.idleInterval())
	defer idle.Stop()
	answered := i.answered.Load()
	again := newDelays(i.slot.opts.RestartDelay, i.slot.opts.RestartDelayMax)
	var doing idler
	processes := group{id: i.process.pid}
	for {
		select {
		case <-i.process.exited:
			return
		case <-measure:
			i.weigh(ctx, processes.memory(), again)
		case <-idle.C:
			if !i.watchIdle(&doing) {
				idle.Stop()
			}
		case <-selfTest:
			if now := i.answered.Load(); now != answered {
				answered = now
				i.selfTest(ctx)
			}
		}
	}
}

// memoryInterval is how often to measure.
func (o Options) memoryInterval() time.Duration { return min(memoryInterval, 5*o.RestartDelay) }

// idleInterval is how often to look at a process that should have nothing to do.
func (o Options) idleInterval() time.Duration { return min(idleInterval, 50*o.RestartDelay) }

// weigh judges what a process uses. One above its limit is replaced, so that no call fails, and killed when it goes on to
// grow by a quarter. A replacement that failed is tried again after a pause, as any start is.
func (i *instance) weigh(ctx context.Context, used int64, again *backoff.ExponentialBackOff) {
	limit := int64(i.slot.opts.MemoryLimit)
	i.memory.Store(used)
	log := i.slot.opts.Log.With("pid", i.process.pid, "memory_bytes", used, "limit_bytes", limit)
	switch {
	case used > limit+limit/4:
		i.slot.host.mu.Lock()
		alone := i.calls == 1
		i.slot.host.mu.Unlock()
		log.Warn("plugin killed for its memory")
		i.process.killGreedy(fmt.Sprintf("it used %s of memory, its limit is %s", mebibytes(used), mebibytes(limit)), alone)
	case used > limit && !i.leaving.Load():
		log.Warn("plugin is above its memory limit: another process takes its place")
		h := i.slot.host
		h.mu.Lock()
		closed := h.closed
		if !closed {
			h.work.Add(1)
		}
		h.mu.Unlock()
		if closed {
			return
		}
		i.leaving.Store(true)
		go func() {
			defer h.work.Done()
			if err := h.relieve(ctx, i); err != nil {
				wait := again.NextBackOff()
				log.Warn("plugin not replaced", "error", err, "again_in", wait)
				pause := time.NewTimer(wait)
				defer pause.Stop()
				select {
				case <-pause.C:
				case <-i.process.exited:
				}
				i.leaving.Store(false) // the next measure tries it again
			}
		}()
	}
}

func mebibytes(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }
