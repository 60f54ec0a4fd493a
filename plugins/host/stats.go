package host

import (
	"sync/atomic"
	"time"
)

// counters are updated without a lock.
type counters struct {
	calls, texts, failed, bad, hangs, starts, ends atomic.Uint64
}

// Process is one of a plugin's processes.
type Process struct {
	Pid    int   `json:"pid"`
	Calls  int   `json:"calls"`        // under way
	Texts  int64 `json:"texts"`        // in them
	Memory int64 `json:"memory_bytes"` // resident, including child processes; 0: not measured
}

// Processes returns the running processes, with their memory.
func (h *Host) Processes() []Process { return Measured(h.Stats().Processes) }

// Measured adds the memory to processes. It reads the system's process list for each.
func Measured(list []Process) []Process {
	for i := range list {
		list[i].Memory = groupMemory(list[i].Pid)
	}
	return list
}

// Stats are the state and counters of a host. The counters never decrease.
type Stats struct {
	Up          bool          // a process runs and has described itself
	Circuit     Circuit       // whether calls go through
	Reason      string        // of the last failure; "" after a good answer
	RetryIn     time.Duration // until the next probe
	Processes   []Process     // running ones
	Wanted      int           // maximum number of processes
	Version     string        // as the plugin last described itself; "" before the first start
	Calls       uint64        // calls sent to the plugin
	Texts       uint64        // texts in them
	FailedCalls uint64        // calls without a valid answer
	BadAnswers  uint64        // invalid answers
	Hangs       uint64        // processes killed because they did not answer
	Ends        uint64        // processes that ended unexpectedly, including hangs
	Starts      uint64        // successful starts
}

// CircuitOpen reports whether the circuit is open or half open.
func (s *Stats) CircuitOpen() bool { return s.Circuit == Open || s.Circuit == HalfOpen }

// Restarts is how often a process was restarted after it had ended by itself.
func (s Stats) Restarts() uint64 { return min(s.Ends, max(s.Starts, 1)-1) }

// Stats returns the current Stats. It is cheap.
func (h *Host) Stats() Stats {
	s := Stats{
		Calls: h.stats.calls.Load(), Texts: h.stats.texts.Load(), FailedCalls: h.stats.failed.Load(),
		BadAnswers: h.stats.bad.Load(),
		Hangs:      h.stats.hangs.Load(), Ends: h.stats.ends.Load(), Starts: h.stats.starts.Load(),
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, slot := range h.slots {
		if inst := slot.current; inst != nil && !inst.process.gone() {
			s.Processes = append(s.Processes, Process{Pid: inst.process.pid, Calls: inst.calls, Texts: inst.texts.Load()})
		}
	}
	s.Up = len(s.Processes) > 0
	if h.first != nil {
		s.Version = h.first.Version
	}
	now := time.Now()
	s.Wanted, s.Circuit, s.Reason = len(h.slots), h.breaker.state(now), h.breaker.reason
	if s.CircuitOpen() {
		s.RetryIn = max(0, h.breaker.until.Sub(now))
	}
	return s
}

// Pid returns the process id of one of the plugin's processes, 0 while none runs.
func (h *Host) Pid() int {
	if list := h.Stats().Processes; len(list) > 0 {
		return list[0].Pid
	}
	return 0
}
