package setup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/refusal"
	"github.com/embedsidecar/embedsidecar/internal/slot"
)

// Options says what Init shall make.
type Options struct {
	Pool           *pgxpool.Pool // as a role that owns the source tables; straight to the server
	ReplicationDSN string        // as a role that may replicate; the same server and database
	Slot           string
	Publication    string
	Specs          []pipeline.Spec
	Descriptions   map[string]embed.Description // of each pipeline's embedder, by the pipeline's name
	Adopt          bool                         // the database is a copy of another that shall live on its own
	// a pipeline that is set up otherwise than it is configured here is left as it is set up
	NoChange bool
	// a sidecar starts: nobody asks for a change, and an older definition is no reason for one
	Starting    bool
	Failover    bool          // standbys keep a copy of the slot; from PostgreSQL 17 on
	DryRun      bool          // say what would be done
	SlotTimeout time.Duration // how long to wait for running transactions; 0: 60 s
	LockTimeout time.Duration // how long a user's statement may have to wait behind ours; 0: 2 s
	Log         *slog.Logger
}

// Report says what Init did, or would do.
type Report struct {
	Steps     []Step              // in this order; none when everything was there
	Warnings  []string            // what works but may surprise
	Others    []string            // pipelines of the slot that are set up and not configured: they are left as they are
	Pipelines []pipeline.Pipeline // as configured and confirmed; empty after a dry run
}

// Step is one thing that was made or changed.
type Step struct {
	What string   // a noun: publication "embedsidecar"
	SQL  []string // what did it; for parts that are no SQL, a line of words
	Undo []string // what takes it back
}

// action is a step and how to do it.
type action struct {
	Step
	allowed bool     // the catalogue says that the role may
	tables  []uint32 // to lock; their lock holders are named when it does not work out
	run     func(ctx context.Context) error
	words   bool   // SQL is words: nobody else can run it
	grant   string // lets the role do it itself, where that is better than an owner's doing it; "" when it is not
}

const (
	lockTimeout  = 2 * time.Second // how long a user's statement may have to wait behind ours
	lockAttempts = 5
	// initLock is the advisory lock of Init, so that two do not mix.
	initLock = int64(0x656d62736964)
	// minVersion and maxVersion are the servers that are tested.
	minVersion = 140000
	maxVersion = 190000
)

// Init makes what the pipelines need and the database lacks: extension, schema, destinations, publication, slot,
// checkpoint and pipeline rows, in this order, because a slot cannot read what happened before its publication was
// there. Done twice, it does nothing the second time. What was changed in the configuration since is taken over, with
// a scan where texts may differ.
//
// All looking comes before all doing: mistakes (*ConfigError, joined), missing rights (*PermissionError with the SQL
// for somebody who has them) and names in use (*ConflictError) change nothing. When a later step fails all the same,
// what was made stays, is in the report, and the next run goes on from there; only a slot is taken back, since it
// would keep WAL for nobody.
func Init(ctx context.Context, o Options) (Report, error) {
	in := &initializer{o: o, log: o.Log}
	if in.log == nil {
		in.log = slog.New(slog.DiscardHandler)
	}
	if in.o.SlotTimeout == 0 {
		in.o.SlotTimeout = time.Minute
	}
	if in.o.LockTimeout == 0 {
		in.o.LockTimeout = lockTimeout
	}
	if err := in.validate(); err != nil {
		return in.report, err
	}
	unlock, err := lockInit(ctx, o.Pool)
	if err != nil {
		return in.report, err
	}
	defer unlock()
	if in.repl, err = database.ConnectReplication(ctx, o.ReplicationDSN,
		database.Options{ApplicationName: "embedsidecar init"}); err != nil {
		return in.report, err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = in.repl.Close(closing)
	}()
	if in.system, err = pglogrepl.IdentifySystem(ctx, in.repl); err != nil {
		return in.report, fmt.Errorf("identify the server: %w", err)
	}
	if err := sameServer(ctx, o.Pool, in.repl); err != nil {
		return in.report, err
	}
	err = in.all(ctx)
	return in.report, err
}

// sameServer makes sure that both connections lead to one database of one server: the second may be given a URL of
// its own.
func sameServer(ctx context.Context, q database.Querier, repl *pgconn.PgConn) error {
	const sql = "SELECT current_database() || ' of the server started at ' || pg_postmaster_start_time()"
	var want string
	if err := q.QueryRow(ctx, sql).Scan(&want); err != nil {
		return fmt.Errorf("compare servers: %w", err)
	}
	results, err := repl.Exec(ctx, sql).ReadAll()
	if err != nil || len(results) != 1 || len(results[0].Rows) != 1 {
		return errors.Join(errors.New("compare servers"), err)
	}
	if got := string(results[0].Rows[0][0]); got != want {
		return &refusal.ConfigError{Problem: fmt.Sprintf("the URLs lead to different databases: %s, and for the stream %s", want,
			got), Hint: []string{"let --stream-url name the same server and database as --database-url"}}
	}
	return nil
}

