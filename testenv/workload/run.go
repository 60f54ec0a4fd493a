package workload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Options are options of a workload. The zero value is two writers that run until they are stopped.
type Options struct {
	Seed         uint64        // the same seed and one writer: the same statements
	Writers      int           // 0: 2
	Transactions int           // per writer; 0: until Stop
	Rows         int           // about how many a table holds at most; 0: 150
	Pause        time.Duration // between two transactions of a writer
	Without      []string      // operations to leave out, by name; see Operations
}

// Stats are the counters of a workload.
type Stats struct {
	Committed  int
	RolledBack int            // on purpose
	Conflicts  int            // refused: deadlocks, lock timeouts, serialization, duplicate keys, full disks
	Lost       int            // broken connections; it is unknown whether their last transaction was committed
	Operations map[string]int // in committed transactions
}

func (s Stats) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d committed, %d rolled back, %d conflicts, %d connections lost;", s.Committed, s.RolledBack,
		s.Conflicts, s.Lost)
	for _, name := range slices.Sorted(maps.Keys(s.Operations)) {
		fmt.Fprintf(&b, " %s %d", name, s.Operations[name])
	}
	return b.String()
}

// Run is a running workload.
type Run struct {
	cancel context.CancelFunc
	stop   chan struct{}
	once   sync.Once
	wg     sync.WaitGroup

	mu    sync.Mutex
	stats Stats
	err   error
}

// Start starts writers on the shapes' tables until Transactions are done, Stop is called or ctx ends. The URL's role
// must own the tables. Writers tolerate broken connections, server restarts and conflicts; any other error ends them.
func Start(ctx context.Context, url string, shapes []Shape, o Options) (*Run, error) {
	o.Writers = cmp.Or(o.Writers, 2)
	o.Rows = cmp.Or(o.Rows, 150)
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("start workload: %w", err)
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeExec // pools of statements would have to survive changes of the tables
	config.ConnectTimeout = 10 * time.Second
	config.RuntimeParams["application_name"] = "workload"
	ctx, cancel := context.WithCancel(ctx)
	run := &Run{cancel: cancel, stop: make(chan struct{}), stats: Stats{Operations: map[string]int{}}}
	for n := range o.Writers {
		w := &writer{
			run: run, config: config, shapes: shapes, o: o, r: rand.New(rand.NewPCG(o.Seed, uint64(n))),
			operations: chosen(o.Without),
		}
		run.wg.Go(func() { w.work(ctx) })
	}
	return run, nil
}

// Stop lets the writers finish their transactions and waits for them. It returns the first error that ended a writer.
func (run *Run) Stop() (Stats, error) {
	run.once.Do(func() { close(run.stop) })
	return run.Wait()
}

// Wait waits until the writers end by themselves: after Transactions, or with the context.
func (run *Run) Wait() (Stats, error) {
	run.wg.Wait()
	run.cancel()
	return run.Stats(), run.err
}

// Stats returns the current counters.
func (run *Run) Stats() Stats {
	run.mu.Lock()
	defer run.mu.Unlock()
	s := run.stats
	s.Operations = maps.Clone(s.Operations)
	return s
}

func (run *Run) count(change func(s *Stats)) {
	run.mu.Lock()
	defer run.mu.Unlock()
	change(&run.stats)
}

func (run *Run) fail(err error) {
	run.mu.Lock()
	defer run.mu.Unlock()
	if run.err == nil {
		run.err = err
	}
}

// writer is one connection that changes tables.
type writer struct {
	run        *Run
	config     *pgx.ConnConfig
	shapes     []Shape
	o          Options
	r          *rand.Rand
	operations []operation
	conn       *pgx.Conn
}

func (w *writer) work(ctx context.Context) {
	defer func() {
		if w.conn != nil {
			_ = w.conn.Close(context.WithoutCancel(ctx))
		}
	}()
	for n := 0; w.o.Transactions == 0 || n < w.o.Transactions; n++ {
		select {
		case <-w.run.stop:
			return
		case <-ctx.Done():
			return
		case <-time.After(w.o.Pause):
		}
		if !w.connected(ctx) {
			return
		}
		names, err := w.transaction(ctx)
		switch {
		case err == nil:
			w.run.count(func(s *Stats) {
				s.Committed++
				for _, name := range names {
					s.Operations[name]++
				}
			})
		case ctx.Err() != nil:
			return
		case errors.Is(err, errOnPurpose):
			w.run.count(func(s *Stats) { s.RolledBack++ })
		case w.conn.IsClosed() || state(err, pgerrcode.AdminShutdown, pgerrcode.CrashShutdown, pgerrcode.CannotConnectNow):
			_ = w.conn.Close(ctx)
			w.conn = nil
			w.run.count(func(s *Stats) { s.Lost++ })
		case isConflict(err):
			w.run.count(func(s *Stats) { s.Conflicts++ })
		default:
			w.run.fail(fmt.Errorf("workload: %w", err))
			return
		}
	}
}

