package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// measureCost measures what a row costs: CPU by kind of process, WAL, tuples, statements and time, for single-row
// commits at several rates and for a backfill, beside what else could have been put beside the writer.
func measureCost(ctx context.Context, p *place) (_ []section, err error) {
	if runtime.GOOS != "linux" {
		return nil, errors.New("the CPU time of single processes is known on Linux only: leave cost out of --only")
	}
	if p.counts {
		if err := p.countStatements(ctx); err != nil {
			return nil, err
		}
		defer func() {
			err = errors.Join(err, p.admin(ctx, "", "ALTER SYSTEM RESET ALL", "SELECT pg_reload_conf()"))
		}()
	}
	beside := slices.Clone(p.costBeside)
	if p.python == "" {
		beside = slices.DeleteFunc(beside, func(s string) bool { return s == notifyPython })
	}
	c := newCosts()
	for round := range max(p.again, 1) {
		if err := p.costRound(ctx, c, beside, round); err != nil {
			return c.sections(p), err
		}
	}
	return c.sections(p), nil
}

// countStatements switches pg_stat_statements on.
func (p *place) countStatements(ctx context.Context) error {
	return p.admin(ctx, "", "ALTER SYSTEM SET compute_query_id = on", "ALTER SYSTEM SET pg_stat_statements.track = 'top'",
		"ALTER SYSTEM SET pg_stat_statements.track_planning = on", "SELECT pg_reload_conf()")
}

