// Package host runs an embedder plugin, a separate program, in one or several processes. It verifies the program's
// file, starts it in an empty environment and talks to it by the contract of plugins/proto. It validates every answer,
// kills a process that hangs, restarts one that dies, and stops calling a plugin that keeps failing. It can switch to
// another file of the same embedder without failing a call. A slow, dead or lying plugin causes errors for its callers
// only. No plugin outlives its host, even if the host is killed by SIGKILL.
package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
)

// closeGracePeriod is how long a process may take to exit when asked, before it is killed.
const closeGracePeriod = 3 * time.Second

// Host is a plugin with one model chosen. Its methods are safe for concurrent use. Calls start processes on demand: the
// first one, another one when all are busy, and, after a delay, a new one for one that ended.
type Host struct {
	log   *slog.Logger
	stats counters

	reloading sync.Mutex // held while processes are replaced: one replacement at a time

	mu      sync.Mutex
	opts    Options
	closed  bool
	work    sync.WaitGroup // calls, starts and watches; grows under mu while not closed
	slots   []*processSlot
	aside   map[*processSlot]bool // replaced with calls still under way, or not yet taking calls
	moved   chan struct{}         // closed and recreated when a start succeeds or fails
	unmade  int                   // failed starts, in total
	breaker breaker
	first   *embed.Description
	canary  [][]float32 // vectors of the canary texts; nil: not known yet
	rounds  int         // of canaries
	sockets *sockets
}

var _ embed.Embedder = (*Host)(nil)

// New returns a host. It starts no process. It returns an error only for invalid options.
func New(opts Options) (*Host, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("plugin %q: %w", opts.Name, err)
	}
	h := &Host{
		log: opts.Log, opts: opts, aside: map[*processSlot]bool{}, moved: make(chan struct{}), breaker: newBreaker(opts),
	}
	h.slots = h.newSlots(opts)
	return h, nil
}

// Describe returns the plugin's description of itself and of the model, from its first start. It starts the plugin if
// necessary. Errors are *embed.Error. Those of class Configuration wrap a *StartError and have the codes "missing",
// "not_executable", "unreadable", "checksum", "start", "handshake", "protocol_version", "describe", "unknown_model",
// "fingerprint", "order", "drift", "memory" and "sockets". Transient "unavailable" and "circuit_open", and Resource
// "resource", may be retried.
func (h *Host) Describe(ctx context.Context) (embed.Description, error) {
	h.mu.Lock()
	first := h.first
	h.mu.Unlock()
	if first != nil {
		return *first, nil
	}
	p, err := h.acquire(ctx)
	if err != nil {
		return embed.Description{}, err
	}
	defer h.release(p)
	return p.inst.desc, nil
}

// Close ends the plugin and waits until its processes are gone. Calls under way and all later ones fail with Transient
// "unavailable". Further calls of Close only wait.
func (h *Host) Close() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		h.work.Wait()
		return nil
	}
	h.closed = true
	var ending []*instance
	for s := range h.everySlotLocked() {
		if s.launching != nil {
			s.launching.kill(closing)
		}
		if s.current != nil {
			ending = append(ending, s.current)
		}
	}
	h.mu.Unlock()
	var wg sync.WaitGroup
	for _, inst := range ending {
		wg.Go(func() { inst.end(closing) })
	}
	wg.Wait()
	h.work.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sockets == nil {
		return nil
	}
	err := h.sockets.remove()
	h.sockets = nil
	return err
}

// closing is the reason for processes that end in Close.
const closing = "the host is closing"

// permit is a call's right to use a process.
type permit struct {
	inst  *instance
	probe bool // the call probes a plugin whose circuit is half open
	good  bool // the answer was good
}

// acquire picks the process for a call: the least busy one. It waits for a start if none runs. The caller returns the
// permit with release.
func (h *Host) acquire(ctx context.Context) (p permit, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return p, unavailable(0, errClosed)
	}
	probe, wait := h.breaker.admit(time.Now())
	if wait > 0 {
		return p, h.restingLocked(wait)
	}
	h.work.Add(1)
	defer func() {
		if err != nil {
			h.work.Done()
			if probe {
				h.breaker.probed()
			}
		}
	}()
	unmade := h.unmade
	for {
		inst := h.leastBusyLocked()
		if inst == nil || inst.calls > 0 {
			h.startOneLocked(ctx, probe)
		}
		if inst != nil {
			inst.calls++
			inst.begun++
			return permit{inst: inst, probe: probe}, nil
		}
		if h.closed {
			return p, unavailable(0, errClosed)
		}
		if !h.startingLocked() || h.unmade > unmade {
			return p, h.downLocked()
		}
		moved := h.moved
		h.mu.Unlock()
		select {
		case <-moved:
			h.mu.Lock()
		case <-ctx.Done():
			h.mu.Lock()
			return p, &embed.Error{Class: embed.Transient, Code: "canceled", Err: fmt.Errorf("wait for plugin %q to start: %w",
				h.opts.Name, context.Cause(ctx))}
		}
	}
}

