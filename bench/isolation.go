package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// neighbours are other pipelines with the faults of their plugins: the first has none, and the last uses all CPUs after
// its first call.
var neighbours = []struct{ name, faults string }{
	{"as it should", "cost=20ms/call"},
	{"wrong count", "wrong-count-every=1"},
	{"wrong width", "wrong-dims-every=1"},
	{"another order", "permute-every=1"},
	{"NaN", "cost=20ms/call;nan-on=e"},
	{"slow", "cost=1s/call"},
	{"hangs", "hang-on=e"},
	{"crashes", "crash-on=e"},
	{"ends at its start", "exit-at-start"},
	{"leaks", "cost=20ms/call;leak=8MiB/call"},
	{"takes all memory", "swell-on=e"},
	{"forks", "cost=20ms/call;fork"},
	{"floods its log", "cost=20ms/call;flood=2000/call"},
	{"burns CPU time without work", "cost=20ms/call;burn"},
}

const (
	noNeighbour  = -1
	isolatedRows = 8000
	backlogRows  = 20_000
)

// isolation is a sidecar with the measured pipeline, on docs, and those of all neighbours.
type isolation struct {
	*child

	pool *pgxpool.Pool
}

// measureIsolation measures the speed of a pipeline while another one of the same sidecar has a backlog and a
// misbehaving plugin. All pipelines exist all the time, but only one neighbour has work, so compared figures are
// measured seconds apart in one process. Before and after each misbehaving neighbour, the pipeline is measured with a
// sound neighbour, which also costs CPU time, and with none.
func measureIsolation(ctx context.Context, p *place) {
	dir := must(os.MkdirTemp("", "bench")) // paths of sockets must be short
	defer func() { _ = os.RemoveAll(dir) }()
	s := p.startNeighbours(ctx, dir)
	f := newFigures("A pipeline beside another whose plugin ..., rows/s")
	defer p.show(f)
	s.mine(ctx, time.Time{})
	s.beside(ctx, 0) // warm-up
	last := len(neighbours) - 1
	for round := range p.rounds {
		for i := 1; i < last; i++ {
			rates := map[int]float64{}
			for turn := range 3 {
				number := []int{0, i, noNeighbour}[(round+i+turn)%3]
				rates[number] = s.beside(ctx, number)
			}
			f.add(neighbours[i].name, "rows/s", rates[i])
			f.note(neighbours[i].name, "of as it should", rates[i]/rates[0])
			f.note(neighbours[i].name, "of no work", rates[i]/rates[noNeighbour])
		}
		p.say("isolation: round %d of %d", round+1, p.rounds)
	}
	// The last neighbour uses CPU all the time. It has no work during the measurement, and the sidecar has had time to
	// lower its priority.
	before := s.beside(ctx, noNeighbour)
	s.beside(ctx, last)
	check(pause(ctx, 20*time.Second))
	for range p.rounds {
		rate := s.beside(ctx, noNeighbour)
		f.add(neighbours[last].name, "rows/s", rate)
		f.note(neighbours[last].name, "of no work", rate/before)
	}
	docs := &subject{pool: s.pool, vectors: tableVectors, of: fakeVector} // the neighbours' tasks are deleted
	docs.oracle(ctx)
	s.stop(syscall.SIGTERM)
}

func neighbourTable(number int) string { return fmt.Sprintf("public.neighbour_%d", number) }

// beside measures docs' pipeline while one neighbour has a backlog.
func (s *isolation) beside(ctx context.Context, number int) float64 {
	if number != noNeighbour {
		defer during("beside a neighbour: %s", neighbours[number].name)
		execute(ctx, s.pool, "UPDATE "+neighbourTable(number)+" SET body = body || '.'")
		decoded(ctx, s.child, s.pool)
	}
	since := serverTime(ctx, s.pool)
	began := time.Now()
	execute(ctx, s.pool, fmt.Sprintf("UPDATE public.docs SET body = md5(id::text || '%s') || right(body, 80)", since))
	end := s.mine(ctx, since)
	if number != noNeighbour {
		s.clear(ctx)
		check(pause(ctx, 500*time.Millisecond)) // let started work finish
	}
	return isolatedRows / end.Sub(began).Seconds()
}

