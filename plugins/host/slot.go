package host

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/embedsidecar/embedsidecar/embed"
	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
)

// processSlot is the slot of one process: it is empty, starting, or has a running process.
type processSlot struct {
	host *Host
	opts Options
	out  *output

	// The host's lock guards the fields below.
	current   *instance
	starting  bool
	launching *process // the program that is being started; nil before
	delays    *backoff.ExponentialBackOff
	failures  int       // in a row
	notBefore time.Time // no start before this time
	failed    error     // why the last start failed; nil if it succeeded
}

// instance is a running process that has described itself.
type instance struct {
	slot    *processSlot
	process *process
	client  *goplugin.Client
	conn    *grpc.ClientConn
	rpc     pluginpb.EmbedderClient
	desc    embed.Description

	texts, bytes atomic.Int64  // of the calls under way
	bad          atomic.Int64  // bad answers in a row
	answered     atomic.Uint64 // good answers
	memory       atomic.Int64  // last measured, in bytes
	leaving      atomic.Bool   // above its memory limit, and being replaced

	// The host's lock guards the fields below.
	calls int           // under way
	begun uint64        // calls so far
	idle  chan struct{} // closed when calls reaches 0; nil unless leave waits

	restless time.Time // until then it may still work on a canceled call
}

// newSlots returns o.Processes empty slots.
func (h *Host) newSlots(o Options) []*processSlot {
	slots := make([]*processSlot, o.Processes)
	for i := range slots {
		log := o.Log
		if o.Processes > 1 {
			log = log.With("process", i+1)
		}
		one := o
		one.Log = log
		slots[i] = &processSlot{host: h, opts: one, out: newOutput(log, o.Redact), delays: newDelays(o.RestartDelay,
			o.RestartDelayMax)}
	}
	return slots
}

// everySlotLocked yields the slots that take calls and those set aside.
func (h *Host) everySlotLocked() iter.Seq[*processSlot] {
	return slices.Values(slices.AppendSeq(slices.Clone(h.slots), maps.Keys(h.aside)))
}

// start tries once to start the program, and wakes all waiters.
func (s *processSlot) start(ctx context.Context) {
	h := s.host
	defer h.work.Done()
	began := time.Now()
	inst, err := s.launch(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	s.starting, s.launching, s.failed = false, nil, err
	switch {
	case h.closed && err == nil:
		inst.process.kill(closing)
	case h.closed:
	case err != nil:
		h.unmade++
		_, code := embed.Classify(err) // callers get the error itself
		wait := s.failLocked()
		s.opts.Log.Warn("plugin not started", "code", code, "restart_in", wait, "failures_in_a_row", s.failures)
		h.failedLocked("it was not started (" + code + ")")
	default:
		s.takenLocked(inst, time.Since(began))
	}
	if inst != nil {
		h.work.Add(1) // this function's own count keeps Close waiting until here
		go inst.watch(ctx)
	}
	close(h.moved)
	h.moved = make(chan struct{})
}

// takenLocked records a started process.
func (s *processSlot) takenLocked(inst *instance, took time.Duration) {
	h := s.host
	s.current = inst
	h.first = cmp.Or(h.first, &inst.desc)
	h.stats.starts.Add(1)
	s.opts.Log.Info("plugin started", "pid", inst.process.pid, "version", inst.desc.Version, "model", inst.desc.Model,
		"fingerprint", inst.desc.Fingerprint, "dims", inst.desc.Dims, "took", took)
}

// failLocked counts a failure and delays the next start.
func (s *processSlot) failLocked() time.Duration {
	s.failures++
	wait := s.delays.NextBackOff()
	s.notBefore = time.Now().Add(wait)
	return wait
}

// recoveredLocked forgets failures after a good answer.
func (s *processSlot) recoveredLocked() {
	if s.failures > 0 {
		s.failures, s.notBefore = 0, time.Time{}
		s.delays.Reset()
	}
}

// watch guards a process until its end, and cleans up after it.
func (i *instance) watch(ctx context.Context) {
	h := i.slot.host
	defer h.work.Done()
	i.guard(ctx)
	i.slot.out.ended()
	h.mu.Lock()
	h.retireLocked(i)
	h.mu.Unlock()
	i.client.Kill()
}

// retireLocked records that a process has ended.
func (h *Host) retireLocked(inst *instance) {
	s := inst.slot
	if s.current != inst {
		return
	}
	s.current = nil
	state, _ := inst.process.ending()
	if h.closed || h.aside[s] {
		s.opts.Log.Info("plugin ended", "pid", inst.process.pid)
		return
	}
	h.stats.ends.Add(1)
	reason := inst.process.killedFor()
	wait := s.failLocked()
	log := s.opts.Log
	if reason == "" {
		reason = fmt.Sprintf("it died (%s)", state)
	} else {
		log = log.With("killed_because", reason)
	}
	log.Warn("plugin ended", "pid", inst.process.pid, "status", state.String(), "restart_in", wait,
		"failures_in_a_row", s.failures)
	h.failedLocked(reason)
}

// end asks a process to end, kills it when it does not, and waits until it is gone.
func (i *instance) end(reason string) {
	i.process.blame(reason)
	timer := time.AfterFunc(closeGracePeriod, func() { i.process.kill(reason) })
	i.client.Kill() // asks the process to exit first
	<-i.process.exited
	timer.Stop()
}

// leave ends the process of a slot after the calls under way. The host has already set the slot aside.
func (s *processSlot) leave(reason string) {
	h := s.host
	h.mu.Lock()
	for s.starting {
		moved := h.moved
		h.mu.Unlock()
		<-moved
		h.mu.Lock()
	}
	inst := s.current
	var idle chan struct{}
	if inst != nil && inst.calls > 0 {
		idle = make(chan struct{})
		inst.idle = idle
	}
	h.mu.Unlock()
	if idle != nil {
		select {
		case <-idle:
		case <-inst.process.exited:
		}
	}
	if inst != nil {
		inst.end(reason)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if inst != nil {
		h.retireLocked(inst)
	}
	delete(h.aside, s)
}
