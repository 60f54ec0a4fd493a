package sidecar

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/restart"
	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/jobs"
	"github.com/embedsidecar/embedsidecar/internal/engine/worker"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/replication"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// supervise keeps the pipelines running: it starts them, stops those that no longer fit their table, and restarts them
// once they fit again. It loads pipelines if nil.
func (s *Sidecar) supervise(ctx, hard context.Context, pipelines []pipeline.Pipeline) error {
	defer s.described.work.Wait()
	defer s.stopAll()
	noted, again, starting := true, false, false
	apply := func() {
		again, starting = s.apply(ctx, hard, pipelines)
		s.wakeScans(ctx)
	}
	scans := time.NewTicker(6 * s.o.Heartbeat)
	defer scans.Stop()
	if pipelines != nil {
		noted = s.note(ctx, pipelines)
		apply()
	} else {
		s.Reload()
	}
	for {
		// A pipeline that cannot run now (embedder down, table changed) is retried every heartbeat.
		var retry, late <-chan time.Time
		if again || !noted {
			retry = time.After(s.o.Heartbeat)
		}
		if starting {
			late = time.After(startTimeout)
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-s.broken:
			return err
		case <-s.progress: // nothing to load
			apply()
			continue
		case <-late:
			apply()
			continue
		case <-scans.C:
			s.wakeScans(ctx)
			continue
		case <-s.scanned:
			s.wakeScans(ctx)
			continue
		case <-s.reload:
		case <-retry:
		}
		loaded, err := s.refresh(ctx)
		held := errors.Is(err, replication.ErrHeld)
		if held {
			s.o.Log.WarnContext(ctx, "routes not stored", "error", err)
		}
		if err == nil || held {
			err = s.stillKnown(ctx)
		}
		if err != nil {
			if ctx.Err() == nil {
				s.o.Log.WarnContext(ctx, "pipelines not loaded", "error", err)
			}
			again = true
			continue
		}
		pipelines, noted = loaded, s.note(ctx, loaded) && !held
		s.described.forget()
		apply()
	}
}

// Reload requests loading the pipelines again because something about them changed.
func (s *Sidecar) Reload() {
	sleep.Wake(s.reload)
}

// refresh loads the pipelines and passes them to the stream, which stores their routes.
func (s *Sidecar) refresh(ctx context.Context) ([]pipeline.Pipeline, error) {
	s.refreshing.Lock()
	defer s.refreshing.Unlock()
	loaded, err := s.o.Load(ctx)
	if err != nil {
		return nil, err
	}
	s.loaded.Store(&loaded)
	s.mu.Lock()
	stream := s.stream
	s.mu.Unlock()
	if stream == nil {
		return loaded, nil
	}
	s.setUrgencies(loaded)
	stream.SetPipelines(loaded)
	return loaded, stream.StoreRoutes(ctx)
}

// prepare returns Options.Prepare of the stream. The server may have changed between two sessions.
func (s *Sidecar) prepare() func(ctx context.Context) error {
	first := true
	return func(ctx context.Context) error {
		if !first {
			s.forget()
		}
		first = false
		if _, err := s.refresh(ctx); !errors.Is(err, replication.ErrHeld) {
			return err
		}
		return nil
	}
}

// forget drops everything cached about the pipelines.
func (s *Sidecar) forget() {
	if s.o.Forget != nil {
		s.o.Forget()
	}
}

// note stores which pipelines fit their tables, for status and wait. It returns false if it must be retried, for
// example because another session holds a lock on some of them.
func (s *Sidecar) note(ctx context.Context, pipelines []pipeline.Pipeline) bool {
	err := s.noteAtOnce(ctx, pipelines)
	if len(pipelines) > 1 && database.LockedOut(err) {
		err = nil
		for i := range pipelines {
			err = errors.Join(err, s.noteAtOnce(ctx, pipelines[i:i+1]))
		}
	}
	if err != nil && ctx.Err() == nil {
		s.o.Log.WarnContext(ctx, "status of pipelines not stored", "error", err)
	}
	return err == nil
}

func (s *Sidecar) noteAtOnce(ctx context.Context, pipelines []pipeline.Pipeline) error {
	ids := make([]int32, len(pipelines))
	statuses, details := make([]string, len(pipelines)), make([]string, len(pipelines))
	for i, p := range pipelines {
		ids[i], statuses[i], details[i] = p.ID, string(p.Status), p.Detail
	}
	_, err := s.o.Pool.Exec(ctx, sqlfiles.Query("note_status"), pgx.StrictNamedArgs{
		"pipeline_ids": ids,
		"statuses":     statuses, "details": details,
	})
	return err
}

