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

// Source is what a running program shows of one database. It is safe for concurrent use.
type Source struct {
	observer *Observer
	config   *config.Config // of this database
	name     string         // of the database; "": it is the only one

	mu        sync.Mutex
	collector *collector       // nil without a listener
	sidecar   *sidecar.Sidecar // nil while it starts
	pool      *pgxpool.Pool    // nil while there is none
	direct    *pgxpool.Pool
	standing  []report.Pipeline
	phase     Phase
	waits     error // why it does not come further with its start; nil: not known
	// what became of the configuration as it was written down last
	configured control.Configured
}

// Source makes a Source of a database, in the phase Starting, or Queries where nothing but queries is answered. Several
// are told apart by their names.
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

// None makes a Source that shows the program alone, where there are several databases.
func (o *Observer) None(c *config.Config) *Source {
	return &Source{observer: o, config: c, phase: Queries}
}

// collect begins to measure.
func (s *Source) collect() {
	o := s.observer.o
	o.Config = s.config
	c := newCollector(s.observer.scraping, o, s.observer.metrics, s.name)
	c.services = &s.observer.services
	s.mu.Lock()
	defer s.mu.Unlock()
	s.collector = c
}

// measured returns what measures, or nil where nobody listens.
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

// Gone shows nothing of the database any more.
func (s *Source) Gone() {
	o := s.observer
	o.mu.Lock()
	o.sources = slices.DeleteFunc(o.sources, func(other *Source) bool { return other == s })
	o.mu.Unlock()
	if c := s.measured(); c != nil {
		c.forget()
	}
}

// Fresh returns what notes how long rows have waited, or nil if nobody listens.
func (s *Source) Fresh() func(p *pipeline.Pipeline, d time.Duration) {
	c := s.measured()
	if c == nil {
		return nil
	}
	return func(p *pipeline.Pipeline, d time.Duration) { c.fresh(p.Name, d) }
}

// Wait shows what a start waits for.
func (s *Source) Wait(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits = why
}

// Configured shows what became of the configuration as it was written down last.
func (s *Source) Configured(told control.Configured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.configured = told
}

// Follow shows a sidecar that is about to run, and its pools of connections.
func (s *Source) Follow(running *sidecar.Sidecar, work, stream *pgxpool.Pool) {
	s.mu.Lock()
	s.sidecar, s.pool, s.direct, s.phase, s.waits = running, work, stream, Working, nil
	c := s.collector
	s.mu.Unlock()
	if c != nil { // not under the lock: a scrape asks for a Snapshot
		c.follow(running, s.Snapshot, work)
	}
}

// Leave shows that the sidecar has ended, and how the database stands until there is another.
func (s *Source) Leave(phase Phase, why error) {
	s.mu.Lock()
	s.sidecar, s.pool, s.direct, s.phase, s.waits = nil, nil, nil, phase, why
	c := s.collector
	s.mu.Unlock()
	if c != nil {
		c.leave(phase == Quiet)
	}
}

// Snapshot tells how the database stands, from what is known: it asks nobody.
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
		now.Stream, now.Pipelines = running.Stream(), running.States()
	}
	return now
}

// stand asks the tables where the pipelines of the slot stand, for a moment: a probe does not wait. It returns what
// they said last where they give no answer.
func (s *Source) stand(ctx context.Context) []report.Pipeline {
	const moment = 500 * time.Millisecond
	s.mu.Lock()
	pool, last := s.pool, s.standing
	s.mu.Unlock()
	if pool == nil {
		return last
	}
	ctx, cancel := context.WithTimeout(ctx, moment)
	defer cancel()
	list, err := report.Pipelines(ctx, pool)
	if err != nil {
		return last
	}
	list = slices.DeleteFunc(list, func(p report.Pipeline) bool { return p.Slot != s.config.Slot.Name })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.standing = list
	return list
}

// Snapshot is how this process stands at one moment. Probes, metrics and the control socket each show a part of it.
type Snapshot struct {
	Database string // its name where there are several
	Instance string
	Slot     string
	Version  string
	Pid      int
	Phase    Phase
	Waits    error // what the start waits for; nil: not known

	Stream    *replication.Stats // counts on; nil before the stream has begun
	Pipelines []sidecar.State    // those that this sidecar works
	Standing  []report.Pipeline  // where those of the slot stand, by the tables
	Plugins   []embedders.State

	Configured control.Configured // what became of the configuration as it was written down last
}

// Phase is how far a process is with its start.
type Phase int

// The phases.
const (
	Starting Phase = iota // waits for the database, or sets it up
	Working               // there is a sidecar
	Queries               // there is none and will be none: queries are answered and nothing else
	Quiet                 // nothing changes: it is looked at in turn
	Failing               // its work has ended with an error, and begins again by and by
)

// State is the phase as a word, of metrics.DatabaseStates.
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

// Trouble returns why the database is not worked, or not all of it; nil: it is.
func (s *Snapshot) Trouble() error {
	if s.Waits != nil && s.Phase != Quiet {
		return s.Waits
	}
	if err := s.streams(); err != nil {
		return err
	}
	return s.waiting()
}

// asWished reports whether a pipeline does not work because somebody wants that.
func asWished(code health.Code) bool {
	return slices.Contains([]health.Code{
		health.Paused, health.OutsideHours, health.BudgetSpent, health.Disabled, health.Held,
	}, code)
}

// Ready returns what must be so before work may be sent here, and how the pipelines stand, which is told beside: one
// that cannot be worked is no reason to send the others nothing.
func (s *Snapshot) Ready() []ops.Check {
	var checks []ops.Check
	if s.Phase != Queries {
		checks = append(checks, ops.Check{Name: "stream", Err: s.streams()})
	}
	for i := range s.Standing {
		p := &s.Standing[i]
		check := ops.Check{Name: "pipeline " + p.Name, Aside: true}
		// One that a person has paused is as it should be, and so is one outside of its hours.
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
			check.Err = fmt.Errorf("its circuit is %s: it fails again and again; last: %s", stats.Circuit, stats.Reason)
		case stats.Starts == 0:
			check.Err = errors.New("not started yet: it loads its model")
		}
		checks = append(checks, check)
	}
	return checks
}

// refused returns why the configuration as it is written down now is not in force, or nil.
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

// hinted are the ways out of an error, as they stand behind it.
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

// Control returns what the control socket tells.
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
