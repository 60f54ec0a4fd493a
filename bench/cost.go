package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
)

// Names of what is measured at each rate, in the order of the table.
const (
	writerAlone  = "the writer alone"
	costFloor    = "pg_recvlogical"
	notifyGo     = "NOTIFY worker, Go"
	notifyPython = "NOTIFY worker, Python"
	usTable      = "embedsidecar, embedding table"
	usColumn     = "embedsidecar, column"
)

// costSizes say how much the part cost measures.
type costSizes struct {
	rounds   int
	rates    []int // single-row commits a second
	length   time.Duration
	rows     int // of the table, which a backfill embeds
	subjects []string
}

var (
	shortCost = costSizes{
		rounds: 1, rates: []int{300}, length: 2 * time.Second, rows: 5000,
		subjects: []string{writerAlone, costFloor, notifyGo, usTable},
	}
	fullCost = costSizes{
		rounds: 1, rates: []int{30, 300, 1000, 3000}, length: 4 * time.Second, rows: 10_000,
		subjects: []string{writerAlone, costFloor, notifyGo, notifyPython, usTable, usColumn},
	}
)

// subject is one of those that the writer is measured beside. Each has a database of its own.
type subject struct {
	name  string
	pool  *pgxpool.Pool
	begin func(ctx context.Context) (*running, error) // nil: nobody
	truth func(ctx context.Context) error             // the oracle; nil: it writes no vectors
	fresh string                                      // SQL: the xmin of the vector's row; "": it writes none
}

// running is a subject at work.
type running struct {
	pid      int
	caughtUp func(ctx context.Context) error
	end      func() error
}

// measureCost measures what a row costs: CPU by kind of process, WAL, tuples, statements and time, for single-row
// commits at several rates and for a backfill, beside what else could have been put beside the writer.
func measureCost(ctx context.Context, p *place) (_ []section, err error) {
	if runtime.GOOS != "linux" {
		return nil, errors.New("the CPU time of single processes is known on Linux only: leave cost out of --only")
	}
	sizes := fullCost
	if p.smoke {
		sizes = shortCost
	}
	if p.again > 0 {
		sizes.rounds = p.again
	}
	if len(p.rates) > 0 {
		sizes.rates = p.rates
	}
	if p.python == "" {
		sizes.subjects = slices.DeleteFunc(slices.Clone(sizes.subjects), func(s string) bool { return s == notifyPython })
	}
	counted, err := p.countStatements(ctx, true)
	if err != nil {
		return nil, err
	}
	defer func() {
		_, off := p.countStatements(ctx, false)
		err = errors.Join(err, off)
	}()
	c := newCosts(sizes, counted)
	for round := range sizes.rounds {
		if err := p.costRound(ctx, c, round); err != nil {
			return c.sections(), err
		}
	}
	if p.plot != "" {
		if err := os.WriteFile(p.plot, c.plot(), 0o644); err != nil {
			return c.sections(), fmt.Errorf("write the plot: %w", err)
		}
	}
	return c.sections(), nil
}

