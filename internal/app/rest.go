package app

import (
	"context"
	"errors"
	"fmt"
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

// Where there are more databases than tenants.awake, a quiet one rests: its sidecar ends, and so do its connections.
// One session per server looks each second whether rows were changed there, by the counters of the server. They are
// not all: what the slot and the queue have is looked at when all sessions have left, and after tenants.look.
const (
	restLook = time.Second
	// passingFor is how long a database is worked at least that is looked at because it is time.
	passingFor = 2 * time.Second
	// mostBehind is how many bytes of WAL a slot may keep before its database is looked at.
	mostBehind = 64 << 20
	// passingAtOnce is how many databases are looked at at a time, because it is time.
	passingAtOnce = 4
	// lookTimeout is for a question about databases that rest.
	lookTimeout = 10 * time.Second
)

// resting is a database that no sidecar of this process works because nothing changes there. It is an error, as what
// ends the work.
type resting struct {
	since, until time.Time
	publication  string

	base *int64        // what its server counted when the last session had left; of the one that looks
	left chan struct{} // the last session has left
	wake chan struct{} // something changes, or it is time to look whether it does
}

func (*resting) Error() string { return "nothing changes" }

// quietAfter is how long nothing changes in a database before it rests.
func (s *several) quietAfter() time.Duration {
	const share = 5
	return s.cfg.Load().Tenants.Look / share
}

// rests reports whether quiet databases rest.
func (s *several) rests() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.list) > s.cfg.Load().Tenants.Awake
}

// look wakes the databases that rest where something changes, and those that are to be looked at. any: some rest.
func (s *several) look(ctx context.Context) (anyone bool) {
	type group struct {
		tenants          []*tenant
		databases, slots []string
	}
	servers, on := map[string]*group{}, s.rests()
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
		if err != nil && ctx.Err() == nil { // Find tells of it
			s.n.o.Log.DebugContext(ctx, "databases that rest not looked at", "error", err)
		}
		for _, t := range g.tenants {
			at := slices.IndexFunc(list, func(a tenants.Activity) bool { return a.Database == t.Local })
			if rest := t.resting.Load(); rest != nil && at >= 0 { // one that is gone is let go
				s.judge(t, rest, list[at], on)
			}
		}
	}
	return len(servers) > 0
}

// judge wakes one where something changes, or where it is time. on: quiet databases rest.
func (s *several) judge(t *tenant, rest *resting, is tenants.Activity, on bool) {
	switch {
	case !on || is.Called || is.Behind == nil || is.Others == 0 && rest.base != nil && *rest.base != is.Changes:
		sleep.Wake(rest.wake)
	case time.Now().After(rest.until) || *is.Behind > mostBehind:
		if s.passing() < passingAtOnce { // others first
			t.passing.Store(true)
			sleep.Wake(rest.wake)
		}
	case is.Others > 0:
		rest.base = nil // what they change is theirs to work
	case rest.base == nil && is.Ours == 0:
		rest.base = &is.Changes
		sleep.Wake(rest.left)
	}
}

// passing counts the databases that are looked at because it is time.
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

// mayRest reports whether a database may rest at all: a server tells of its databases, and nobody keeps their sessions.
func (n *Database) mayRest(r *run) bool {
	return n.tenant != nil && n.tenant.Server != "" && r.o.Role == All && !database.Pooled(r.p.work)
}

// keepQuiet has the database rest when nothing has changed for a while.
func (n *Database) keepQuiet(ctx context.Context, r *run) {
	s, moved, since := n.tenant.in, int64(0), time.Now()
	if n.tenant.passing.Load() {
		since = since.Add(passingFor - s.quietAfter())
	}
	defer n.tenant.passing.Store(false)
	for first := true; sleep.For(ctx, restLook); first = false {
		now, streams := r.moves()
		if moved != now && !first {
			since = time.Now()
			n.tenant.passing.Store(false)
		}
		moved = now
		if !streams || !s.rests() || time.Since(since) < s.quietAfter() {
			continue
		}
		rest, err := n.quiet(ctx, r)
		if err != nil && ctx.Err() == nil {
			n.o.Log.DebugContext(ctx, "the database does not rest", "error", err)
		}
		if rest != nil {
			select {
			case r.quiet <- rest:
			case <-ctx.Done():
			}
		}
		since = time.Now()
		n.tenant.passing.Store(false)
	}
}

// moves is a number that is another one when something has changed, and whether the stream goes.
func (r *run) moves() (n int64, streams bool) {
	r.mu.Lock()
	s := r.sidecar
	r.mu.Unlock()
	if s == nil || s.Stream() == nil {
		return 0, false
	}
	stats := s.Stream()
	n = stats.Changes.Load() + stats.Transactions.Load()
	if asked := s.Asked(); asked != nil {
		n += asked.Answered.Load() + asked.Failed.Load()
	}
	return n, stats.Streaming.Load() || stats.Standby.Load()
}

// quiet returns a rest if everything is done that is to be done here, and nil if not.
func (n *Database) quiet(ctx context.Context, r *run) (*resting, error) {
	if n.building.Load() || !n.changing.TryLock() {
		return nil, nil
	}
	defer n.changing.Unlock()
	n.deployed.mu.Lock()
	settled := n.deployed.told && len(n.deployed.problems)+len(n.deployed.leaving) == 0
	n.deployed.mu.Unlock()
	r.mu.Lock()
	s := r.sidecar
	r.mu.Unlock()
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
	// An idle stream stores its position late. What was read and worked shall not come again.
	lsn, err := report.Now(ctx, r.p.work)
	if err != nil {
		return nil, err
	}
	if _, err = report.Wait(ctx, r.p.work, n.config().Slot.Name, lsn); err != nil {
		return nil, err
	}
	look := n.tenant.in.cfg.Load().Tenants.Look
	rest.since = time.Now()
	rest.until = rest.since.Add(sleep.Between(look*4/5, look))
	return rest, nil
}

// nothingToDo reports whether the tables say so, and notes the publication.
func (n *Database) nothingToDo(ctx context.Context, r *run, rest *resting) (nothing bool, err error) {
	err = r.p.work.QueryRow(ctx, sqlfiles.Query("nothing_to_do"), pgx.StrictNamedArgs{"slot": n.config().Slot.Name}).
		Scan(&nothing, &rest.publication)
	return nothing, wrap.Errorf(err, "ask whether there is something to do")
}

// rest waits, without a connection, until something changes or it is time to look.
func (n *Database) rest(ctx context.Context, r *run, rest *resting) {
	n.source.Leave(observe.Quiet, fmt.Errorf("nothing changes since %s; looked at again when something does, and at %s "+
		"at the latest", rest.since.UTC().Format(time.TimeOnly), rest.until.UTC().Format(time.TimeOnly+" MST")))
	if err := r.leave(); err != nil {
		n.o.Log.WarnContext(ctx, "a plugin did not end in order", "error", err)
	}
	n.o.Log.DebugContext(ctx, "nothing changes: the database rests", "until", rest.until)
	n.tenant.resting.Store(rest)
	defer n.tenant.resting.Store(nil)
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
			n.o.Log.DebugContext(ctx, "the database does not rest", "missed", missed, "error", err)
		}
		return
	}
}

// missed reports whether something changed before the counters were read: in the slot, or in the queue.
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