// initializer is one run of Init.
type initializer struct {
	o           Options
	log         *slog.Logger
	repl        *pgconn.PgConn
	system      pglogrepl.IdentifySystemResult
	report      Report
	server      serverFacts
	found       []*findings       // by spec
	stored      []*storedPipeline // by spec; nil: new
	others      []storedPipeline  // of the slot, without a spec
	unpublished []publishedAs     // their tables, when the publication is not there or new to them
	pub         *publication
	slot        slot.State
	moved       []string // slots of another database that this one, a copy of it, gives up
}

// serverFacts is what the server says of itself and of the role.
type serverFacts struct {
	Version   int
	WALLevel  string
	Standby   bool
	Database  string
	Role      string
	Superuser bool
	MayCreate bool // CREATE on the database
	Schema    int  // version of our schema; 0: none
	Owns      bool // the schema is there and ours to change
	Vector    bool // the extension is installed
	HasPublic bool
	HasSchema bool // embedsidecar
	Installed bool // the installation's row is there
}

func (in *initializer) validate() error {
	switch {
	case database.Pooled(in.o.Pool):
		return &database.Error{
			Kind: database.Pooler, Err: errors.New("init needs a session of its own"),
			Hint: []string{"give --database-url the address of the server itself"},
		}
	case !slotName.MatchString(in.o.Slot):
		return &refusal.ConfigError{Problem: fmt.Sprintf(
			"slot name %q: lower case letters, digits and underscores are allowed, up to 63", in.o.Slot)}
	case badName(in.o.Publication) != "":
		return &refusal.ConfigError{Problem: "the name of the publication " + badName(in.o.Publication)}
	}
	var mistakes []error
	names, destinations := map[string]bool{}, map[string]string{}
	for _, spec := range in.o.Specs {
		if names[spec.Name] {
			mistakes = append(mistakes, &refusal.ConfigError{Pipeline: spec.Name, Problem: "there are two pipelines of this name"})
			continue
		}
		names[spec.Name] = true
		if other, taken := destinations[destinationName(spec)]; taken {
			mistakes = append(mistakes, &refusal.ConfigError{
				Pipeline: spec.Name,
				Problem:  fmt.Sprintf("its destination %s is also that of pipeline %q", destinationName(spec), other),
			})
		}
		destinations[destinationName(spec)] = spec.Name
		if d, ok := in.o.Descriptions[spec.Name]; !ok || d.Dims <= 0 || d.Fingerprint == "" {
			mistakes = append(mistakes, &refusal.ConfigError{Pipeline: spec.Name, Problem: "its embedder has not said what it is"})
		}
	}
	return errors.Join(mistakes...)
}

// ErrInitRunning is inside the *ConflictError of an Init that met another one: a moment later it may succeed.
var ErrInitRunning = errors.New("another init is running in this database")

// lockInit keeps a second init out. The lock belongs to a session, which is kept for it.
func lockInit(ctx context.Context, pool *pgxpool.Pool) (unlock func(), err error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, database.Wrap(err)
	}
	var got bool
	if err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", initLock).Scan(&got); err != nil {
		conn.Release()
		return nil, fmt.Errorf("lock out other inits: %w", err)
	}
	if !got {
		conn.Release()
		return nil, &refusal.ConflictError{Problem: "begin init", Err: ErrInitRunning, Hint: []string{"wait for it to end"}}
	}
	return func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if _, err := conn.Exec(closing, "SELECT pg_advisory_unlock($1)", initLock); err != nil {
			_ = conn.Conn().Close(closing) // the lock goes with its session
		}
		conn.Release()
	}, nil
}

func (in *initializer) all(ctx context.Context) error {
	if err := database.ReadOnly(ctx, in.o.Pool, func(tx pgx.Tx) error { return untrusted(ctx, tx) }); err != nil {
		return err
	}
	if err := in.lookAtServer(ctx); err != nil {
		return err
	}
	if !in.server.Vector {
		extension := in.extension()
		if err := in.perform(ctx, []action{extension}); err != nil || in.o.DryRun {
			in.report.Warnings = append(in.report.Warnings, "the rest depends on the extension vector")
			return err
		}
		in.o.Pool.Reset() // so that connections know the type
	}
	before := in.report
	if err := database.Patiently(ctx, in.o.Pool, func(tx pgx.Tx) error {
		in.found, in.stored, in.others, in.unpublished, in.moved, in.report = nil, nil, nil, nil, nil, before
		return in.look(ctx, tx)
	}); err != nil {
		return err
	}
	if err := in.proveEmpty(ctx); err != nil {
		return err
	}
	plan, err := in.makePlan()
	if err != nil {
		return err
	}
	if err := in.perform(ctx, plan); err != nil || in.o.DryRun {
		return err
	}
	in.report.Pipelines, err = in.confirmed(ctx)
	return err
}

