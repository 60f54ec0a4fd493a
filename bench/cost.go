package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// measureCost measures the cost of a row: CPU by kind of process, WAL, tuples, statements and time, for single-row
// commits at several rates and for a backfill, compared with alternatives.
func measureCost(ctx context.Context, p *place) {
	if runtime.GOOS != "linux" {
		check(errors.New("the CPU time of single processes is known on Linux only: leave cost out of --only"))
	}
	if p.counts {
		p.countStatements(ctx)
	}
	beside := slices.Clone(p.costBeside)
	if p.python == "" {
		beside = slices.DeleteFunc(beside, func(s string) bool { return s == notifyPython })
	}
	c := newCosts()
	defer c.show(p)
	for round := range max(p.again, 1) {
		p.costRound(ctx, c, beside, round)
	}
	if p.counts {
		p.admin(ctx, "", "ALTER SYSTEM RESET ALL", "SELECT pg_reload_conf()")
	}
}

// countStatements switches pg_stat_statements on.
func (p *place) countStatements(ctx context.Context) {
	p.admin(ctx, "", "ALTER SYSTEM SET compute_query_id = on", "ALTER SYSTEM SET pg_stat_statements.track = 'top'",
		"ALTER SYSTEM SET pg_stat_statements.track_planning = on", "SELECT pg_reload_conf()")
}

// costRound measures everything once. Subjects take turns at each rate, so that a busy moment of the machine affects
// neighbouring measurements equally. A subject that is not measured does not run, and its slot waits.
func (p *place) costRound(ctx context.Context, c *costs, beside []string, round int) {
	var subjects []*subject
	for i, name := range beside {
		subjects = append(subjects, p.costSubject(ctx, c, name, fmt.Sprintf("cost_%d_%d", round, i)))
	}
	for i, rate := range p.cost {
		load := atRate(rate)
		for j := range subjects {
			s := subjects[(i+j+round)%len(subjects)]
			u := p.costAt(ctx, s, rate)
			c.add(load, s.name, u, p.counts)
			p.say("cost: %s, %s: %s us/row beside the writer's %s", load, s.name, number(micros(u.beside(), u.rows)),
				number(micros(u.cpu[ofWriter], u.rows)))
		}
		c.ratios(load, beside)
	}
	for _, s := range subjects {
		s.oracle(ctx)
		p.drop(ctx, s.pool)
	}
}

// costSubject makes a subject's database with counters, and makes a subject that writes vectors backfill every row.
// After that each change replaces a vector.
func (p *place) costSubject(ctx context.Context, c *costs, name, database string) *subject {
	defer during("%s", name)
	pool := p.docs(ctx, database, p.costRows)
	p.countIn(ctx, pool)
	s := p.newSubject(ctx, name, pool)
	if name != usTable && name != usColumn {
		return s
	}
	if name == usTable { // the bulk write of the part rows
		f := newFigures("")
		p.bulk(ctx, pool, f, p.costRows)
		for _, l := range f.done().Rows {
			c.cpu.add(backfill+", "+l.Name, "us/row", l.More[serverCPU])
			c.cpu.note(backfill+", "+l.Name, "rows/s", l.Median)
		}
	}
	u := &use{rows: p.costRows}
	var running *child
	p.within(ctx, s, u, func(watch *processes) {
		running = s.begin(ctx)
		watch.add(running.PID(), true)
	}, func() { running.stop(s.end) })
	u.kept = float64(u.rows) / value[float64](ctx, pool,
		"SELECT extract(epoch FROM max(written_at) - min(written_at))::float8 FROM embedsidecar.ledger")
	c.add(backfill, name, u, p.counts)
	p.say("cost: backfill, %s: %s us/row", name, number(micros(u.beside(), u.rows)))
	return s
}

// countIn prepares a database for counting.
func (p *place) countIn(ctx context.Context, pool *pgxpool.Pool) {
	execute(ctx, pool, "CREATE SCHEMA bench")
	if p.pg.Major() >= walinspectSince {
		execute(ctx, pool, "CREATE EXTENSION pg_walinspect SCHEMA bench")
	}
	if p.counts {
		execute(ctx, pool, "CREATE EXTENSION pg_stat_statements SCHEMA bench")
	}
}

