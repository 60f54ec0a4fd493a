package observe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/named/control"
	"github.com/embedsidecar/embedsidecar/internal/named/embedders"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/status/ops"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	"github.com/embedsidecar/embedsidecar/replication"
)

// Source is the state of one database in a running program. It is safe for concurrent use.
type Source struct {
	observer *Observer
	config   *config.Config // of this database
	name     string         // name of the database; "": it is the only one

	mu        sync.Mutex
	collector *collector       // nil without a listener
	sidecar   *sidecar.Sidecar // nil while it starts
	pool      *pgxpool.Pool    // nil while not connected
	direct    *pgxpool.Pool
	standing  []report.Pipeline
	phase     Phase
	waits     error // why its start does not proceed; nil: unknown
	// the result of the last configuration file
	configured control.Configured
}

// Source makes a Source of a database, in the phase Starting, or in Queries if the program only answers queries. Names
// tell several databases apart.
func (o *Observer) Source(c *config.Config, name string, phase Phase) *Source {
	s := &Source{observer: o, config: c, name: name, phase: phase}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sources = append(o.sources, s)
	if o.metrics != nil {
		s.collect()
	}
	return s
}

// None makes a Source without a database, for a program with several databases.
func (o *Observer) None(c *config.Config) *Source {
	return &Source{observer: o, config: c, phase: Queries}
}

func (s *Source) collect() {
	o := s.observer.o
	o.Config = s.config
	c := newCollector(s.observer.scraping, o, s.observer.metrics, s.name)
	c.services = &s.observer.services
	s.mu.Lock()
	defer s.mu.Unlock()
	s.collector = c
}

// measured returns the collector, or nil without a listener.
func (s *Source) measured() *collector {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.collector
}

func (s *Source) close() {
	if c := s.measured(); c != nil {
		c.close()
	}
}

// Gone removes the database.
func (s *Source) Gone() {
	o := s.observer
	o.mu.Lock()
	o.sources = slices.DeleteFunc(o.sources, func(other *Source) bool { return other == s })
	o.mu.Unlock()
	if c := s.measured(); c != nil {
		c.forget()
	}
}

// Fresh returns a function that records how long rows have waited, or nil without a listener.
func (s *Source) Fresh() func(p *pipeline.Pipeline, d time.Duration) {
	c := s.measured()
	if c == nil {
		return nil
	}
	return func(p *pipeline.Pipeline, d time.Duration) { c.fresh(p.Name, d) }
}

// Wait sets what the start waits for.
func (s *Source) Wait(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits = why
}

// Configured sets the result of the last configuration file.
func (s *Source) Configured(told control.Configured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.configured = told
}

// Follow starts following a sidecar that is about to run, and its connection pools.
func (s *Source) Follow(running *sidecar.Sidecar, work, stream *pgxpool.Pool) {
	s.mu.Lock()
	s.sidecar, s.pool, s.direct, s.phase, s.waits = running, work, stream, Working, nil
	c := s.collector
	s.mu.Unlock()
	if c != nil { // not under the lock, because a scrape takes a Snapshot
		c.follow(running, s.Snapshot, work)
	}
}

// Leave records that the sidecar has ended, and the phase of the database until the next one.
func (s *Source) Leave(phase Phase, why error) {
	s.mu.Lock()
	s.sidecar, s.pool, s.direct, s.phase, s.waits = nil, nil, nil, phase, why
	c := s.collector
	s.mu.Unlock()
	if c != nil {
		c.leave(phase == Quiet)
	}
}

// Snapshot returns the known state of the database, without a query.
func (s *Source) Snapshot() Snapshot {
	s.mu.Lock()
	running, phase, waits, configured := s.sidecar, s.phase, s.waits, s.configured
	s.mu.Unlock()
	now := Snapshot{
		Configured: configured,
		Database:   s.name, Instance: s.config.Instance, Slot: s.config.Slot.Name, Version: s.observer.o.Build.Version,
		Pid: os.Getpid(), Phase: phase, Waits: waits, Plugins: s.observer.o.Plugins.States(),
	}
	if running != nil {
		now.Stream, now.Pipelines, now.WorksOnly = running.Stream(), running.States(), running.WorksOnly()
	}
	return now
}