// apply starts and stops workers to match the loaded pipelines. It does not wait for embedders: one that hangs does not
// delay starting or pausing other pipelines. again: some pipeline could not be started. starting: one will start when
// its embedder answers, which signals s.progress.
func (s *Sidecar) apply(ctx, hard context.Context, pipelines []pipeline.Pipeline) (again, starting bool) {
	wanted := map[int32]bool{}
	states := make([]State, 0, len(pipelines))
	for _, p := range pipelines {
		wanted[p.ID] = true
		state := State{Pipeline: p}
		if r := s.find(p.ID); r != nil && !reflect.DeepEqual(r.pipeline, p) {
			s.stop(p.ID)
		}
		if state.Problem = s.whyStopped(p); state.Problem != nil {
			s.stop(p.ID)
			again = again || p.Enabled && !p.Halted && (p.Status != pipeline.Active || !p.Closed) && !s.idle()
		} else if err := s.start(ctx, hard, p); err != nil {
			state.Problem = s.problem(err)
			if wait, is := errors.AsType[*startingError](err); !is {
				again = true
			} else if starting = true; time.Since(wait.since) < startTimeout {
				states = append(states, s.before(p)...)
				continue
			}
		}
		if r := s.find(p.ID); r != nil {
			state.Worker = r.worker.Stats()
			state.service = s.Service(p.ModelName())
			state.Service = state.service.Stats()
			s.waits(ctx, p.Name, nil)
		} else {
			s.waits(ctx, p.Name, state.Problem)
		}
		states = append(states, state)
	}
	s.mu.Lock()
	var left []int32
	for id := range s.running {
		if !wanted[id] {
			left = append(left, id)
		}
	}
	s.states = states
	s.mu.Unlock()
	for _, id := range left {
		s.stop(id)
	}
	if len(left) > 0 {
		sleep.Wake(s.left)
	}
	return again, starting
}

// before returns the previous state of a pipeline that is starting, if any.
func (s *Sidecar) before(p pipeline.Pipeline) []State {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.IndexFunc(s.states, func(state State) bool { return state.Pipeline.ID == p.ID })
	if at < 0 {
		return nil
	}
	state := s.states[at]
	state.Pipeline = p
	return []State{state}
}

// idle reports whether this sidecar never embeds.
func (s *Sidecar) idle() bool { return s.o.Disabled || s.o.NoWork }

// whyStopped returns why a pipeline must not run; nil: it may.
func (s *Sidecar) whyStopped(p pipeline.Pipeline) *health.Problem {
	switch {
	case s.o.Disabled:
		return &health.Problem{Code: health.Disabled, Detail: "the sidecar is switched off"}
	case s.o.NoWork:
		return &health.Problem{Code: health.Disabled, Detail: "the sidecar streams only (run --role stream), and no other one embeds"}
	case !p.Enabled:
		return &health.Problem{Code: health.Paused, Detail: "paused"}
	case p.Halted: // its workers would keep asking for tasks in vain
		return &health.Problem{Code: health.Paused, Detail: "all pipelines are paused"}
	case p.Status != pipeline.Active:
		return &health.Problem{Code: health.Code(p.Status), Detail: p.Detail}
	case p.Closed:
		return &health.Problem{Code: health.OutsideHours, Detail: "outside of its hours (" + string(p.Active) + ")"}
	case p.Spent && !p.Paid:
		return &health.Problem{Code: health.BudgetSpent, Detail: "its budget, or that of its model, is spent"}
	}
	return nil
}

// wakeScans wakes the scans that have work, with one query for all of them.
func (s *Sidecar) wakeScans(ctx context.Context) {
	open, err := database.Collect(ctx, s.o.Pool, "open_scans", pgx.RowTo[int32], pgx.StrictNamedArgs{"slot": s.o.Slot})
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil { // wake all
		open = slices.Collect(maps.Keys(s.running))
	}
	for _, id := range open {
		if r := s.running[id]; r != nil {
			sleep.Wake(r.scan)
		}
	}
}

func (s *Sidecar) find(id int32) *running {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running[id]
}

// Service returns the service of a model; nil unless a pipeline with it is or was running.
func (s *Sidecar) Service(name pipeline.ModelName) *embed.Service {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.services[name]
}

// serviceFor returns the service of a pipeline's embedder. It creates it if necessary.
func (s *Sidecar) serviceFor(ctx context.Context, p pipeline.Pipeline) (*embed.Service, error) {
	if service := s.Service(p.ModelName()); service != nil {
		return service, nil
	}
	embedder, err := s.o.Embedder(ctx, &p)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	service := s.shared[embedder]
	if service == nil {
		service = s.o.Service(embedder)
		s.shared[embedder] = service
	}
	s.services[p.ModelName()] = service
	return service, nil
}

