package app

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/setup/tenants"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// If there are more databases than tenants.awake, quiet ones rest: their sidecars and connections end. One session per
// server reads the server's change counters each second. The counters miss some changes, so the slot and the queue are
// checked when all sessions have left, and after tenants.look.
const (
	// passingFor is the minimum run time of a database after a long rest.
	passingFor = 2 * time.Second
	// lookTimeout limits a query about resting databases.
	lookTimeout = 10 * time.Second
	// mostBehind is how many bytes of WAL the slot of a resting database may retain before the database is woken.
	mostBehind = 64 << 20
	// passingAtOnce is how many databases may be awake at a time only because their check is due.
	passingAtOnce = 4
)

// mayRest reports whether a database may rest at all: its server reports changes, and no pooler keeps its sessions.
func (n *Database) mayRest(r *run) bool {
	return n.among != nil && n.among.Server != "" && r.o.Role == All && !database.Pooled(r.p.work)
}

// quietAfter is how long nothing must change before the database rests.
func (n *Database) quietAfter() time.Duration {
	const share = 5
	return n.among.looks() / share
}

// keepQuiet makes the database rest when nothing has changed for a while. After a rest the while is shorter, because it
// may not have been a change of a pipeline's rows that woke the database.
func (n *Database) keepQuiet(ctx context.Context, r *run) {
	moved, since, passing := int64(0), time.Now(), n.passing
	defer n.among.passing.Store(false)
	for sleep.For(ctx, time.Second) {
		now, streams := r.moves()
		if moved != now {
			since, passing = time.Now(), 0
			n.among.passing.Store(false)
		}
		moved = now
		after := n.quietAfter()
		if passing > 0 {
			after = min(passing, after)
		}
		if !streams || !n.among.in.rest() || time.Since(since) < after {
			continue
		}
		rest, err := n.quiet(ctx, r)
		if err != nil && ctx.Err() == nil {
			n.o.Log.DebugContext(ctx, "the database cannot rest", "error", err)
		}
		if rest != nil {
			select {
			case r.quiet <- rest:
			case <-ctx.Done():
			}
		}
		since, passing = time.Now(), min(2*passing, n.quietAfter())
		n.among.passing.Store(false)
	}
}

// moves returns a counter that grows when rows of pipelines change or a query is asked, and whether the stream runs.
// Transactions do not count: those before a restart come again, and before PostgreSQL 15 all are sent.
func (r *run) moves() (n int64, streams bool) {
	s := r.sidecar.Load()
	if s == nil || s.Stream() == nil {
		return 0, false
	}
	stats := s.Stream()
	n = stats.Changes.Load()
	if asked := s.Asked(); asked != nil {
		n += asked.Answered.Load() + asked.Failed.Load()
	}
	return n, stats.Streaming.Load() || stats.Standby.Load()
}

