package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// use is what one load used, of one subject and the writer beside it.
type use struct {
	rows       int
	kept       float64       // rows a second
	behind     time.Duration // until it had caught up after the end
	cpu        map[string]time.Duration
	wal        walUse
	fsyncs     int64
	statements statementUse
	times      []float64 // of the writer's transactions, ms
	fresh      []float64 // from commit to vector, ms
}

// beside is what was used for the vectors: all but the writer's own backends, and what serves all.
func (u *use) beside() time.Duration {
	return u.cpu[ofBackends] + u.cpu[ofWalsender] + u.cpu[ofProgram] + u.cpu[ofPlugin]
}

// Columns of the tables.
const (
	overWriter = "of the writer"
	withWriter = "writer and all"
	behindEnd  = "s behind"
	writerP95  = "writer p95 ms"
	overFloor  = "p95 of pg_recvlogical's"
)

// costs collects what the loads used into tables.
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

// add adds what one load used.
func (c *costs) add(load, name string, u *use, counted bool) {
	own, n := load+", "+name, float64(u.rows)
	c.cpu.add(own, "us/row", micros(u.beside(), u.rows))
	for _, kind := range []string{ofWriter, ofBackends, ofWalsender, ofProgram, ofPlugin, ofServer} {
		c.cpu.note(own, kind, micros(u.cpu[kind], u.rows))
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

// sections are the tables.
func (c *costs) sections(p *place) (found []section) {
	c.cpu.Columns = []string{
		overWriter, withWriter, ofWriter, ofBackends, ofWalsender, ofProgram, ofPlugin, ofServer, "rows/s", behindEnd,
		writerP95, overFloor, "fresh p50 ms", "fresh p99 ms",
	}
	c.written.Columns = []string{
		"without images", "tuples", "index entries", "commits", "fsyncs", "statements", "us in planner", "us in executor",
	}
	loads := []string{backfill}
	for _, rate := range p.cost {
		loads = append(loads, atRate(rate))
	}
	for _, f := range c.wal {
		f.Columns = loads
		const least = 0.02 // what is nothing beside the largest is left out
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
	for _, f := range append([]*figures{c.cpu, c.written}, c.wal...) {
		if len(f.Rows) > 0 {
			found = append(found, f.done())
		}
	}
	return found
}
