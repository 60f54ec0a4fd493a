package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
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
	statements []statement
	times      []float64 // of the writer's transactions, ms
	fresh      []float64 // from commit to vector, ms
}

func (u *use) perRow(d time.Duration) float64 {
	return float64(d.Nanoseconds()) / 1000 / float64(u.rows)
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
	sizes   costSizes
	counted bool     // statements are
	f       *figures // CPU and time
	written *figures // WAL, tuples, statements
	details map[string]*figures
	order   []string
	curves  map[string]map[int][]float64
}

func newCosts(sizes costSizes, counted bool) *costs {
	return &costs{
		sizes: sizes, counted: counted, details: map[string]*figures{}, curves: map[string]map[int][]float64{},
		f:       newFigures(costPart, "CPU of a row by kind of process, us: single-row commits, and a backfill"),
		written: newFigures("written", "What a row makes the server write and do, the writer's own included"),
	}
}

func atRate(rate int) string { return fmt.Sprintf("%d/s", rate) }

// add adds what one load used.
func (c *costs) add(load, name string, u *use) {
	own := load + ", " + name
	c.f.add(own, "us/row", u.perRow(u.beside()))
	for _, kind := range []string{ofWriter, ofBackends, ofWalsender, ofProgram, ofPlugin, ofServer} {
		c.f.note(own, kind, u.perRow(u.cpu[kind]))
	}
	c.f.note(own, "rows/s", u.kept)
	if load != backfill {
		c.f.note(own, behindEnd, u.behind.Seconds())
		c.f.note(own, writerP95, quantile(u.times, 0.95))
	}
	if len(u.fresh) > 0 {
		c.f.note(own, "fresh p50 ms", quantile(u.fresh, 0.5))
		c.f.note(own, "fresh p99 ms", quantile(u.fresh, 0.99))
	}
	n := float64(u.rows)
	c.written.add(own, "WAL bytes", float64(u.wal.bytes)/n)
	notes := map[string]float64{
		"without images": float64(u.wal.bytes-u.wal.images) / n, "fsyncs": float64(u.fsyncs) / n,
	}
	if len(u.wal.byManager) > 0 {
		notes["tuples"], notes["index entries"] = float64(u.wal.tuples)/n, float64(u.wal.entries)/n
		notes["commits"] = float64(u.wal.commits) / n
	}
	if c.counted {
		var calls int64
		var planner, executor float64
		for _, s := range u.statements {
			calls += s.Calls
			planner += s.Planner
			executor += s.Executor
		}
		notes["statements"] = float64(calls) / n
		notes["us in planner"], notes["us in executor"] = planner*1000/n, executor*1000/n
	}
	for what, v := range notes {
		c.written.note(own, what, v)
	}
	if name == usTable || name == usColumn {
		c.detail(load, name, u)
	}
	if rate := 0; load != backfill {
		_, _ = fmt.Sscanf(load, "%d/s", &rate)
		us := u.beside()
		if name == writerAlone {
			us = u.cpu[ofWriter]
		}
		if c.curves[name] == nil {
			c.curves[name] = map[int][]float64{}
		}
		c.curves[name][rate] = append(c.curves[name][rate], u.perRow(us))
	}
}

// detail adds where a sidecar's WAL and statements go. Loads are the columns there.
func (c *costs) detail(load, name string, u *use) {
	n := float64(u.rows)
	tables := []struct {
		what   string
		values map[string]float64
	}{
		{"WAL without page images by resource manager, " + name, scaled(u.wal.byManager, n)},
		{"WAL without page images by relation, " + name, scaled(u.wal.byRelation, n)},
		{"Statements by time in planner and executor, " + name, map[string]float64{}},
		{"Statements by calls, " + name, map[string]float64{}},
	}
	for _, s := range u.statements {
		tables[2].values[shortened(s.Query)] += (s.Planner + s.Executor) * 1000 / n
		tables[3].values[shortened(s.Query)] += float64(s.Calls) / n
	}
	for _, t := range tables {
		f := c.details[t.what]
		if f == nil {
			f = newFigures(strings.ReplaceAll(strings.ToLower(t.what), " ", "_"), t.what+", of a row")
			c.details[t.what] = f
			c.order = append(c.order, t.what)
		}
		for key, v := range t.values {
			f.note(cmp.Or(key, "no relation"), load, v)
		}
	}
}

func scaled(counts map[string]int64, n float64) map[string]float64 {
	values := map[string]float64{}
	for key, v := range counts {
		values[key] = float64(v) / n
	}
	return values
}

// shortened is a statement's name, if its first line gives it one, or its first words.
func shortened(query string) string {
	const most = 72
	query = strings.Join(strings.Fields(query), " ")
	if r := []rune(query); len(r) > most {
		query = string(r[:most]) + " ..."
	}
	return query
}

// ratios compares a rate's lines of this round with the writer alone, and how long the writer took with how long it did
// beside pg_recvlogical.
func (c *costs) ratios(load string) {
	last := func(name, what string) float64 {
		values := c.f.more[load+", "+name][what]
		return values[len(values)-1]
	}
	base := last(writerAlone, ofWriter)
	for _, name := range c.sizes.subjects {
		l := c.f.find(load + ", " + name)
		beside := l.Values[len(l.Values)-1]
		c.f.note(l.Name, overWriter, beside/base)
		c.f.note(l.Name, withWriter, (beside+last(name, ofWriter))/base)
		if slices.Contains(c.sizes.subjects, costFloor) {
			c.f.note(l.Name, overFloor, last(name, writerP95)/last(costFloor, writerP95))
		}
	}
}

// sections are the tables.
func (c *costs) sections() []section {
	cpu := c.f.done()
	cpu.Columns = []string{
		overWriter, withWriter, ofWriter, ofBackends, ofWalsender, ofProgram, ofPlugin, ofServer, "rows/s", behindEnd,
		writerP95, overFloor, "fresh p50 ms", "fresh p99 ms",
	}
	written := c.written.done()
	written.Columns = []string{"without images", "tuples", "index entries", "commits", "fsyncs"}
	if c.counted {
		written.Columns = append(written.Columns, "statements", "us in planner", "us in executor")
	}
	loads := []string{backfill}
	for _, rate := range c.sizes.rates {
		loads = append(loads, atRate(rate))
	}
	found := []section{}
	for _, s := range []section{cpu, written} {
		if len(s.Rows) > 0 {
			found = append(found, s)
		}
	}
	for _, what := range c.order {
		if s := c.details[what].across(loads); len(s.Rows) > 0 {
			found = append(found, s)
		}
	}
	return found
}

// across makes a table of notes alone: a line for each name, its value the sum over the columns, the largest first.
// Lines that are nothing beside the largest are left out.
func (f *figures) across(columns []string) section {
	const least = 0.02
	for _, name := range slices.Sorted(maps.Keys(f.more)) {
		var all float64
		for _, column := range columns {
			if values := f.more[name][column]; len(values) > 0 {
				all += median(values)
			}
		}
		f.add(name, "sum", all)
	}
	s := f.done()
	slices.SortStableFunc(s.Rows, func(a, b line) int { return cmp.Compare(b.Median, a.Median) })
	s.Rows = slices.DeleteFunc(s.Rows, func(l line) bool { return l.Median < least*s.Rows[0].Median })
	s.Columns = columns
	return s
}
