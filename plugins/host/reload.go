package host

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
)

// replaced is the reason for processes that end because others replace them.
const replaced = "another process has replaced it"

// Reload switches to other options of the same embedder without failing a call: a new file of the plugin, the same
// model in another folder, another number of processes, or only new file contents. New processes start beside the old
// ones. Each must describe the same fingerprint and dims and return the same vectors for the canary texts. Then they
// take the calls, and the old ones end after the calls under way. Reload returns when the old ones are gone.
//
// On an error, which may be one of Describe's, nothing changes. Name, TempDir and Log keep their values; all other
// options take effect.
func (h *Host) Reload(ctx context.Context, opts Options) error {
	opts, err := opts.withDefaults()
	if err != nil {
		return fmt.Errorf("plugin %q: %w", opts.Name, err)
	}
	h.reloading.Lock()
	defer h.reloading.Unlock()
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return unavailable(0, errClosed)
	}
	h.work.Add(1)
	defer h.work.Done()
	opts.Name, opts.TempDir, opts.Log = h.opts.Name, h.opts.TempDir, h.log
	old := h.slots
	first := h.first
	known := h.canary
	var witness *instance // an old process, as reference for the canaries
	for _, s := range old {
		if s.current != nil && !s.current.process.gone() {
			witness = s.current
		}
	}
	h.mu.Unlock()

	slots := h.newSlots(opts)
	if first != nil { // otherwise the plugin has never run, and its first call starts it
		if witness != nil {
			known = witness.known(ctx, startCanaryTimeout)
		}
		if err := h.preflight(ctx, slots, known != nil); err != nil {
			return fmt.Errorf("plugin %q stays as it was: %w", h.opts.Name, err)
		}
	}
	h.take(old, slots, opts)
	h.dismiss(old, replaced)
	return nil
}

// relieve replaces a process that should end.
func (h *Host) relieve(ctx context.Context, inst *instance) error {
	h.reloading.Lock()
	defer h.reloading.Unlock()
	h.mu.Lock()
	o := h.opts
	slots := slices.Clone(h.slots)
	at := slices.IndexFunc(slots, func(s *processSlot) bool { return s == inst.slot && s.current == inst })
	h.mu.Unlock()
	if at < 0 {
		return nil // it has already been replaced, or has ended
	}
	fresh := h.newSlots(o)[at]
	if err := h.preflight(ctx, []*processSlot{fresh}, false); err != nil {
		return err
	}
	old := slots[at]
	slots[at] = fresh
	h.take([]*processSlot{old}, slots, o)
	h.dismiss([]*processSlot{old}, replaced)
	return nil
}

// preflight starts processes on slots that take no calls yet, all at the same time. If one fails, it ends all of them.
func (h *Host) preflight(ctx context.Context, slots []*processSlot, canaries bool) error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return unavailable(0, errClosed)
	}
	for _, s := range slots {
		h.aside[s] = true
	}
	h.mu.Unlock()
	var wg sync.WaitGroup
	problems := make([]error, len(slots))
	for at, s := range slots {
		wg.Go(func() { problems[at] = s.preflight(ctx, canaries) })
	}
	wg.Wait()
	err := cmp.Or(problems...)
	if err != nil {
		h.dismiss(slots, "the reload failed")
	}
	return err
}

func (s *processSlot) preflight(ctx context.Context, canaries bool) error {
	h := s.host
	began := time.Now()
	inst, err := s.launch(ctx)
	if err == nil && canaries && s.opts.Canary <= 0 { // otherwise launch has compared them
		if err = inst.compare(ctx, startCanaryTimeout); err != nil {
			inst.process.kill("its answers are not those of its texts")
			inst.client.Kill()
			err = &embed.Error{Class: embed.Configuration, Code: codeOf(err), Err: &StartError{
				Plugin: s.opts.Name,
				Path:   s.opts.Path, Err: err,
			}}
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	s.launching = nil
	if err == nil && h.closed {
		inst.process.kill(closing)
		inst.client.Kill()
		err = unavailable(0, errClosed)
	}
	if err != nil {
		return err
	}
	s.takenLocked(inst, time.Since(began))
	h.work.Add(1)
	go inst.watch(context.WithoutCancel(ctx))
	return nil
}

func codeOf(err error) string {
	_, code := embed.Classify(err)
	return code
}

// take makes the host use other slots for calls.
func (h *Host) take(old, slots []*processSlot, opts Options) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range old {
		h.aside[s] = true
	}
	h.slots, h.opts = slots, opts
	for _, s := range slots {
		delete(h.aside, s)
		if s.current != nil {
			desc := s.current.desc
			h.first = &desc
		}
	}
	h.breaker.succeeded() // past failures were those of the old processes
	close(h.moved)
	h.moved = make(chan struct{})
}

// dismiss ends the processes of slots that take no more calls, after the calls under way.
func (h *Host) dismiss(slots []*processSlot, reason string) {
	var wg sync.WaitGroup
	for _, s := range slots {
		wg.Go(func() { s.leave(reason) })
	}
	wg.Wait()
}
