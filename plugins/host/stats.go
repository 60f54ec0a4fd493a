package host

import "sync/atomic"

// counters are counted without a lock.
type counters struct {
	calls, texts, failed, bad, hangs, starts, ends atomic.Uint64
}

// Stats are what a host has done so far; the counts only grow.
type Stats struct {
	Up          bool   // the plugin runs and has described itself
	CircuitOpen bool   // it failed three times in a row or more, and no call goes through until its pause is over
	Pid         int    // 0 while it is not running
	Version     string // as it last described itself; "" before the first start
	Calls       uint64 // calls sent to the plugin
	Texts       uint64 // texts in them
	FailedCalls uint64 // calls that had no answer, or none that could be believed
	BadAnswers  uint64 // answers that could not be believed
	Hangs       uint64 // times it was killed because it did not answer
	Ends        uint64 // times it ended though nobody had closed the host, the hangs included
	Starts      uint64 // times it was started with success
}

// Restarts is how often the plugin was started again.
func (s Stats) Restarts() uint64 { return max(s.Starts, 1) - 1 }

// Stats returns what the host has done so far.
func (h *Host) Stats() Stats {
	s := Stats{
		Calls: h.stats.calls.Load(), Texts: h.stats.texts.Load(), FailedCalls: h.stats.failed.Load(), BadAnswers: h.stats.bad.Load(),
		Hangs: h.stats.hangs.Load(), Ends: h.stats.ends.Load(), Starts: h.stats.starts.Load(),
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.current != nil && !h.current.process.gone() {
		s.Up, s.Pid = true, h.current.process.pid
	}
	if h.first != nil {
		s.Version = h.first.Version
	}
	if h.current != nil {
		s.Version = h.current.desc.Version
	}
	s.CircuitOpen = !s.Up && h.failures >= circuitOpensAt
	return s
}

// Pid returns the plugin's process id, 0 while it is not running.
func (h *Host) Pid() int { return h.Stats().Pid }
