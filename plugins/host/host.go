// Package host runs an embedder that is a program of its own: it checks the program's file, starts it in an empty
// environment, speaks the contract of plugins/proto with it, believes nothing it answers, kills it when it hangs and starts
// it again when it dies. A slow, dead or lying plugin costs its caller an error and nobody else anything; no plugin outlives
// its host, not even one that is killed by SIGKILL.
package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/embedsidecar/embedsidecar/embed"
)

// circuitOpensAt is how many failures in a row, without one good answer, open the circuit: no call goes through until the
// pause is over.
const circuitOpensAt = 3

// closePatience is how long Close lets the plugin end by itself.
const closePatience = 3 * time.Second

// Host is a plugin with one model chosen. Its methods may be called by several goroutines at the same time. The program is
// started by the first call that needs it, and again by the first call after a pause when it has ended.
type Host struct {
	opts  Options
	out   *output
	stats counters

	healthy atomic.Bool  // no failure since the last good answer
	bad     atomic.Int64 // bad answers in a row
	// What calls under way hold: a plugin that works on one call at a time answers the last of them after all others.
	texts, bytes atomic.Int64

	mu        sync.Mutex
	closed    bool
	work      sync.WaitGroup // calls, starts and watches; grows under mu while not closed
	current   *instance      // nil: not running
	starting  *startup       // nil: no start is under way
	launching *process       // the program that is being started, once it exists
	first     *embed.Description
	delays    *backoff.ExponentialBackOff
	failures  int       // in a row
	notBefore time.Time // no start before
	failed    error     // why the last start failed; nil when the program had been started
	sockets   *sockets
}

var _ embed.Embedder = (*Host)(nil)

// startup is one attempt to start the program, which any number of calls may wait for.
type startup struct {
	done     chan struct{} // closed when the two below are set
	instance *instance
	err      error
}

// New returns a host. It starts nothing yet: only mistakes in the options themselves are errors.
func New(opts Options) (*Host, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("plugin %q: %w", opts.Name, err)
	}
	delays := backoff.NewExponentialBackOff()
	delays.InitialInterval, delays.MaxInterval = opts.RestartDelay, opts.RestartDelayMax
	delays.Multiplier, delays.RandomizationFactor = 2, 0.2
	delays.Reset()
	return &Host{opts: opts, out: newOutput(opts.Log), delays: delays}, nil
}

// Describe returns what the plugin said of itself and of the model when it was first started, which this call does if
// nobody has yet. Errors are *embed.Error: of class Configuration with the codes "missing", "not_executable", "unreadable",
// "checksum", "start", "handshake", "protocol_version", "describe", "unknown_model", "fingerprint" and "sockets", which wrap
// a *StartError; Transient "unavailable" and Resource "resource" when trying again may help.
func (h *Host) Describe(ctx context.Context) (embed.Description, error) {
	h.mu.Lock()
	first := h.first
	h.mu.Unlock()
	if first != nil {
		return *first, nil
	}
	if err := h.enter(); err != nil {
		return embed.Description{}, err
	}
	defer h.work.Done()
	inst, err := h.ready(ctx)
	if err != nil {
		return embed.Description{}, err
	}
	return inst.desc, nil
}

// Close ends the plugin, waits until its process is gone, and lets calls that are under way fail with Transient
// "unavailable", as all later ones do. Further calls of Close do nothing.
func (h *Host) Close() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		h.work.Wait()
		return nil
	}
	h.closed = true
	inst, launching := h.current, h.launching
	h.mu.Unlock()
	if launching != nil {
		launching.kill("the host is closing")
	}
	if inst != nil {
		inst.process.blame("the host is closing")
		patience := time.AfterFunc(closePatience, func() { inst.process.kill("the host is closing") })
		inst.client.Kill() // asks first
		<-inst.process.exited
		patience.Stop()
	}
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

// enter counts a call as work unless the host is closed. The caller ends it with h.work.Done.
func (h *Host) enter() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return unavailable(0, errClosed)
	}
	h.work.Add(1)
	return nil
}

