package host

import (
	"context"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// memoryInterval is how often the memory of a process with a limit is measured.
const memoryInterval = time.Second

// guard watches a process until it ends: it measures its memory, detects CPU use while idle, and sends the canaries
// periodically.
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

// memoryInterval is the constant of that name, shorter in tests.
func (o Options) memoryInterval() time.Duration { return min(memoryInterval, 5*o.RestartDelay) }

// idleInterval is the constant of that name, shorter in tests.
func (o Options) idleInterval() time.Duration { return min(idleInterval, 50*o.RestartDelay) }

// weigh enforces the memory limit. A process above it is replaced, so that no call fails, and killed once it exceeds
// the limit by a quarter. A failed replacement is retried with backoff.
func (i *instance) weigh(ctx context.Context, used int64, again *backoff.ExponentialBackOff) {
	limit := int64(i.slot.opts.MemoryLimit)
	i.memory.Store(used)
	log := i.slot.opts.Log.With("pid", i.process.pid, "memory_bytes", used, "limit_bytes", limit)
	switch {
	case used > limit+limit/4:
		i.slot.host.mu.Lock()
		alone := i.calls == 1
		i.slot.host.mu.Unlock()
		log.Warn("plugin killed: memory limit exceeded")
		i.process.killGreedy(fmt.Sprintf("it used %s of memory, its limit is %s", mebibytes(used), mebibytes(limit)), alone)
	case used > limit && !i.leaving.Load():
		log.Warn("plugin is above its memory limit: replacing its process")
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
				log.Warn("plugin not replaced", "error", err, "retry_in", wait)
				select {
				case <-time.After(wait):
				case <-i.process.exited:
				}
				i.leaving.Store(false) // the next measurement retries it
			}
		}()
	}
}

func mebibytes(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }

const (
	// idleInterval is how often the CPU use of a process is checked.
	idleInterval = 5 * time.Second
	// idleDemand is the share of one CPU that an idle process may demand. Demand includes the time in which threads
	// wait to run, because a spinning process gets little CPU time on a busy machine.
	idleDemand = 0.5
	// idleUse is the share that it may use in any case. Threads that wake occasionally may wait long.
	idleUse = 0.02
	// idleLooks is how many consecutive busy checks make an idle process a suspect. Threads of some libraries spin
	// briefly after work.
	idleLooks = 2
)

// cpuTimes are the accumulated CPU times of a process.
type cpuTimes struct {
	used time.Duration
	wait time.Duration // its threads were runnable but not running
}

// idler detects a process that uses CPU while idle. It has no lock: only one goroutine uses it.
type idler struct {
	calls uint64    // begun by the last check
	under int       // under way at the last check
	at    time.Time // of the last check
	times cpuTimes  // at the last check
	busy  int       // consecutive busy checks
}

// look records a check. It reports whether the process was busy while idle for idleLooks checks in a row.
func (d *idler) look(now time.Time, under int, calls uint64, times cpuTimes) bool {
	if idle := under == 0 && d.under == 0 && calls == d.calls && !d.at.IsZero(); idle {
		wall, used, wait := float64(now.Sub(d.at)), float64(times.used-d.times.used), float64(times.wait-d.times.wait)
		if used > idleUse*wall && used+wait > idleDemand*wall {
			d.busy++
		} else {
			d.busy = 0
		}
	}
	d.calls, d.under, d.at, d.times = calls, under, now, times
	return d.busy >= idleLooks
}

// watchIdle checks a process once. A process that uses CPU while idle gets the lowest priority for the rest of its
// life, since raising it again needs privileges. It returns whether to check again.
func (i *instance) watchIdle(d *idler) bool {
	times, ok := readCPUTimes(i.process.pid)
	if !ok {
		return true
	}
	h := i.slot.host
	now := time.Now()
	h.mu.Lock()
	under, calls := i.calls, i.begun
	if now.Before(i.restless) {
		under++
	}
	h.mu.Unlock()
	if !d.look(now, under, calls, times) {
		return true
	}
	log := i.slot.opts.Log.With("pid", i.process.pid)
	if err := lowerPriority(i.process.pid); err != nil {
		log.Warn("plugin uses CPU while idle", "error", err)
		return false
	}
	log.Warn("plugin uses CPU while idle: its priority is lowered until this process ends")
	return false
}
