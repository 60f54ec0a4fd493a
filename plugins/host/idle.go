package host

import "time"

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