// costAt runs the writer at a rate beside a subject, until the subject has caught up.
func (p *place) costAt(ctx context.Context, s *subject, rate int) *use {
	defer during("%s at %s", s.name, atRate(rate))
	stop, caughtUp, pid := func() {}, func() {}, 0
	if s.start != nil {
		c := s.begin(ctx)
		pid, caughtUp, stop = c.PID(), func() { s.caughtUp(ctx, c) }, func() { c.stop(s.end) }
	}
	w := p.newWriter(ctx, s.pool, changeRow)
	defer w.pool.Close()
	u := &use{}
	p.within(ctx, s, u, func(watch *processes) {
		watch.add(pid, false)
		since := time.Now()
		w.run(ctx, rate, p.costLength)
		stopped := time.Now()
		u.rows, u.times = len(w.times), w.times
		u.kept = float64(u.rows) / stopped.Sub(since).Seconds()
		caughtUp()
		u.behind = time.Since(stopped)
	}, func() {
		if s.vectors != "" && u.rows > 0 {
			u.fresh = freshness(ctx, s.pool, s.fresh, w.began)
		}
		stop()
	})
	return u
}

// freshness is the time from each row's last change to its vector, in ms. Both times are the server's, taken just
// before the commit is flushed, so one flush is included. No polling is needed during the load.
func freshness(ctx context.Context, pool *pgxpool.Pool, vectors string, since time.Time) []float64 {
	defer during("ask how fresh the vectors are")
	rows, _ := pool.Query(ctx, `SELECT 1000 * extract(epoch FROM pg_xact_commit_timestamp(v.xmin) - v.changed_at)::float8
		FROM (`+vectors+`) AS v WHERE v.changed_at > $1`, since)
	return must(pgx.CollectRows(rows, pgx.RowTo[float64]))
}

// within counts the resources used during do. A backend reports its fsyncs at most once a second and at its end, so
// they are read before the start and after the subject has ended.
func (p *place) within(ctx context.Context, s *subject, u *use, do func(*processes), stop func()) {
	syncs := p.fsyncs(ctx, s.pool)
	if p.counts {
		execute(ctx, s.pool, "SELECT bench.pg_stat_statements_reset()")
	}
	from := value[string](ctx, s.pool, "SELECT pg_current_wal_insert_lsn()::text")
	watch := watchProcesses(ctx, s.pool, p.pg.PID())
	do(watch)
	u.cpu, u.waits = watch.stop()
	if p.counts {
		u.statements = statements(ctx, s.pool)
	}
	u.wal = p.walSince(ctx, s.pool, from)
	stop()
	u.fsyncs = p.fsyncs(ctx, s.pool) - syncs
}

// use is the resources used by one load: of a subject and the writer.
type use struct {
	rows       int
	kept       float64       // rows a second
	behind     time.Duration // time to catch up after the end
	cpu        map[string]time.Duration
	waits      map[string]int64
	wal        walUse
	fsyncs     int64
	statements statementUse
	times      []float64 // of the writer's transactions, ms
	fresh      []float64 // from commit to vector, ms
}

// beside is the CPU time used for the vectors: all except the writer's backends and shared server processes.
func (u *use) beside() time.Duration {
	return u.cpu[ofBackends] + u.cpu[ofWalsender] + u.cpu[ofProgram] + u.cpu[ofPlugin]
}

// waiting are the kinds of processes whose switches of context are shown.
var waiting = []string{ofBackends, ofWalsender, ofProgram, ofPlugin}

// Columns of the tables.
const (
	overWriter = "of the writer"
	withWriter = "writer and all"
	behindEnd  = "s behind"
	writerP95  = "writer p95 ms"
	overFloor  = "p95 of pg_recvlogical's"
)

// costs collects the loads' usage in tables.
type costs struct {
	cpu     *figures // and time
	written *figures // WAL, tuples, statements
	wal     []*figures
}

func newCosts() *costs {
	return &costs{
		cpu:     newFigures("CPU of a row by kind of process, us: single-row commits, and a backfill"),
		written: newFigures("What a row makes the server write and do, the writer's own included"),
		wal: []*figures{
			newFigures("WAL bytes without page images by resource manager, of a row, embedding table"),
			newFigures("WAL bytes without page images by relation, of a row, embedding table"),
		},
	}
}

func atRate(rate int) string { return fmt.Sprintf("%d/s", rate) }

