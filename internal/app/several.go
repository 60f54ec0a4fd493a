package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/filewatch"
	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/door/admin"
	"github.com/embedsidecar/embedsidecar/internal/door/dashboard"
	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/door/serve"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/internal/setup/tenants"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
)

const (
	// lookEvery is how often new and dropped databases are looked for.
	lookEvery = 5 * time.Second
	// startingAtOnce is how many databases may be set up at a time. Each keeps its place for at most startingFor, so that
	// one that hangs does not block the others.
	startingAtOnce = 4
	startingFor    = 15 * time.Second
)

// several are the databases that were found for a Node. Each runs separately: a failure of one does not affect the
// others.
type several struct {
	n      *Node
	o      RunOptions
	finder *tenants.Finder

	starting chan struct{} // places for databases that are set up
	service  *admin.Service
	asks     serve.Options // of the query API

	cfg      atomic.Pointer[config.Config] // in force
	changing sync.Mutex                    // held while cfg changes
	leaving  []func() error                // closes embedders that are no longer configured; guarded by changing
	refused  string                        // last logged result of a configuration; guarded by changing

	mu     sync.Mutex
	list   map[string]*tenant // by name
	ending map[string]*tenant // gone, but not stopped yet
	beyond int
	failed error // why some servers could not be asked
	looked bool
}

// tenant is one of several databases, while it exists.
type tenant struct {
	tenants.Tenant

	in     *several
	cancel context.CancelFunc
	done   chan struct{}
	shown  atomic.Pointer[shown]
	// nil: it does not rest
	resting atomic.Pointer[resting]
	passing atomic.Bool                   // it is awake only because a check was due
	has     atomic.Pointer[config.Config] // the last value of several.cfg that it was offered
	err     error                         // of a finished run; valid when done is closed
}

// shown is what is served of a database.
type shown struct {
	db      *Database
	service *admin.Service

	// made on first use
	api, queries func() *gate.API
	pages        func() *dashboard.Dashboard
}

func newSeveral(n *Node, o RunOptions) *several {
	s := &several{
		n: n, o: o, finder: &tenants.Finder{Config: n.o.Config, Log: n.o.Log}, list: map[string]*tenant{},
		ending:   map[string]*tenant{},
		starting: make(chan struct{}, startingAtOnce),
	}
	s.cfg.Store(n.o.Config)
	return s
}

// run runs the databases that are found, now and later, until ctx ends. With Reached it ends when all have caught up.
func (s *several) run(ctx context.Context, service *admin.Service) error {
	s.service = service
	defer s.finder.Close()
	var all sync.WaitGroup
	defer s.leave(ctx)
	defer all.Wait()
	file := fileOf(s.n.o.Config)
	again := func(ctx context.Context) bool { return !s.configure(ctx, "reload", "the file "+file, false).Passing }
	if file != "" && s.n.o.Reread != nil && s.o.Reached == nil {
		all.Go(func() { filewatch.Each(ctx, file, s.n.o.Log, again) })
	}
	s.n.observer.Unserved(func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.beyond
	})
	for {
		s.finder.Config = s.cfg.Load()
		found := s.finder.Find(ctx)
		s.update(ctx, found, &all)
		if s.o.Reached != nil {
			all.Wait()
			return errors.Join(s.outcome(), found.Nothing())
		}
		for next := time.Now().Add(lookEvery); time.Now().Before(next); {
			pause := lookEvery
			if s.look(ctx) {
				pause = time.Second
			}
			if !sleep.For(ctx, pause) {
				return ctx.Err()
			}
		}
		if s.behind() {
			again(ctx)
		}
	}
}

// behind reports whether a running database has an older configuration.
func (s *several) behind() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.list {
		if t.shown.Load().db.running.Load() != nil && t.has.Load() != s.cfg.Load() {
			return true
		}
	}
	return false
}

