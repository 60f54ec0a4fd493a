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

// weigh judges what a process uses. One above its limit is replaced, so that no call fails, and killed when it goes on
// to grow by a quarter. A replacement that failed is tried again after a pause, as any start is.
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

const (
	// idleInterval is how often a process is looked at that should have nothing to do.
	idleInterval = 5 * time.Second
	// idleDemand is how much of one CPU's time a process with nothing to do may want, with the time for which its
	// threads wait to run: on a busy machine one that spins gets little, but wants all.
	idleDemand = 0.5
	// idleUse is how much it may use in any case. Threads that wake now and then may wait long.
	idleUse = 0.02
	// idleLooks in a row at a busy process with nothing to do make it a suspect. Some libraries' threads spin for a
	// moment after work.
	idleLooks = 2
)

// cpuTimes are what a process had of the CPUs so far.
type cpuTimes struct {
	used time.Duration
	wait time.Duration // for which its threads were ready to run and did not
}

// idler finds out whether a process keeps the CPU busy though it has nothing to do. It has no lock: one goroutine
// looks.
type idler struct {
	calls uint64    // begun when it was last looked at
	under int       // under way then
	at    time.Time // of that look
	times cpuTimes  // at that look
	busy  int       // looks in a row at which it was found busy
}

// look notes what a process had so far. True: it has been busy with nothing to do for some looks in a row.
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

// watchIdle looks at a process once. One that burns CPU time with nothing to do gets what others leave, from then on
// until its end: nobody may take that back without privileges. It returns whether to look again.
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
		log.Warn("plugin keeps the CPU busy with nothing to do", "error", err)
		return false
	}
	log.Warn("plugin keeps the CPU busy with nothing to do: its priority is lowered for as long as this process lives")
	return false
}
