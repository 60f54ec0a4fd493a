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
	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/door/serve"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/internal/setup/tenants"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
)

const (
	// lookEvery is how often it is looked for databases that are new or gone.
	lookEvery = 5 * time.Second
	// startingAtOnce is how many databases may be set up at a time, each for startingFor at most: one that hangs keeps no
	// other waiting for longer.
	startingAtOnce = 4
	startingFor    = 15 * time.Second
)

// several are the databases of a Node that are found, each of which is worked by itself: what one lacks harms no other.
type several struct {
	n      *Node
	o      RunOptions
	finder *tenants.Finder

	starting chan struct{} // has room for those that are set up
	service  *admin.Service

	cfg      atomic.Pointer[config.Config] // what is in force
	changing sync.Mutex                    // held while that changes
	leaving  []func() error                // ends embedders that nothing names any more; guarded by changing
	refused  string                        // what was said last of a configuration; guarded by changing

	mu     sync.Mutex
	list   map[string]*tenant // by name
	ending map[string]*tenant // gone, and not ended yet
	beyond int
	failed error // why some servers could not be asked
	looked bool
}

// tenant is one of several databases, while it is there.
type tenant struct {
	tenants.Tenant

	in     *several
	cancel context.CancelFunc
	done   chan struct{}
	shown  atomic.Pointer[shown]
	// while nothing changes; nil: it is worked
	resting atomic.Pointer[resting]
	passing atomic.Bool                   // it is worked for a moment, because it is time to look
	has     atomic.Pointer[config.Config] // what it was offered last of those of several.cfg
	err     error                         // of a run that ends; valid when done
}

// shown is what of a database is served.
type shown struct {
	db      *Database
	service *admin.Service

	mu      sync.Mutex
	api     *gate.API // made for the first who asks
	pages   http.Handler
	queries *gate.API
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

// run works databases that are found, and those that come, until ctx ends. With Reached it ends when each is worked.
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
		s.update(ctx, s.finder.Find(ctx), &all)
		if s.o.Reached != nil {
			all.Wait()
			return s.outcome()
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

// behind reports whether a database works that was begun with an older configuration.
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

// update begins the databases that are new and ends those that are gone. Where a server could not be asked, none is
// gone.
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
		s.n.o.Log.WarnContext(ctx, "databases not looked for", "error", found.Failed, "hints", problem.Hints(found.Failed))
	}
	for _, t := range gone {
		t.cancel()
		s.n.o.Log.InfoContext(ctx, "database gone", "database", t.Name)
	}
	for _, f := range found.List {
		if !s.has(f.Name) {
			s.begin(ctx, f, all)
		}
	}
	if first {
		if found.Beyond > 0 {
			s.n.o.Log.WarnContext(ctx, "more databases match than tenants.limit allows", "unserved", found.Beyond)
		}
		s.n.o.Working(ctx)
	}
}

// has reports whether a database is worked, or one of its name that is gone has not ended yet: nobody waits for it.
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

// begin works a database from now on.
func (s *several) begin(ctx context.Context, f tenants.Tenant, all *sync.WaitGroup) {
	ctx, cancel := context.WithCancel(embed.WithShare(ctx, embed.Share{Name: f.Name, Terms: f.Terms}))
	t := &tenant{Tenant: f, in: s, cancel: cancel, done: make(chan struct{})}
	c := s.cfg.Load()
	t.has.Store(c)
	t.show(c.For(f.DSN, f.Stream, fmt.Sprintf("%s_%d", c.Slot.Name, f.OID)))
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

// show has a database served by a configuration.
func (t *tenant) show(c *config.Config) {
	if old := t.shown.Load(); old != nil {
		old.db.source.Gone()
	}
	n := t.in.n
	o := n.o
	o.Config, o.Log = c, n.o.Log.With("database", t.Name)
	o.Reread = nil // see configure
	o.Working = func(context.Context) {}
	o.Setup = func(r setup.Report) { n.o.Setup(t.named(r)) }
	o.Warn = func(what string) { n.o.Warn(t.Name + ": " + what) }
	db := newDatabase(o, n.common, t.Name, observe.Starting)
	db.among = t
	is := &shown{db: db}
	is.service = db.service(t.Name, t.in.states, n)
	t.shown.Store(is)
}

// named is a report that says of which database it is.
func (t *tenant) named(r setup.Report) setup.Report {
	for i := range r.Steps {
		r.Steps[i].What = t.Name + ": " + r.Steps[i].What
	}
	return r
}

// keep works a database, and again when its work has ended with an error, until ctx ends.
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
			t.in.n.o.Log.ErrorContext(ctx, "a database cannot be worked now: it is tried again, and the others go on",
				"database", t.Name, "error", err, "hints", problem.Hints(err))
		}
		if !sleep.For(ctx, pause) {
			return err
		}
		pause = min(2*pause, longest)
	}
}

// once works a database until that ends.
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
		t.show(c)
		is = t.shown.Load()
	}
	is.db.started = leave
	return is.db.run(ctx, t.in.o, is.service, func() {})
}

// room waits for a place among those that are set up. What it returns gives it back, as the time does.
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

// outcome joins what became of the databases of a run that ends.
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

// names are those of the databases. The caller holds mu.
func (s *several) names() []string { return slices.Sorted(maps.Keys(s.list)) }

// states tells how the databases stand.
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

// find returns what is shown of a database, or why nothing is; neither where none is named.
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

// choice chooses what a request is answered by.
type choice = func(r *http.Request, database string) (*gate.API, http.Handler, *gate.Problem)

// administers chooses what administrators are answered by.
func (s *several) administers(base *admin.Service) choice {
	return func(r *http.Request, name string) (*gate.API, http.Handler, *gate.Problem) {
		is, p := s.find(name)
		if is == nil {
			return nil, nil, p
		}
		is.mu.Lock()
		defer is.mu.Unlock()
		if is.api == nil {
			made, err := s.n.pages(is.service)
			if err != nil {
				return nil, nil, base.ProblemOf(r.Context(), err)
			}
			is.api, is.pages = admin.NewAPI(is.service), made //nolint:contextcheck // requests bring their own
		}
		return is.api, is.pages, nil
	}
}

// queried chooses what queries are answered by: what is about pipelines by one of a database.
func (s *several) queried(base serve.Options) choice {
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
		is.mu.Lock()
		defer is.mu.Unlock()
		if is.queries == nil {
			o := base
			o.Backend = is.db.backend
			is.queries = serve.NewAPI(o) //nolint:contextcheck // requests bring their own
		}
		return is.queries, nil, nil
	}
}