// update starts new databases and stops those that are gone. If a server could not be queried, none counts as gone.
func (s *several) update(ctx context.Context, found tenants.Found, all *sync.WaitGroup) {
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	told := s.failed
	s.beyond, s.failed = found.Beyond, found.Failed
	first := !s.looked
	s.looked = true
	var gone []*tenant
	for name, t := range s.list {
		there := slices.ContainsFunc(found.List, func(f tenants.Tenant) bool { return f == t.Tenant })
		if !there && found.Failed == nil {
			gone = append(gone, t)
			delete(s.list, name)
			s.ending[name] = t
		}
	}
	s.mu.Unlock()
	if found.Failed != nil && (told == nil || told.Error() != found.Failed.Error()) {
		s.n.o.Log.WarnContext(ctx, "could not look for databases", "error", found.Failed,
			"hints", problem.Hints(found.Failed))
	}
	for _, t := range gone {
		t.cancel()
		s.n.o.Log.InfoContext(ctx, "database gone", "database", t.Name)
	}
	for _, f := range found.List {
		if !s.has(f.Name) && (found.Failed == nil || !s.serves(f)) {
			s.begin(ctx, f, all)
		}
	}
	if first {
		if nothing := found.Nothing(); nothing != nil {
			s.n.o.Log.WarnContext(ctx, "waiting for a database", "reason", nothing, "hints", problem.Hints(nothing))
		}
		if found.Beyond > 0 {
			s.n.o.Log.WarnContext(ctx, "more databases match than tenants.limit allows", "unserved", found.Beyond)
		}
		s.n.o.Working(ctx)
	}
}

// has reports whether a database runs, or one of its name has not stopped yet.
func (s *several) has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.ending[name]; t != nil {
		select {
		case <-t.done:
			delete(s.ending, name)
		default:
			return true
		}
	}
	return s.list[name] != nil
}

// serves reports whether a database runs, under any name: while a server does not answer, those of others have longer
// names.
func (s *several) serves(f tenants.Tenant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.list {
		if t.DSN == f.DSN {
			return true
		}
	}
	return false
}

// begin starts a database.
func (s *several) begin(ctx context.Context, f tenants.Tenant, all *sync.WaitGroup) {
	ctx, cancel := context.WithCancel(embed.WithShare(ctx, embed.Share{Name: f.Name, Terms: f.Terms}))
	t := &tenant{Tenant: f, in: s, cancel: cancel, done: make(chan struct{})}
	c := s.cfg.Load()
	t.has.Store(c)
	t.show(c.For(f.DSN, f.Stream, fmt.Sprintf("%s_%d", c.Slot.Name, f.OID))) //nolint:contextcheck // requests bring their own
	s.mu.Lock()
	s.list[f.Name] = t
	s.mu.Unlock()
	all.Go(func() {
		defer close(t.done)
		defer cancel()
		t.err = t.keep(ctx)
		if s.o.Reached == nil {
			t.shown.Load().db.source.Gone()
		}
	})
}

// show serves a database with a configuration.
func (t *tenant) show(c *config.Config) {
	if old := t.shown.Load(); old != nil {
		old.db.source.Gone()
	}
	n := t.in.n
	o := n.o
	o.Config, o.Log = c, n.o.Log.With("database", t.Name)
	o.Reread = nil // several.configure does that
	o.Working = func(context.Context) {}
	o.Setup = func(r setup.Report) { n.o.Setup(t.named(r)) }
	o.Warn = func(what string) { n.o.Warn(t.Name + ": " + what) }
	db := newDatabase(o, n.common, t.Name, observe.Starting)
	db.among = t
	is := &shown{db: db, service: db.service(t.Name, t.in.states, n)}
	is.api = sync.OnceValue(func() *gate.API { return admin.NewAPI(is.service) })
	is.pages = sync.OnceValue(func() *dashboard.Dashboard { return n.pages(is.service) })
	is.queries = sync.OnceValue(func() *gate.API {
		o := t.in.asks
		o.Backend = db.backend
		return serve.NewAPI(o)
	})
	t.shown.Store(is)
}

// named adds the database's name to a report.
func (t *tenant) named(r setup.Report) setup.Report {
	for i := range r.Steps {
		r.Steps[i].What = t.Name + ": " + r.Steps[i].What
	}
	return r
}

// keep runs a database until ctx ends, and restarts it when it ends before.
func (t *tenant) keep(ctx context.Context) error {
	const shortest, longest = time.Second, 30 * time.Second
	pause := shortest
	told := ""
	for {
		began := time.Now()
		err := t.once(ctx)
		if ctx.Err() != nil || t.in.o.Reached != nil {
			return err
		}
		if time.Since(began) > longest {
			pause = shortest
		}
		is := t.shown.Load()
		if err == nil {
			err = errors.New("its work has ended")
		}
		is.db.source.Leave(observe.Failing, err)
		if err.Error() != told {
			told = err.Error()
			t.in.n.o.Log.ErrorContext(ctx, "a database failed: retrying; the others go on",
				"database", t.Name, "error", err, "hints", problem.Hints(err))
		}
		if !sleep.For(ctx, pause) {
			return err
		}
		pause = min(2*pause, longest)
	}
}