// release ends a call.
func (h *Host) release(p permit) {
	h.mu.Lock()
	defer h.mu.Unlock()
	inst := p.inst
	if inst.calls--; inst.calls == 0 && inst.idle != nil {
		close(inst.idle)
		inst.idle = nil
	}
	if p.good {
		inst.slot.recoveredLocked()
		if h.breaker.succeeded() {
			h.log.Info("plugin answers again: the circuit is closed")
		}
	} else if p.probe {
		h.breaker.probed()
	}
	h.work.Done()
}

// leastBusyLocked returns the running process with the least work, or nil.
func (h *Host) leastBusyLocked() *instance {
	var best *instance
	for _, s := range h.slots {
		if s.current != nil && s.current.process.gone() {
			h.retireLocked(s.current)
		}
		inst := s.current
		if inst == nil {
			continue
		}
		if best == nil || inst.calls < best.calls || inst.calls == best.calls && inst.texts.Load() < best.texts.Load() {
			best = inst
		}
	}
	return best
}

// startOneLocked starts a process if a slot is free and no start is under way. A probe ignores the restart delays of
// the slots, because the circuit's pause is over.
func (h *Host) startOneLocked(ctx context.Context, probe bool) {
	if h.closed || h.startingLocked() {
		return
	}
	for _, s := range h.slots {
		if s.current == nil && (probe || !time.Now().Before(s.notBefore)) {
			s.starting = true
			h.work.Add(1)
			// All callers share the start: the one that triggered it may give up.
			go s.start(context.WithoutCancel(ctx))
			return
		}
	}
}

func (h *Host) startingLocked() bool {
	return slices.ContainsFunc(h.slots, func(s *processSlot) bool { return s.starting })
}

// downLocked is the error of calls while no process runs and none may be started yet.
func (h *Host) downLocked() error {
	wait := time.Duration(0)
	var failed error
	for i, s := range h.slots {
		if left := max(0, time.Until(s.notBefore)); i == 0 || left < wait {
			wait = left
		}
		failed = cmp.Or(failed, s.failed)
	}
	if err := later(failed, wait); err != nil {
		return err
	}
	return unavailable(wait, fmt.Errorf("plugin %q has ended and starts again in %s", h.opts.Name,
		wait.Round(time.Millisecond)))
}

// later returns the error of a failed start, with at least this retry delay; nil: it did not fail.
func later(failed error, wait time.Duration) error {
	whole, ok := errors.AsType[*embed.Error](failed)
	if !ok {
		return nil
	}
	again := *whole
	again.RetryAfter = max(wait, whole.RetryAfter)
	return &again
}

// restingLocked is the error of calls while the circuit is open.
func (h *Host) restingLocked(wait time.Duration) error {
	if h.leastBusyLocked() == nil {
		for _, s := range h.slots {
			if err := later(s.failed, wait); err != nil {
				return err
			}
		}
	}
	return &embed.Error{Class: embed.Transient, Code: "circuit_open", RetryAfter: wait, Err: fmt.Errorf(
		"plugin %q failed %d times in a row: no calls for %s; last failure: %s", h.opts.Name, h.breaker.failures,
		wait.Round(time.Millisecond), h.breaker.reason)}
}

// failedLocked counts a failure of the plugin as a whole.
func (h *Host) failedLocked(reason string) {
	if pause := h.breaker.failed(time.Now(), reason); pause > 0 {
		h.openedLocked(pause)
	}
}

func (h *Host) openedLocked(pause time.Duration) {
	h.log.Error("plugin fails repeatedly: the circuit is open", "retry_in", pause, "failures_in_a_row",
		h.breaker.failures, "last", h.breaker.reason)
}

// trip opens the circuit at once.
func (h *Host) trip(reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if pause := h.breaker.trip(time.Now(), reason); pause > 0 {
		h.openedLocked(pause)
	}
}

// socketFolder returns the folder for sockets. It creates the folder on first use.
func (h *Host) socketFolder() (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sockets != nil {
		if _, err := os.Stat(h.sockets.dir); err == nil {
			return h.sockets.dir, nil
		}
		_ = h.sockets.remove() // someone deleted it from the temporary folder
		h.sockets = nil
	}
	s, err := makeSockets(h.opts.TempDir)
	if err != nil {
		return "", err
	}
	h.sockets = s
	return s.dir, nil
}