// perform does what is planned, or says that the role may not, before anything is done.
func (in *initializer) perform(ctx context.Context, plan []action) error {
	var refused *refusal.PermissionError
	for _, a := range plan {
		if a.allowed {
			continue
		}
		if refused == nil {
			refused = &refusal.PermissionError{What: "make " + a.What, Role: in.server.Role}
		}
		statements := a.SQL
		if a.grant != "" {
			statements = []string{a.grant}
		}
		for _, sql := range statements {
			if sql = strings.TrimSuffix(sql, ";") + ";"; !slices.Contains(refused.SQL, sql) {
				refused.SQL = append(refused.SQL, sql)
			}
		}
	}
	switch {
	case refused != nil && !in.o.DryRun:
		return refused
	case refused != nil:
		in.report.Warnings = append(in.report.Warnings, refused.Error()+"; an owner or superuser may let it: "+
			strings.Join(refused.SQL, " "))
	}
	for _, a := range plan {
		if !in.o.DryRun {
			if err := in.do(ctx, a); err != nil {
				return err
			}
			in.log.DebugContext(ctx, "made", "what", a.What)
		}
		in.report.Steps = append(in.report.Steps, a.Step)
	}
	return nil
}

func (in *initializer) do(ctx context.Context, a action) error {
	var err error
	if a.run != nil {
		err = a.run(ctx)
	} else {
		err = in.execute(ctx, a)
	}
	if database.Denied(err) {
		e := &refusal.PermissionError{What: "make " + a.What, Role: in.server.Role, Err: err}
		if inner, ok := errors.AsType[*refusal.PermissionError](err); ok { // it knows better what is missing
			e.Role, e.SQL, e.Err = inner.Role, inner.SQL, inner.Err
		} else if !a.words {
			e.SQL = a.SQL
		}
		return e
	}
	if err != nil {
		return fmt.Errorf("make %s: %w", a.What, err)
	}
	return nil
}

// execute runs a step's statements in one transaction. It waits for locks briefly, so that it never stands before the
// user's own statements for longer than that, and tries again.
func (in *initializer) execute(ctx context.Context, a action) error {
	for attempt := 1; ; attempt++ {
		err := pgx.BeginFunc(ctx, in.o.Pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d", in.o.LockTimeout.Milliseconds())); err != nil {
				return err
			}
			for _, sql := range a.SQL {
				if _, err := tx.Exec(ctx, sql); err != nil {
					return err
				}
			}
			return nil
		})
		if !database.LockedOut(err) {
			return err
		}
		holders, lookErr := lockHolders(ctx, in.o.Pool, a.tables)
		if lookErr != nil {
			return errors.Join(err, lookErr)
		}
		in.log.WarnContext(ctx, "waiting for a lock", "what", a.What, "attempt", attempt, "holders",
			strings.Join(holders, "; "))
		if attempt == lockAttempts {
			hint := append([]string{"wait for the sessions that hold locks, and run embedsidecar init again"}, holders...)
			return &refusal.ConflictError{
				Problem: fmt.Sprintf("no lock within %d tries of %s", lockAttempts, in.o.LockTimeout),
				Hint:    hint, Err: err,
			}
		}
		pause := time.NewTimer(in.o.LockTimeout/4 + rand.N(in.o.LockTimeout/2)) //nolint:gosec // jitter is no secret
		select {
		case <-ctx.Done():
			pause.Stop()
			return ctx.Err()
		case <-pause.C:
		}
	}
}

// transact runs f in a transaction, again while it loses against a lock.
func (in *initializer) transact(ctx context.Context, f func(tx pgx.Tx) error) error {
	return database.UntilUnlocked(ctx, func() error { return pgx.BeginFunc(ctx, in.o.Pool, f) })
}

// confirmed resolves every pipeline as it now is.
func (in *initializer) confirmed(ctx context.Context) ([]pipeline.Pipeline, error) {
	all, err := settled(ctx, in.o.Pool, in.o.Slot)
	if err != nil {
		return nil, err
	}
	var ours []pipeline.Pipeline
	for _, spec := range in.o.Specs {
		for _, p := range all {
			if p.Name != spec.Name {
				continue
			}
			if p.Status != pipeline.Active && p.Enabled {
				return nil, &refusal.ConfigError{Pipeline: p.Name, Problem: "is set up but cannot work: " + p.Detail}
			}
			ours = append(ours, p)
		}
	}
	return ours, nil
}