// once runs a database until it ends.
func (t *tenant) once(ctx context.Context) error {
	leave, err := t.in.room(ctx)
	if err != nil {
		return err
	}
	defer leave()
	is, now := t.shown.Load(), t.in.cfg.Load()
	c, err := tenants.Settle(ctx, now, t.Tenant, is.db.o.Log)
	if err != nil {
		return err
	}
	if before := t.has.Swap(now); before != now || c.Slot.Name != is.db.o.Config.Slot.Name {
		t.show(c) //nolint:contextcheck // requests bring their own
		is = t.shown.Load()
	}
	is.db.started = leave
	return is.db.run(ctx, t.in.o, is.service, func() {})
}

// room waits for a place among the databases that are set up. The returned function frees the place, and so does the
// end of startingFor.
func (s *several) room(ctx context.Context) (leave func(), err error) {
	select {
	case s.starting <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var once sync.Once
	back := func() { once.Do(func() { <-s.starting }) }
	late := time.AfterFunc(startingFor, back)
	return func() {
		late.Stop()
		back()
	}, nil
}

// outcome joins the errors of the databases, for a run with Reached.
func (s *several) outcome() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	problems := []error{s.failed}
	for _, name := range s.names() {
		if err := s.list[name].err; err != nil {
			problems = append(problems, fmt.Errorf("database %s: %w", name, err))
		}
	}
	return errors.Join(problems...)
}

// names returns the names of the databases, sorted. The caller holds mu.
func (s *several) names() []string { return slices.Sorted(maps.Keys(s.list)) }

func (s *several) states() []admin.DatabaseState {
	s.mu.Lock()
	list := lists.Map(s.names(), func(name string) *tenant { return s.list[name] })
	beyond, failed := s.beyond, s.failed
	s.mu.Unlock()
	states := []admin.DatabaseState{}
	for _, t := range list {
		now := t.shown.Load().db.source.Snapshot()
		state := admin.DatabaseState{Database: t.Name, State: now.State(), Slot: now.Slot, Terms: t.Terms}
		if why := cmp.Or(now.Trouble(), now.Waits); why != nil {
			state.Reason, state.Hints = why.Error(), problem.Hints(why)
		}
		states = append(states, state)
	}
	if beyond > 0 {
		states = append(states, admin.DatabaseState{
			Database: fmt.Sprintf("(%d more)", beyond), State: "unserved", Reason: "tenants.limit is reached",
		})
	}
	if failed != nil {
		states = append(states, admin.DatabaseState{
			Database: "(others)", State: "failing", Reason: failed.Error(), Hints: problem.Hints(failed),
		})
	}
	return states
}

// find returns what is shown of a database, or a problem if there is none of that name. An empty name returns neither.
func (s *several) find(name string) (*shown, *gate.Problem) {
	if name == "" {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.list[name]; t != nil {
		return t.shown.Load(), nil
	}
	return nil, gate.NoDatabase(name)
}

// choice chooses the API that answers a request.
type choice = func(r *http.Request, database string) (*gate.API, http.Handler, *gate.Problem)

// administers chooses the admin API of a database.
func (s *several) administers() choice {
	return func(_ *http.Request, name string) (*gate.API, http.Handler, *gate.Problem) {
		is, p := s.find(name)
		if is == nil {
			return nil, nil, p
		}
		return is.api(), is.pages(), nil
	}
}

// queried chooses the query API of a database. Requests about pipelines must name a database.
func (s *several) queried(o serve.Options) choice {
	s.asks = o
	return func(r *http.Request, name string) (*gate.API, http.Handler, *gate.Problem) {
		if name == "" && serve.AsksPipelines(r.URL.Path) {
			who, _ := gate.CallerOf(r.Context())
			s.mu.Lock()
			defer s.mu.Unlock()
			return nil, nil, gate.ChooseDatabase(slices.DeleteFunc(s.names(),
				func(name string) bool { return !who.SeesDatabase(name) }))
		}
		is, p := s.find(name)
		if is == nil {
			return nil, nil, p
		}
		return is.queries(), nil, nil
	}
}