// ready returns the running plugin, starting it when it may be started. The caller has entered.
func (h *Host) ready(ctx context.Context) (*instance, error) {
	h.mu.Lock()
	if h.current != nil && h.current.process.gone() {
		h.retireLocked(h.current)
	}
	if inst := h.current; inst != nil {
		h.mu.Unlock()
		return inst, nil
	}
	if h.starting == nil {
		if err := h.mayStartLocked(); err != nil {
			h.mu.Unlock()
			return nil, err
		}
		h.starting = &startup{done: make(chan struct{})}
		h.work.Add(1)
		// The start is everybody's: the caller that began it may leave.
		go h.start(context.WithoutCancel(ctx), h.starting)
	}
	s := h.starting
	h.mu.Unlock()
	select {
	case <-s.done:
		return s.instance, s.err
	case <-ctx.Done():
		return nil, &embed.Error{Class: embed.Transient, Code: "canceled", Err: fmt.Errorf("wait for plugin %q to start: %w", h.opts.Name, context.Cause(ctx))}
	}
}

// mayStartLocked returns nil when the program may be started now, or the error that calls get meanwhile.
func (h *Host) mayStartLocked() error {
	if h.closed {
		return unavailable(0, errClosed)
	}
	wait := time.Until(h.notBefore)
	if wait <= 0 {
		return nil
	}
	if failed, ok := errors.AsType[*embed.Error](h.failed); ok {
		again := *failed
		again.RetryAfter = wait
		return &again
	}
	return unavailable(wait, fmt.Errorf("plugin %q has ended and starts again in %s", h.opts.Name, wait.Round(time.Millisecond)))
}

// start runs one attempt to start the program and tells everybody who waits for it.
func (h *Host) start(ctx context.Context, s *startup) {
	defer h.work.Done()
	began := time.Now()
	inst, err := h.launch(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.starting, h.launching, h.failed = nil, nil, err
	switch {
	case h.closed && err == nil:
		err = unavailable(0, errClosed)
		inst.process.kill("the host is closing")
	case h.closed:
	case err != nil:
		_, code := embed.Classify(err) // the error itself goes to the callers
		h.opts.Log.Warn("plugin not started", "code", code, "starts_again_in", h.failLocked(), "failures_in_a_row", h.failures)
	default:
		h.current = inst
		if h.first == nil {
			h.first = &inst.desc
		}
		h.stats.starts.Add(1)
		h.opts.Log.Info("plugin started", "pid", inst.process.pid, "version", inst.desc.Version, "model", inst.desc.Model,
			"fingerprint", inst.desc.Fingerprint, "dims", inst.desc.Dims, "took", time.Since(began))
	}
	if inst != nil {
		h.work.Add(1) // this function's own share keeps a closing host waiting until here
		go h.watch(inst)
	}
	s.instance, s.err = inst, err
	close(s.done)
}

// watch waits for the end of a plugin and tidies up after it.
func (h *Host) watch(inst *instance) {
	defer h.work.Done()
	<-inst.process.exited
	h.mu.Lock()
	h.retireLocked(inst)
	h.mu.Unlock()
	inst.client.Kill()
}

// retireLocked notes that a plugin has ended.
func (h *Host) retireLocked(inst *instance) {
	if h.current != inst {
		return
	}
	h.current = nil
	state, _ := inst.process.ending()
	if h.closed {
		h.opts.Log.Info("plugin ended", "pid", inst.process.pid)
		return
	}
	h.stats.ends.Add(1)
	wait := h.failLocked()
	h.opts.Log.Warn("plugin ended", "pid", inst.process.pid, "status", state.String(), "killed_because", inst.process.killedFor(),
		"starts_again_in", wait, "failures_in_a_row", h.failures)
}

// failLocked counts a failure and puts off the next start.
func (h *Host) failLocked() time.Duration {
	h.healthy.Store(false)
	h.failures++
	wait := h.delays.NextBackOff()
	h.notBefore = time.Now().Add(wait)
	return wait
}

// succeeded forgets failures after a good answer.
func (h *Host) succeeded() {
	if h.bad.Load() != 0 {
		h.bad.Store(0)
	}
	if h.healthy.Load() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failures, h.notBefore = 0, time.Time{}
	h.delays.Reset()
	h.healthy.Store(true)
}

// socketFolder returns the folder for sockets, made when it is first needed.
func (h *Host) socketFolder() (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sockets != nil {
		if _, err := os.Stat(h.sockets.dir); err == nil {
			return h.sockets.dir, nil
		}
		_ = h.sockets.remove() // somebody tidied the temporary folder
		h.sockets = nil
	}
	s, err := makeSockets(h.opts.TempDir)
	if err != nil {
		return "", err
	}
	h.sockets = s
	return s.dir, nil
}