// stand reads the states of the slot's pipelines, with a short limit, because a probe must not wait. Without an answer
// it returns the last ones, and the error unless the answer is only slow.
func (s *Source) stand(ctx context.Context) ([]report.Pipeline, error) {
	s.mu.Lock()
	pool, last := s.pool, s.standing
	s.mu.Unlock()
	if pool == nil {
		return last, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	list, err := report.Pipelines(ctx, pool)
	if ctx.Err() != nil {
		return last, nil
	}
	if err != nil {
		return last, err
	}
	list = slices.DeleteFunc(list, func(p report.Pipeline) bool { return p.Slot != s.config.Slot.Name })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.standing = list
	return list, nil
}

// Snapshot is the state of this process at one moment. Probes, metrics and the control socket show parts of it.
type Snapshot struct {
	Database string // its name, if there are several
	Instance string
	Slot     string
	Version  string
	Pid      int
	Phase    Phase
	Waits    error // what the start waits for; nil: unknown

	Stream    *replication.Stats // live counters; nil before the stream has begun
	WorksOnly bool               // there is no stream, and never will be
	Away      error              // why the states could not be read; only a probe reads them
	Pipelines []sidecar.State    // those that this sidecar works on
	Standing  []report.Pipeline  // states of the slot's pipelines, from the tables
	Plugins   []embedders.State

	Configured control.Configured // the result of the last configuration file
}

// Phase is the phase of a database in this process.
type Phase int

// The phases.
const (
	Starting Phase = iota // waits for the database, or sets it up
	Working               // a sidecar runs
	Queries               // only queries are answered, without a sidecar
	Quiet                 // nothing changes: it is checked in turn with others
	Failing               // its sidecar has ended with an error, and will be restarted
)

// State returns the phase as one of metrics.DatabaseStates.
func (s *Snapshot) State() string {
	switch {
	case s.Phase == Failing:
		return "failing"
	case s.Phase == Quiet:
		return "quiet"
	case s.Phase == Working && s.streams() == nil:
		return "working"
	}
	return "starting"
}

// Trouble returns why the database or a part of it is not processed, or nil.
func (s *Snapshot) Trouble() error {
	if s.Waits != nil && s.Phase != Quiet {
		return s.Waits
	}
	if err := s.streams(); err != nil {
		return err
	}
	return s.waiting()
}

// asWished reports whether a state in which a pipeline does not work is intended.
func asWished(code health.Code) bool {
	return slices.Contains([]health.Code{
		health.Paused, health.OutsideHours, health.BudgetSpent, health.Disabled, health.Held,
	}, code)
}

// Ready returns the readiness checks. Those of pipelines do not affect readiness, since one broken pipeline is no
// reason to send no work for the others.
func (s *Snapshot) Ready() []ops.Check {
	var checks []ops.Check
	switch {
	case s.Phase == Queries:
	case s.Phase == Working && s.WorksOnly:
		checks = append(checks, ops.Check{Name: "database", Err: s.streams()})
	default:
		checks = append(checks, ops.Check{Name: "stream", Err: s.streams()})
	}
	for i := range s.Standing {
		p := &s.Standing[i]
		check := ops.Check{Name: "pipeline " + p.Name, Aside: true}
		// A pipeline that was paused, or is outside of its hours, is in an intended state.
		if p.State == health.Otherwise || p.State == health.BudgetSpent || !p.Works && !asWished(p.State) {
			check.Err = fmt.Errorf("%s: %s", p.State.Word(), p.Health())
		}
		checks = append(checks, check)
	}
	if s.Phase == Working {
		checks = append(checks, ops.Check{Name: "configuration", Aside: true, Err: s.refused()})
	}
	for i := range s.Plugins {
		check, stats := ops.Check{Name: "plugin " + s.Plugins[i].Plugin}, &s.Plugins[i].Stats
		switch {
		case stats.CircuitOpen():
			check.Err = fmt.Errorf("its circuit is %s after repeated failures; last: %s", stats.Circuit, stats.Reason)
		case stats.Starts == 0:
			check.Err = errors.New("not started yet: it loads its model")
		}
		checks = append(checks, check)
	}
	return checks
}

// refused returns why the last configuration file is not in force, or nil.
func (s *Snapshot) refused() error {
	switch c := &s.Configured; {
	case c.State == control.Refused:
		return fmt.Errorf("refused, the one before stays in force: %s", strings.Join(append([]string{c.Reason},
			c.Hints...), "; "))
	case len(c.NeedsRestart) > 0:
		return fmt.Errorf("takes effect at the next start: %s", strings.Join(c.NeedsRestart, ", "))
	}
	return nil
}

// hinted returns the hints of an error, to be appended to it.
func hinted(err error) string {
	hints := problem.Hints(err)
	if len(hints) == 0 {
		return ""
	}
	return "; " + wording.Joined(hints)
}

// streams returns why changes do not arrive here, or nil.
func (s *Snapshot) streams() error {
	switch {
	case s.Phase == Quiet:
		return nil
	case s.Phase == Failing:
		return fmt.Errorf("failing: %w%s", s.Waits, hinted(s.Waits))
	case s.Phase == Starting && s.Waits != nil:
		return fmt.Errorf("starting: %w%s", s.Waits, hinted(s.Waits))
	case s.Phase == Starting:
		return errors.New("starting: waits for the database, sets it up, and loads the models")
	case s.WorksOnly && s.Away != nil:
		return fmt.Errorf("no connection to the database: %w", s.Away)
	case s.WorksOnly:
		return nil
	case s.Stream == nil:
		return errors.New("starting")
	case !s.Stream.Connected.Load() && !s.Stream.Standby.Load():
		if trouble := s.Stream.Trouble.Load(); trouble != nil && trouble.Err != nil {
			return fmt.Errorf("no connection to the slot: %w%s", trouble.Err, hinted(trouble.Err))
		}
		return errors.New("no connection to the slot")
	}
	return nil
}

// Control returns the state for the control socket.
func (s *Snapshot) Control() control.State {
	state := control.State{
		Instance: s.Instance, Slot: s.Slot, Version: s.Version, Pid: s.Pid,
		Plugins: []control.Plugin{},
	}
	for i := range s.Plugins {
		p, stats := &s.Plugins[i], &s.Plugins[i].Stats
		state.Plugins = append(state.Plugins, control.Plugin{
			Plugin: p.Plugin, Model: p.Model, Version: stats.Version, Path: p.Path,
			Circuit: stats.Circuit, Reason: stats.Reason, RetrySeconds: stats.RetryIn.Seconds(),
			Wanted: stats.Wanted, Processes: p.Processes(), Restarts: stats.Restarts(), Hangs: stats.Hangs,
			BadAnswers: stats.BadAnswers, Calls: stats.Calls, Texts: stats.Texts,
		})
	}
	return state
}