// add adds the usage of one load.
func (c *costs) add(load, name string, u *use, counted bool) {
	own, n := load+", "+name, float64(u.rows)
	c.cpu.add(own, "us/row", micros(u.beside(), u.rows))
	for _, kind := range []string{ofWriter, ofBackends, ofWalsender, ofProgram, ofPlugin, ofServer} {
		c.cpu.note(own, kind, micros(u.cpu[kind], u.rows))
	}
	for _, kind := range waiting {
		c.cpu.note(own, kind+" waits", float64(u.waits[kind])/n)
	}
	c.cpu.note(own, "rows/s", u.kept)
	if load != backfill {
		c.cpu.note(own, behindEnd, u.behind.Seconds())
		c.cpu.note(own, writerP95, quantile(u.times, 0.95))
	}
	if len(u.fresh) > 0 {
		c.cpu.note(own, "fresh p50 ms", quantile(u.fresh, 0.5))
		c.cpu.note(own, "fresh p99 ms", quantile(u.fresh, 0.99))
	}
	c.written.add(own, "WAL bytes", float64(u.wal.bytes)/n)
	c.written.note(own, "without images", float64(u.wal.bytes-u.wal.images)/n)
	c.written.note(own, "fsyncs", float64(u.fsyncs)/n)
	if len(u.wal.by[byManager]) > 0 {
		c.written.note(own, "tuples", float64(u.wal.tuples)/n)
		c.written.note(own, "index entries", float64(u.wal.entries)/n)
		c.written.note(own, "commits", float64(u.wal.commits)/n)
	}
	if counted {
		c.written.note(own, "statements", float64(u.statements.Calls)/n)
		c.written.note(own, "us in planner", u.statements.Planner*1000/n)
		c.written.note(own, "us in executor", u.statements.Executor*1000/n)
	}
	if name != usTable {
		return
	}
	for i, by := range u.wal.by { // loads are the columns there
		for key, bytes := range by {
			c.wal[i].note(cmp.Or(key, "no relation"), load, float64(bytes)/n)
		}
	}
}

// ratios compares a rate's lines of this round with the writer alone, and how long the writer took with how long it did
// beside pg_recvlogical.
func (c *costs) ratios(load string, beside []string) {
	last := func(name, what string) float64 {
		values := c.cpu.line(load + ", " + name).more[what]
		return values[len(values)-1]
	}
	base := last(nobody, ofWriter)
	for _, name := range beside {
		l := c.cpu.line(load + ", " + name)
		own := l.Values[len(l.Values)-1]
		c.cpu.note(l.Name, overWriter, own/base)
		c.cpu.note(l.Name, withWriter, (own+last(name, ofWriter))/base)
		if slices.Contains(beside, recvlogical) {
			c.cpu.note(l.Name, overFloor, last(name, writerP95)/last(recvlogical, writerP95))
		}
	}
}

// show prints the tables.
func (c *costs) show(p *place) {
	c.cpu.Columns = []string{
		overWriter, withWriter, ofWriter, ofBackends, ofWalsender, ofProgram, ofPlugin, ofServer, "rows/s", behindEnd,
		writerP95, overFloor, "fresh p50 ms", "fresh p99 ms",
	}
	for _, kind := range waiting {
		c.cpu.Columns = append(c.cpu.Columns, kind+" waits")
	}
	c.written.Columns = []string{
		"without images", "tuples", "index entries", "commits", "fsyncs", "statements", "us in planner", "us in executor",
	}
	loads := []string{backfill}
	for _, rate := range p.cost {
		loads = append(loads, atRate(rate))
	}
	p.show(c.cpu)
	p.show(c.written)
	for _, f := range c.wal {
		f.Columns = loads
		f.largestFirst()
		p.show(f)
	}
}

// largestFirst sorts lines by their sum, and omits negligible ones.
func (f *figures) largestFirst() {
	const least = 0.02
	for _, l := range f.Rows {
		sum := 0.0
		for _, values := range l.more {
			sum += quantile(values, 0.5)
		}
		f.add(l.Name, "sum", sum)
	}
	slices.SortStableFunc(f.Rows, func(a, b *line) int { return cmp.Compare(b.Values[0], a.Values[0]) })
	f.Rows = slices.DeleteFunc(f.Rows, func(l *line) bool { return l.Values[0] < least*f.Rows[0].Values[0] })
}