// quiet returns a rest if nothing is left to do here, and nil otherwise.
func (n *Database) quiet(ctx context.Context, r *run) (*resting, error) {
	if n.building.Load() || !n.changing.TryLock() {
		return nil, nil
	}
	defer n.changing.Unlock()
	n.deployed.mu.Lock()
	settled := n.deployed.told && len(n.deployed.problems)+len(n.deployed.leaving) == 0
	n.deployed.mu.Unlock()
	s := r.sidecar.Load()
	if !settled || s == nil {
		return nil, nil
	}
	for _, state := range s.States() {
		if state.Problem != nil && state.Problem.Code != health.Paused {
			return nil, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	rest := &resting{left: make(chan struct{}, 1), wake: make(chan struct{}, 1)}
	if nothing, err := n.nothingToDo(ctx, r, rest); err != nil || !nothing {
		return nil, err
	}
	// An idle stream stores its position late. Without this wait, changes that were processed would come again.
	lsn, err := report.Now(ctx, r.p.work)
	if err != nil {
		return nil, err
	}
	if _, err = report.Wait(ctx, r.p.work, n.config().Slot.Name, lsn); err != nil {
		return nil, err
	}
	look := n.among.looks()
	rest.since = time.Now()
	rest.until = rest.since.Add(sleep.Between(look*4/5, look))
	return rest, nil
}

// nothingToDo reports whether the tables have no work left, and stores the publication in rest.
func (n *Database) nothingToDo(ctx context.Context, r *run, rest *resting) (nothing bool, err error) {
	err = r.p.work.QueryRow(ctx, sqlfiles.Query("nothing_to_do"), pgx.StrictNamedArgs{"slot": n.config().Slot.Name}).
		Scan(&nothing, &rest.publication)
	return nothing, wrap.Errorf(err, "ask whether there is something to do")
}

// rest waits without a connection until something changes or a check is due.
func (n *Database) rest(ctx context.Context, r *run, rest *resting) {
	n.source.Leave(observe.Quiet, rest)
	if err := r.leave(); err != nil {
		n.o.Log.WarnContext(ctx, "a plugin did not stop cleanly", "error", err)
	}
	n.o.Log.DebugContext(ctx, "no changes: the database rests", "until", rest.until)
	n.among.resting.Store(rest)
	defer func() {
		n.among.resting.Store(nil)
		n.passing = min(max(2*n.passing, passingFor), n.quietAfter())
		if time.Since(rest.since) > n.quietAfter() {
			n.passing = passingFor
		}
	}()
	for {
		for _, pool := range []*pgxpool.Pool{r.p.work, r.p.stream, r.p.queries, r.p.admin} {
			pool.Reset()
		}
		select {
		case <-ctx.Done():
		case <-r.again:
		case <-rest.wake:
		case <-rest.left:
			missed, err := n.missed(ctx, r, rest)
			if err == nil && !missed {
				continue
			}
			n.o.Log.DebugContext(ctx, "the database cannot rest", "missed", missed, "error", err)
		}
		return
	}
}

// missed reports whether the slot or the queue changed before the counters were read.
func (n *Database) missed(ctx context.Context, r *run, rest *resting) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	if nothing, err := n.nothingToDo(ctx, r, rest); err != nil || !nothing {
		return true, err
	}
	conn, err := n.open.Dial(ctx)
	if err != nil {
		return true, err
	}
	defer func() { _ = conn.Close(ctx) }()
	results, err := conn.Exec(ctx, "SELECT 1 FROM pg_catalog.pg_logical_slot_peek_binary_changes("+
		database.Literal(n.config().Slot.Name)+", NULL, 1, 'proto_version', '1', 'messages', 'true', 'publication_names', "+
		database.Literal(database.Quote(rest.publication))+") LIMIT 1").ReadAll()
	if pg, is := errors.AsType[*pgconn.PgError](err); is && pg.Code == pgerrcode.ObjectInUse {
		return false, nil // another sidecar streams
	}
	return slices.ContainsFunc(results, func(r *pgconn.Result) bool { return len(r.Rows) > 0 }), err
}

// looks returns how long a database rests at most before it is checked.
func (t *tenant) looks() time.Duration { return t.in.cfg.Load().Tenants.Look }

// rest reports whether there are so many databases that quiet ones rest.
func (s *several) rest() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.list) > s.cfg.Load().Tenants.Awake
}

// look wakes the resting databases that have changes or whose check is due. It reports whether any rest.
func (s *several) look(ctx context.Context) bool {
	type group struct {
		tenants          []*tenant
		databases, slots []string
	}
	servers, on := map[string]*group{}, s.rest()
	s.mu.Lock()
	for _, t := range s.list {
		if t.resting.Load() == nil {
			continue
		}
		g := servers[t.Server]
		if g == nil {
			g = &group{}
			servers[t.Server] = g
		}
		g.tenants, g.databases = append(g.tenants, t), append(g.databases, t.Local)
		g.slots = append(g.slots, t.shown.Load().db.config().Slot.Name)
	}
	s.mu.Unlock()
	for server, g := range servers {
		asking, cancel := context.WithTimeout(ctx, lookTimeout)
		list, err := s.finder.Activity(asking, server, g.databases, g.slots)
		cancel()
		if err != nil && ctx.Err() == nil { // Find reports it
			s.n.o.Log.DebugContext(ctx, "could not check the resting databases", "error", err)
		}
		for _, t := range g.tenants {
			at := slices.IndexFunc(list, func(a tenants.Activity) bool { return a.Database == t.Local })
			if rest := t.resting.Load(); rest != nil && at >= 0 { // a database that is gone is skipped
				s.judge(t, rest, list[at], on)
			}
		}
	}
	return len(servers) > 0
}

// judge wakes a database that has changes or whose check is due. on: quiet databases rest.
func (s *several) judge(t *tenant, rest *resting, is tenants.Activity, on bool) {
	switch {
	case !on || is.Called || is.Behind == nil || is.Others == 0 && rest.base != nil && *rest.base != is.Changes:
		sleep.Wake(rest.wake)
	case time.Now().After(rest.until) || *is.Behind > mostBehind:
		if s.passing() < passingAtOnce { // otherwise it waits for its turn
			t.passing.Store(true)
			sleep.Wake(rest.wake)
		}
	case is.Others > 0:
		rest.base = nil // other sidecars process these changes
	case rest.base == nil && is.Ours == 0:
		rest.base = &is.Changes
		sleep.Wake(rest.left)
	}
}

// passing counts the databases that are awake because their check is due.
func (s *several) passing() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.list {
		if t.passing.Load() {
			n++
		}
	}
	return n
}