// costRound measures everything once. Subjects take turns at each rate, so that a busy moment of the machine hits
// neighbours alike, and one that does not run leaves nothing behind for the next: its slot waits.
func (p *place) costRound(ctx context.Context, c *costs, round int) error {
	var subjects []*subject
	for i, name := range c.sizes.subjects {
		s, err := p.newSubject(ctx, c, name, fmt.Sprintf("cost_%d_%d", round, i))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		subjects = append(subjects, s)
	}
	for i, rate := range c.sizes.rates {
		for j := range subjects {
			s := subjects[(i+j+round)%len(subjects)]
			u, err := p.costAt(ctx, c, s, rate)
			if err != nil {
				return fmt.Errorf("%s at %d/s: %w", s.name, rate, err)
			}
			c.add(atRate(rate), s.name, u)
			p.say("cost: %d/s, %s: %s us/row beside the writer's %s", rate, s.name, number(u.perRow(u.beside())),
				number(u.perRow(u.cpu[ofWriter])))
		}
		c.ratios(atRate(rate))
	}
	for _, s := range subjects {
		if s.truth != nil {
			if err := s.truth(ctx); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
		if err := p.drop(ctx, s.pool); err != nil {
			return err
		}
	}
	return nil
}

// newSubject makes a subject's database, and has whoever writes vectors write one for every row: a backfill. From
// then on each change replaces a vector.
func (p *place) newSubject(ctx context.Context, c *costs, name, database string) (*subject, error) {
	pool, err := p.costDocs(ctx, database, c.sizes.rows)
	if err != nil {
		return nil, err
	}
	s := &subject{name: name, pool: pool}
	switch name {
	case costFloor:
		fl, err := p.newFloor(ctx, pool)
		if err != nil {
			return nil, err
		}
		s.begin = func(ctx context.Context) (*running, error) {
			err := fl.begin(ctx)
			return &running{pid: fl.c.pid(), caughtUp: fl.caughtUp, end: func() error { return fl.interrupt() }}, err
		}
	case notifyGo, notifyPython:
		program, of := p.goToy(), func(text string) []float32 { return vector.Of(text, vector.DefaultDims) }
		if name == notifyPython {
			program, of = p.pythonToy(), simpleVector
		}
		if err := prepareToy(ctx, pool); err != nil {
			return nil, err
		}
		s.begin = func(ctx context.Context) (*running, error) {
			t, err := p.startToy(ctx, pool, program)
			if err != nil {
				return nil, err
			}
			return &running{pid: t.c.pid(), caughtUp: t.caughtUp, end: t.end}, nil
		}
		s.fresh = tableFresh
		s.truth = func(ctx context.Context) error { return oracle(ctx, pool, tableVectors, of) }
		// It does not know of rows from before: they are changed while it listens.
		return s, p.fillToy(ctx, s)
	case usTable, usColumn:
		var flags []string
		rows := tableVectors
		s.fresh = tableFresh
		if name == usColumn {
			flags, rows, s.fresh = []string{"--into", "embedding"}, columnVectors, columnFresh
		}
		s.begin = func(ctx context.Context) (*running, error) { return p.beginUs(ctx, pool, flags) }
		s.truth = func(ctx context.Context) error { return oracle(ctx, pool, rows, nil) }
		return s, p.costBackfill(ctx, c, s)
	}
	return s, nil
}

// beginUs starts a sidecar that has nothing to do when this returns.
func (p *place) beginUs(ctx context.Context, pool *pgxpool.Pool, flags []string) (*running, error) {
	s, err := p.subject(ctx, pool, flags...)
	if err != nil {
		return nil, err
	}
	if err := s.settle(ctx); err != nil {
		return nil, errors.Join(err, s.end())
	}
	return &running{pid: s.pid(), caughtUp: s.settle, end: s.end}, nil
}

// fillToy changes every row once while the worker is there.
func (p *place) fillToy(ctx context.Context, s *subject) error {
	r, err := s.begin(ctx)
	if err != nil {
		return err
	}
	if _, err = s.pool.Exec(ctx, "UPDATE public.docs SET body = body || '.'"); err == nil {
		err = r.caughtUp(ctx)
	}
	return errors.Join(err, r.end())
}

// costDocs makes a database with a table docs that knows when a row was changed, and with what counts WAL and
// statements.
func (p *place) costDocs(ctx context.Context, name string, rows int) (*pgxpool.Pool, error) {
	pool, err := p.docs(ctx, name, rows)
	if err != nil {
		return nil, err
	}
	statements := []string{
		"ALTER TABLE public.docs ADD COLUMN changed_at timestamptz",
		"CREATE SCHEMA bench",
	}
	if p.pg.Major() >= walinspectSince {
		statements = append(statements, "CREATE EXTENSION pg_walinspect SCHEMA bench")
	}
	if p.server["shared_preload_libraries"] == "pg_stat_statements" {
		statements = append(statements, "CREATE EXTENSION pg_stat_statements SCHEMA bench")
	}
	for _, sql := range statements {
		if _, err := pool.Exec(ctx, sql); err != nil {
			return nil, fmt.Errorf("%s: %w", sql, err)
		}
	}
	return pool, nil
}

// costAt runs the writer at a rate beside a subject, until the subject has caught up.
func (p *place) costAt(ctx context.Context, c *costs, s *subject, rate int) (_ *use, err error) {
	r := &running{caughtUp: func(context.Context) error { return nil }, end: func() error { return nil }}
	if s.begin != nil {
		if r, err = s.begin(ctx); err != nil {
			return nil, err
		}
	}
	w, err := p.newWriter(ctx, s.pool)
	if err != nil {
		return nil, errors.Join(err, r.end())
	}
	defer w.close()
	u := &use{}
	syncs, err := p.fsyncs(ctx, s.pool)
	if err == nil {
		err = p.within(ctx, c, s, u, func(watch *processes) error {
			watch.add(r.pid)
			since := time.Now()
			if err := w.run(ctx, rate, c.sizes.length); err != nil {
				return err
			}
			stopped := time.Now()
			u.rows, u.times = len(w.times), w.times
			u.kept = float64(u.rows) / stopped.Sub(since).Seconds()
			err := r.caughtUp(ctx)
			u.behind = time.Since(stopped)
			return err
		})
	}
	if err == nil && s.fresh != "" {
		u.fresh, err = freshness(ctx, s.pool, s.fresh, w.began)
	}
	if err = errors.Join(err, r.end()); err != nil {
		return nil, err
	}
	after, err := p.fsyncs(ctx, s.pool)
	u.fsyncs = after - syncs
	return u, err
}

// costBackfill measures a backfill from the start of the program to the last vector, beside a bulk write of ready
// vectors.
func (p *place) costBackfill(ctx context.Context, c *costs, s *subject) error {
	if s.name == usTable {
		if err := p.costBulk(ctx, c, s); err != nil {
			return err
		}
	}
	u := &use{rows: c.sizes.rows}
	syncs, err := p.fsyncs(ctx, s.pool)
	if err != nil {
		return err
	}
	var r *running
	err = p.within(ctx, c, s, u, func(watch *processes) (err error) {
		if r, err = s.begin(ctx); err != nil {
			return err
		}
		watch.add(r.pid)
		watch.sinceBirth()
		return nil
	})
	if r != nil {
		err = errors.Join(err, r.end())
	}
	if err != nil {
		return err
	}
	var took float64
	err = s.pool.QueryRow(ctx, "SELECT extract(epoch FROM max(written_at) - min(written_at)) FROM embedsidecar.ledger").
		Scan(&took)
	if err != nil {
		return fmt.Errorf("ask how long the backfill took: %w", err)
	}
	u.kept = float64(u.rows) / took
	after, err := p.fsyncs(ctx, s.pool)
	if err != nil {
		return err
	}
	u.fsyncs = after - syncs
	c.add(backfill, s.name, u)
	p.say("cost: backfill, %s: %s us/row", s.name, number(u.perRow(u.beside())))
	return nil
}

// costBulk measures the bulk write that the part rows has, too.
func (p *place) costBulk(ctx context.Context, c *costs, s *subject) error {
	f := newFigures("", "")
	if err := p.bulk(ctx, s.pool, f, c.sizes.rows); err != nil {
		return err
	}
	for _, l := range f.done().Rows {
		c.f.add(backfill+", "+l.Name, "us/row", l.More[bulkCPU])
		c.f.note(backfill+", "+l.Name, "rows/s", l.Median)
	}
	return nil
}

// within counts what is used while something is done.
func (p *place) within(ctx context.Context, c *costs, s *subject, u *use, do func(watch *processes) error) error {
	if err := resetStatements(ctx, s.pool, c.counted); err != nil {
		return err
	}
	from, err := walEnd(ctx, s.pool)
	if err != nil {
		return err
	}
	watch, err := watchProcesses(ctx, s.pool, p.pg.PID())
	if err != nil {
		return err
	}
	err = do(watch)
	cpu, stopped := watch.stop()
	if err = errors.Join(err, stopped); err != nil {
		return err
	}
	u.cpu = cpu
	if u.statements, err = statements(ctx, s.pool, c.counted); err != nil {
		return err
	}
	u.wal, err = p.walSince(ctx, s.pool, from)
	return err
}