// costRound measures everything once. Subjects take turns at each rate, so that a busy moment of the machine hits
// neighbours alike, and one that does not run leaves nothing behind for the next: its slot waits.
func (p *place) costRound(ctx context.Context, c *costs, beside []string, round int) error {
	var subjects []*subject
	for i, name := range beside {
		s, err := p.costSubject(ctx, c, name, fmt.Sprintf("cost_%d_%d", round, i))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		subjects = append(subjects, s)
	}
	for i, rate := range p.cost {
		load := atRate(rate)
		for j := range subjects {
			s := subjects[(i+j+round)%len(subjects)]
			u, err := p.costAt(ctx, s, rate)
			if err != nil {
				return fmt.Errorf("%s at %s: %w", s.name, load, err)
			}
			c.add(load, s.name, u, p.counts)
			p.say("cost: %s, %s: %s us/row beside the writer's %s", load, s.name, number(micros(u.beside(), u.rows)),
				number(micros(u.cpu[ofWriter], u.rows)))
		}
		c.ratios(load, beside)
	}
	for _, s := range subjects {
		if err := s.oracle(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if err := p.drop(ctx, s.pool); err != nil {
			return err
		}
	}
	return nil
}

// costSubject makes a subject's database, with what counts WAL and statements, and has whoever writes vectors write
// one for every row: a backfill. From then on each change replaces a vector.
func (p *place) costSubject(ctx context.Context, c *costs, name, database string) (*subject, error) {
	pool, err := p.docs(ctx, database, p.costRows)
	if err != nil {
		return nil, err
	}
	if err := p.countIn(ctx, pool); err != nil {
		return nil, err
	}
	s, err := p.newSubject(ctx, name, pool)
	if err != nil || name != usTable && name != usColumn {
		return s, err
	}
	if name == usTable { // the bulk write of the part rows
		f := newFigures("")
		if err := p.bulk(ctx, pool, f, p.costRows); err != nil {
			return nil, err
		}
		for _, l := range f.done().Rows {
			c.cpu.add(backfill+", "+l.Name, "us/row", l.More[serverCPU])
			c.cpu.note(backfill+", "+l.Name, "rows/s", l.Median)
		}
	}
	u := &use{rows: p.costRows}
	var running *child
	err = p.within(ctx, s, u, func(watch *processes) (err error) {
		if running, err = s.begin(ctx); err != nil {
			return err
		}
		watch.add(running.PID(), true)
		return nil
	}, func() error {
		if running == nil {
			return nil
		}
		return running.stop(s.end)
	})
	if err != nil {
		return nil, err
	}
	var took float64
	err = pool.QueryRow(ctx, "SELECT extract(epoch FROM max(written_at) - min(written_at)) FROM embedsidecar.ledger").
		Scan(&took)
	u.kept = float64(u.rows) / took
	c.add(backfill, name, u, p.counts)
	p.say("cost: backfill, %s: %s us/row", name, number(micros(u.beside(), u.rows)))
	return s, err
}

// countIn prepares a database for counting.
func (p *place) countIn(ctx context.Context, pool *pgxpool.Pool) error {
	statements := []string{"CREATE SCHEMA bench"}
	if p.pg.Major() >= walinspectSince {
		statements = append(statements, "CREATE EXTENSION pg_walinspect SCHEMA bench")
	}
	if p.counts {
		statements = append(statements, "CREATE EXTENSION pg_stat_statements SCHEMA bench")
	}
	return execute(ctx, pool, statements...)
}

// costAt runs the writer at a rate beside a subject, until the subject has caught up.
func (p *place) costAt(ctx context.Context, s *subject, rate int) (*use, error) {
	stop, caughtUp, pid := func() error { return nil }, func() error { return nil }, 0
	if s.start != nil {
		c, err := s.begin(ctx)
		if err != nil {
			return nil, err
		}
		pid, caughtUp = c.PID(), func() error { return s.caughtUp(ctx, c) }
		stop = func() error { return c.stop(s.end) }
	}
	w, err := p.newWriter(ctx, s.pool, changeRow)
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	defer w.pool.Close()
	u := &use{}
	return u, p.within(ctx, s, u, func(watch *processes) error {
		watch.add(pid, false)
		since := time.Now()
		if err := w.run(ctx, rate, p.costLength); err != nil {
			return err
		}
		stopped := time.Now()
		u.rows, u.times = len(w.times), w.times
		u.kept = float64(u.rows) / stopped.Sub(since).Seconds()
		err := caughtUp()
		u.behind = time.Since(stopped)
		return err
	}, func() (err error) {
		if s.vectors != "" && u.rows > 0 {
			u.fresh, err = freshness(ctx, s.pool, s.fresh, w.began)
		}
		return errors.Join(err, stop())
	})
}

// freshness is how long it took from each row's last change to its vector, in ms. Both moments are the server's, and
// both are taken just before the commit is flushed, so what the disk takes is in it once. Nobody has to look while the
// load runs.
func freshness(ctx context.Context, pool *pgxpool.Pool, vectors string, since time.Time) ([]float64, error) {
	rows, err := pool.Query(ctx, `SELECT 1000 * extract(epoch FROM pg_xact_commit_timestamp(v.xmin) - v.changed_at)::float8
		FROM (`+vectors+`) AS v WHERE v.changed_at > $1`, since)
	if err != nil {
		return nil, fmt.Errorf("ask how fresh the vectors are: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[float64])
}

// within counts what is used while something is done. A backend reports its fsyncs at most once a second and at its
// end, so these are asked for before and when whoever worked has gone.
func (p *place) within(ctx context.Context, s *subject, u *use, do func(*processes) error, stop func() error) error {
	syncs, err := p.fsyncs(ctx, s.pool)
	if err == nil && p.counts {
		err = execute(ctx, s.pool, "SELECT bench.pg_stat_statements_reset()")
	}
	if err != nil {
		return errors.Join(err, stop())
	}
	var from string
	err = s.pool.QueryRow(ctx, "SELECT pg_current_wal_insert_lsn()::text").Scan(&from)
	if err != nil {
		return errors.Join(err, stop())
	}
	watch, err := watchProcesses(ctx, s.pool, p.pg.PID())
	if err != nil {
		return errors.Join(err, stop())
	}
	err = do(watch)
	cpu, stopped := watch.stop()
	if err = errors.Join(err, stopped); err != nil {
		return errors.Join(err, stop())
	}
	u.cpu = cpu
	if p.counts {
		u.statements, err = statements(ctx, s.pool)
	}
	if err == nil {
		u.wal, err = p.walSince(ctx, s.pool, from)
	}
	if err = errors.Join(err, stop()); err != nil {
		return err
	}
	after, err := p.fsyncs(ctx, s.pool)
	u.fsyncs = after - syncs
	return err
}