// connected makes a connection if there is none, and waits for a server that is down. It returns false if the writer
// must stop.
func (w *writer) connected(ctx context.Context) bool {
	for w.conn == nil {
		conn, err := pgx.ConnectConfig(ctx, w.config)
		if err == nil {
			if err = w.settings(ctx, conn); err == nil {
				w.conn = conn
				return true
			}
			_ = conn.Close(ctx)
		}
		select {
		case <-w.run.stop:
			return false
		case <-ctx.Done():
			return false
		case <-time.After(50 * time.Millisecond):
		}
	}
	return true
}

// settings gives the session random format settings, as users' sessions have them.
func (w *writer) settings(ctx context.Context, conn *pgx.Conn) error {
	one := func(of ...string) string { return of[w.r.IntN(len(of))] }
	for _, setting := range []string{
		"lock_timeout = '3s'",
		"timezone = " + one("'UTC'", "'Asia/Kathmandu'", "'America/New_York'"),
		"datestyle = " + one("'ISO, MDY'", "'SQL, DMY'", "'German, DMY'", "'Postgres, MDY'"),
		"bytea_output = " + one("'hex'", "'escape'"),
		"extra_float_digits = " + one("0", "3"),
		"synchronous_commit = " + one("on", "on", "off"),
	} {
		if _, err := conn.Exec(ctx, "SET "+setting); err != nil {
			return err
		}
	}
	return nil
}

// errOnPurpose ends a transaction that must be rolled back.
var errOnPurpose = errors.New("rolled back on purpose")

// transaction does one to four operations, mostly on one table, sometimes inside savepoints, and commits nine times of
// ten. It returns the names of the operations.
func (w *writer) transaction(ctx context.Context) ([]string, error) {
	var names []string
	options := pgx.TxOptions{}
	if w.r.IntN(10) == 0 {
		options.IsoLevel = pgx.RepeatableRead
	}
	err := pgx.BeginTxFunc(ctx, w.conn, options, func(tx pgx.Tx) error {
		names = nil
		shape := w.shapes[w.r.IntN(len(w.shapes))]
		for range 1 + w.r.IntN(4)*w.r.IntN(2) {
			if w.r.IntN(5) == 0 {
				shape = w.shapes[w.r.IntN(len(w.shapes))]
			}
			op := w.pick()
			if w.r.IntN(6) > 0 {
				if err := op.run(ctx, &step{w, tx, shape}); err != nil {
					return fmt.Errorf("%s on %s: %w", op.name, shape.Name, err)
				}
				names = append(names, op.name)
				continue
			}
			kept, err := w.savepoint(ctx, tx, shape, op)
			if err != nil {
				return fmt.Errorf("%s on %s in a savepoint: %w", op.name, shape.Name, err)
			}
			if kept {
				names = append(names, op.name)
			}
		}
		if w.r.IntN(10) == 0 {
			return errOnPurpose
		}
		return nil
	})
	return names, err
}

// savepoint does an operation in a savepoint, and half of the time rolls it back together with a second one.
func (w *writer) savepoint(ctx context.Context, tx pgx.Tx, shape Shape, op operation) (kept bool, err error) {
	keep := w.r.IntN(2) == 0
	err = pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error {
		if err := op.run(ctx, &step{w, inner, shape}); err != nil {
			return err
		}
		if keep {
			return nil
		}
		if err := pgx.BeginFunc(ctx, inner,
			func(deeper pgx.Tx) error { return insert(ctx, &step{w, deeper, shape}) }); err != nil {
			return err
		}
		return errOnPurpose
	})
	if errors.Is(err, errOnPurpose) {
		return false, nil
	}
	return keep, err
}

func (w *writer) pick() operation {
	total := 0
	for _, op := range w.operations {
		total += op.weight
	}
	n := w.r.IntN(total)
	for _, op := range w.operations {
		if n -= op.weight; n < 0 {
			return op
		}
	}
	panic("not reached: n is below the sum of the weights")
}

func state(err error, codes ...string) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && slices.Contains(codes, pgErr.Code)
}

// isConflict reports whether an error is a normal conflict of transactions.
func isConflict(err error) bool {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return false
	}
	return pgerrcode.IsTransactionRollback(pgErr.Code) || pgerrcode.IsInsufficientResources(pgErr.Code) ||
		slices.Contains([]string{pgerrcode.UniqueViolation, pgerrcode.LockNotAvailable, pgerrcode.QueryCanceled}, pgErr.Code)
}
