package observe

import (
	"context"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/named/control"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
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