// mine waits until every row of docs has been processed since a time, and returns when that was.
func (s *isolation) mine(ctx context.Context, since time.Time) time.Time {
	return s.until(ctx, s.pool, 20*time.Millisecond, `SELECT count(*) >= $2 FROM embedsidecar.ledger AS l
		JOIN embedsidecar.pipeline AS p USING (pipeline_id) WHERE p.plugin = 'mine' AND l.written_at > $1`, since, isolatedRows)
}

// clear deletes the neighbours' tasks, except locked rows, until there are none.
func (s *isolation) clear(ctx context.Context) {
	s.until(ctx, s.pool, 5*time.Millisecond, `WITH gone AS (DELETE FROM embedsidecar.task WHERE task_id IN (
			SELECT t.task_id FROM embedsidecar.task AS t JOIN embedsidecar.pipeline AS p USING (pipeline_id)
			WHERE p.plugin <> 'mine' FOR UPDATE OF t SKIP LOCKED))
		SELECT NOT EXISTS (SELECT FROM embedsidecar.task AS t JOIN embedsidecar.pipeline AS p USING (pipeline_id)
			WHERE p.plugin <> 'mine')`)
}

// startNeighbours sets up the pipelines while all plugins are sound, because a plugin that fails in Describe cannot be
// set up. Then it starts the sidecar.
func (p *place) startNeighbours(ctx context.Context, dir string) *isolation {
	pool := p.docs(ctx, "isolation", isolatedRows)
	for number := range neighbours {
		execute(ctx, pool, "CREATE TABLE "+neighbourTable(number)+" (id bigint PRIMARY KEY, body text NOT NULL)")
	}
	file := writeNeighbours(p.bin, dir, false)
	output(ctx, p.sidecarEnviron(pool), filepath.Join(p.bin, "embedsidecar"), "init", "--slot", slotOf(pool),
		"--set", "publication.name=sidecar", "--config", file)
	writeNeighbours(p.bin, dir, true)
	s := &isolation{child: p.sidecar(pool, "--no-init", "--config", file, "--set", "workers.batch_rows=64"), pool: pool}
	streams(ctx, s.child, pool)
	// Rows inserted here cause no work until they change.
	for number := range neighbours {
		execute(ctx, pool, fmt.Sprintf("INSERT INTO %s SELECT i, 'the text of row ' || i || ' of %d'"+
			" FROM generate_series(1, %d) AS i", neighbourTable(number), number, backlogRows))
	}
	decoded(ctx, s.child, pool)
	s.clear(ctx)
	return s
}

// writeNeighbours writes the configuration of all pipelines. With misbehave, their fake plugins have faults.
func writeNeighbours(bin, dir string, misbehave bool) (file string) {
	var catalog, pipelines strings.Builder
	add := func(name, table, into, faults string) {
		if !misbehave {
			faults = ""
		}
		script := fmt.Sprintf("#!/bin/sh\nexport EMBEDSIDECAR_PLUGIN_FAULTS='%s' EMBEDSIDECAR_PLUGIN_FORKS='%s'\nexec '%s'\n",
			faults, filepath.Join(dir, "forks-"+name), filepath.Join(bin, "plugins", "embedsidecar-fake"))
		check(os.WriteFile(filepath.Join(dir, "embedsidecar-"+name), []byte(script), 0o700))
		fmt.Fprintf(&catalog, "    - {name: %s, memory_limit: 256MiB}\n", name)
		fmt.Fprintf(&pipelines, "  - {table: %s, columns: [body], plugin: %s, into: {table: %s}}\n", table, name, into)
	}
	add("mine", "public.docs", "docs_embedding", neighbours[0].faults)
	for number, n := range neighbours {
		add(fmt.Sprintf("neighbour-%d", number), neighbourTable(number), fmt.Sprintf("neighbour_%d_embedding", number), n.faults)
	}
	file = filepath.Join(dir, "embedsidecar.yaml")
	check(os.WriteFile(file, fmt.Appendf(nil, "plugins:\n  dir: %q\n  catalog:\n%spipelines:\n%s", dir,
		catalog.String(), pipelines.String()), 0o600))
	return file
}