// start starts a pipeline unless it is running. The embedder must be the one that made the pipeline's vectors.
func (s *Sidecar) start(ctx, hard context.Context, p pipeline.Pipeline) error {
	if s.find(p.ID) != nil {
		return nil
	}
	if since := s.stoppedAt(p.ID); !since.IsZero() {
		return &startingError{since, "an earlier batch is still in the embedder"}
	}
	service, err := s.serviceFor(ctx, p)
	if err != nil {
		return fmt.Errorf("start the embedder: %w", err)
	}
	d, err := s.described.get(ctx, service)
	if err != nil {
		return fmt.Errorf("describe the embedder: %w", err)
	}
	if !p.Stored.Takes(d.Sparse) {
		return &otherModelError{fmt.Sprintf(
			"the destination is of type %s, which cannot hold the vectors of model %q (sparse: %t): restore its type, or create a new pipeline", p.Stored, d.Model, d.Sparse)}
	}
	if !p.MadeBy(d) {
		return &otherModelError{fmt.Sprintf(
			"the embedder is not the one its vectors were made with (%s, %d wide; now %s, %d wide)",
			short(p.Fingerprint), p.Dims, short(d.Fingerprint), d.Dims)}
	}
	rctx, cancel := context.WithCancel(ctx)
	r := &running{pipeline: p, service: service, cancel: cancel, done: make(chan struct{}), scan: make(chan struct{}, 1)}
	kept := p
	var fresh func(time.Duration)
	if s.o.Fresh != nil {
		fresh = func(d time.Duration) { s.o.Fresh(&kept, d) }
	}
	var batches *jobs.Jobs
	options := worker.Options{
		Work: s.o.Work, Pipeline: &kept, DB: s.o.Pool, Queue: s.queue, Service: service, ID: s.me().id, Log: s.o.Log,
		UserPath: s.userPath,
		Fresh:    fresh, Broken: func() { s.forget(); s.Reload() },
		Siblings: func() map[int32]*pipeline.Pipeline { return s.siblings(r) }, Budget: s.budget, Keeper: s.keeper,
		Overtime: s.overtime,
		Tracer:   s.tracer,
		Book:     s.book,
		Spent:    s.Reload,
		Storable: s.storable,
	}
	if p.Jobs {
		batches = s.jobsOf(&kept, service)
		options.Jobs = batches
	}
	r.worker = worker.New(options)
	var wg sync.WaitGroup
	if !p.Paid {
		wg.Go(func() { s.giveUp(r.worker.Run(rctx, hard)) })
		wg.Go(func() {
			s.giveUp(s.keeper.Keep(rctx, restart.Scan, func(ctx context.Context) error {
				return worker.NewScan(r.worker).Run(ctx, 6*s.o.Heartbeat, r.scan)
			}))
		})
	}
	if batches != nil {
		wg.Go(func() {
			s.giveUp(s.keeper.Keep(rctx, restart.Scan, func(ctx context.Context) error { return batches.Run(ctx, r.worker) }))
		})
	}
	go func() { wg.Wait(); close(r.done) }()
	s.mu.Lock()
	s.running[p.ID] = r
	s.mu.Unlock()
	s.o.Log.InfoContext(ctx, "pipeline started", "pipeline", p.Name, "model", d.Model, "plugin", d.Plugin, "dims", d.Dims)
	return nil
}

// giveUp ends the sidecar if a worker loop could not be restarted.
func (s *Sidecar) giveUp(err error) {
	if err == nil {
		return
	}
	select {
	case s.broken <- err:
	default: // it is already ending
	}
}

// siblings returns the other running pipelines with the same embedder. It is called for each new text, so it does not
// copy pipelines.
func (s *Sidecar) siblings(of *running) map[int32]*pipeline.Pipeline {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[int32]*pipeline.Pipeline, len(s.running))
	for id, r := range s.running {
		if r != of && r.service == of.service && r.pipeline.Fingerprint == of.pipeline.Fingerprint {
			all[id] = &r.pipeline
		}
	}
	return all
}

func short(fingerprint string) string { return fingerprint[:min(12, len(fingerprint))] }

// stop stops a pipeline without waiting: its current work is finished in the background.
func (s *Sidecar) stop(id int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.running[id]
	if r == nil {
		return
	}
	delete(s.running, id)
	s.stopped[id] = time.Now()
	r.cancel()
	s.stopping.Go(func() {
		<-r.done
		s.mu.Lock()
		delete(s.stopped, id)
		s.settleSpentLocked(id, r)
		s.settleDayLocked(r, time.Now())
		s.mu.Unlock()
		s.goOn()
	})
}

// stoppedAt returns when a pipeline with unfinished work was stopped; zero: it has none.
func (s *Sidecar) stoppedAt(id int32) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped[id]
}

// goOn wakes the supervisor: a waiting pipeline may be able to start.
func (s *Sidecar) goOn() {
	sleep.Wake(s.progress)
}

func (s *Sidecar) stopAll() {
	s.mu.Lock()
	ids := slices.Collect(maps.Keys(s.running))
	s.mu.Unlock()
	for _, id := range ids {
		s.stop(id)
	}
	s.stopping.Wait()
}
