package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// misbehaviour is what a neighbour's plugin does.
var misbehaviour = [burning - 1]struct{ name, faults string }{
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
}

const (
	neighbourIdle  = "no work"
	neighbourGood  = "as it should"
	neighbourBurns = "burns CPU time without work"
	burning        = 13 // its number
	isolatedRows   = 8000
	backlogRows    = 20_000
)

// measureIsolation tells how fast a pipeline is while another, of the same sidecar, has a backlog and a plugin that
// misbehaves. All of them are there all the time, and only one has work: so what is compared was measured seconds
// apart, in one process. Beside each misbehaving neighbour, before and after it in turns, the pipeline is measured
// beside one that works as it should (which costs CPU time, too), and beside none.
func measureIsolation(ctx context.Context, p *place) (_ []section, err error) {
	pool, err := p.docs(ctx, "isolation", isolatedRows)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "bench") // names of sockets are short
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := p.neighbours(ctx, pool, dir)
	if err != nil {
		return nil, err
	}
	f := newFigures("isolation", "A pipeline beside another whose plugin ...")
	if err = s.measureNeighbours(ctx, p, f); err == nil {
		err = oracle(ctx, pool, tableVectors, nil) // what a neighbour has to do is taken away from it
	}
	err = errors.Join(err, s.end())
	one := f.done()
	for i := range one.Rows { // ratios of medians, of what was measured in turns
		l := &one.Rows[i]
		l.To = map[string]float64{}
		for what, values := range f.more[l.Name] {
			l.To[what] = l.Median / median(values[:min(len(values), len(l.Values))])
		}
	}
	return []section{one}, err
}

func (s *sidecar) measureNeighbours(ctx context.Context, p *place, f *figures) error {
	if _, err := s.mine(ctx, time.Time{}); err != nil {
		return err
	}
	beside := func(number int) (float64, error) { // 0: as it should; -1: none
		rate, err := s.beside(ctx, number)
		if err != nil {
			err = fmt.Errorf("neighbour %d: %w", number, err)
		}
		return rate, err
	}
	if _, err := beside(0); err != nil { // a first time for everything
		return err
	}
	for round := range p.rounds {
		for i, m := range misbehaviour {
			if !p.wantsNeighbour(m.name) {
				continue
			}
			rates := map[int]float64{}
			order := []int{0, i + 1, -1}
			for range (round + i) % len(order) {
				order = append(order[1:], order[0])
			}
			for _, number := range order {
				var err error
				if rates[number], err = beside(number); err != nil {
					return err
				}
			}
			f.add(m.name, "rows/s", rates[i+1])
			f.note(m.name, neighbourGood, rates[0])
			f.note(m.name, neighbourIdle, rates[-1])
		}
		p.say("isolation: round %d of %d", round+1, p.rounds)
	}
	return s.measureBurning(ctx, p, f)
}

// measureBurning comes last: a plugin that keeps all CPUs busy from its first call on does so beside everything. It
// has no work while it is measured; the sidecar has had time to notice that.
func (s *sidecar) measureBurning(ctx context.Context, p *place, f *figures) error {
	const name = neighbourBurns
	if !p.wantsNeighbour(name) {
		return nil
	}
	const noticed = 20 * time.Second
	for range p.rounds {
		rate, err := s.beside(ctx, -1)
		if err != nil {
			return err
		}
		f.note(name, neighbourIdle, rate)
	}
	if _, err := s.beside(ctx, burning); err != nil {
		return err
	}
	if err := pause(ctx, noticed); err != nil {
		return err
	}
	for range p.rounds {
		rate, err := s.beside(ctx, -1)
		if err != nil {
			return err
		}
		f.add(name, "rows/s", rate)
	}
	return nil
}

// neighbourNames are the names that --neighbours takes.
func neighbourNames() []string {
	var names []string
	for _, m := range misbehaviour {
		names = append(names, m.name)
	}
	return append(names, neighbourBurns)
}

// wantsNeighbour reports whether a neighbour is to be measured: all are, unless some are named.
func (p *place) wantsNeighbour(name string) bool {
	return len(p.named) == 0 || slices.Contains(p.named, name)
}

// neighbourTable is the table of a neighbour: 0 works as it should.
func neighbourTable(number int) string { return fmt.Sprintf("public.neighbour_%d", number) }

// beside measures the pipeline of docs while one neighbour has a backlog.
func (s *sidecar) beside(ctx context.Context, number int) (float64, error) {
	pool := s.pool
	if number >= 0 {
		table := neighbourTable(number)
		if _, err := pool.Exec(ctx, "UPDATE "+table+" SET body = body || '.'"); err != nil {
			return 0, fmt.Errorf("give the neighbour work: %w", err)
		}
		if err := s.queued(ctx); err != nil {
			return 0, err
		}
	}
	var since time.Time
	if err := pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&since); err != nil {
		return 0, err
	}
	began := time.Now()
	if _, err := pool.Exec(ctx, "UPDATE public.docs SET body = md5(id::text || $1) || right(body, 80)",
		since.String()); err != nil {
		return 0, fmt.Errorf("update: %w", err)
	}
	end, err := s.mine(ctx, since)
	if err != nil {
		return 0, err
	}
	if number >= 0 { // what is left of its work is taken away, and what it has begun may end
		if err := s.clear(ctx); err != nil {
			return 0, err
		}
		if err := pause(ctx, 500*time.Millisecond); err != nil {
			return 0, err
		}
	}
	return isolatedRows / end.Sub(began).Seconds(), nil
}

// queued waits until everything that is committed now has its tasks.
func (s *sidecar) queued(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	lsn, err := report.Now(ctx, s.pool)
	if err != nil {
		return err
	}
	for {
		var there bool
		if err := s.pool.QueryRow(ctx, "SELECT bool_and(lsn >= $1) FROM embedsidecar.lsn_checkpoint",
			lsn).Scan(&there); err != nil {
			return fmt.Errorf("ask how far the stream is: %w", err)
		}
		if there {
			return nil
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return fmt.Errorf("wait for the stream: %w: %s", err, s.tail())
		}
	}
}

// clear takes all work of neighbours away, but for the rows that somebody is writing at this moment, until there is
// none.
func (s *sidecar) clear(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		_, err := s.pool.Exec(ctx, `DELETE FROM embedsidecar.task WHERE task_id IN (SELECT t.task_id
			FROM embedsidecar.task AS t
			JOIN embedsidecar.pipeline AS p USING (pipeline_id) WHERE p.plugin <> 'mine' FOR UPDATE OF t SKIP LOCKED)`)
		var left bool
		if err == nil {
			err = s.pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM embedsidecar.task AS t JOIN embedsidecar.pipeline AS p USING (pipeline_id) WHERE p.plugin <> 'mine')").Scan(&left)
		}
		if err != nil {
			return fmt.Errorf("take the neighbour's work away: %w", err)
		}
		if !left {
			return nil
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}

// neighbours sets the pipelines up and starts the sidecar. They are set up while all plugins are sound: one that does
// not describe itself cannot be.
func (p *place) neighbours(ctx context.Context, pool *pgxpool.Pool, dir string) (*sidecar, error) {
	for number := range burning + 1 {
		table := neighbourTable(number)
		if _, err := pool.Exec(ctx, "CREATE TABLE "+table+" (id bigint PRIMARY KEY, body text NOT NULL)"); err != nil {
			return nil, fmt.Errorf("make a neighbour's table: %w", err)
		}
	}
	file, err := p.writeNeighbours(dir, func(int) string { return "" })
	if err != nil {
		return nil, err
	}
	database := pool.Config().ConnConfig.Database
	environ := append(slices.Clip(p.environ), "EMBEDSIDECAR_DATABASE_URL="+p.pg.URL(database, ""))
	if _, err := output(ctx, environ, filepath.Join(p.bin, "embedsidecar"), "init", "--slot", "slot_"+database,
		"--publication", "sidecar", "--config", file); err != nil {
		return nil, err
	}
	_, err = p.writeNeighbours(dir, func(number int) string {
		switch {
		case number <= 0:
			return "cost=20ms/call"
		case number == burning:
			return "cost=20ms/call;burn"
		}
		return misbehaviour[number-1].faults
	})
	if err != nil {
		return nil, err
	}
	s, err := p.startWith(pool, "--no-init", "--config", file, "--batch-rows", "64")
	if err != nil {
		return nil, err
	}
	// Rows that are there from now on and have their vectors, or not, are no work unless they change.
	for number := range burning + 1 {
		if number > 0 && !p.wantsNeighbour(neighbourNames()[number-1]) {
			continue
		}
		if _, err := pool.Exec(ctx, "INSERT INTO "+neighbourTable(number)+
			" SELECT i, 'the text of row ' || i || ' of ' || $2::int FROM generate_series(1, $1::int) AS i", backlogRows,
			number); err != nil {
			return nil, errors.Join(fmt.Errorf("fill a neighbour's table: %w", err), s.end())
		}
	}
	err = s.queued(ctx)
	if err == nil {
		err = s.clear(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.end())
	}
	return s, nil
}

// writeNeighbours writes the configuration of all pipelines. Their plugins are the fake one with other manners; -1 is
// the one that is measured.
func (p *place) writeNeighbours(dir string, manners func(number int) string) (file string, err error) {
	fake := filepath.Join(p.bin, "plugins", "embedsidecar-fake")
	var catalog, pipelines strings.Builder
	for number := -1; number <= burning; number++ {
		name, table, into := fmt.Sprintf("neighbour-%d", number), neighbourTable(number),
			fmt.Sprintf("neighbour_%d_embedding", number)
		if number < 0 {
			name, table, into = "mine", "public.docs", "docs_embedding"
		}
		script := fmt.Sprintf("#!/bin/sh\nexport EMBEDSIDECAR_PLUGIN_FAULTS='%s' EMBEDSIDECAR_PLUGIN_FORKS='%s'\nexec '%s'\n",
			manners(number), filepath.Join(dir, "forks-"+name), fake)
		if err := os.WriteFile(filepath.Join(dir, "embedsidecar-"+name), []byte(script), 0o700); err != nil {
			return "", err
		}
		fmt.Fprintf(&catalog, "    - {name: %s, memory_limit: 256MiB}\n", name)
		fmt.Fprintf(&pipelines, "  - {table: %s, columns: [body], plugin: %s, into: {table: %s}}\n", table, name, into)
	}
	file = filepath.Join(dir, "embedsidecar.yaml")
	return file, os.WriteFile(file, fmt.Appendf(nil, "plugins:\n  dir: %q\n  catalog:\n%spipelines:\n%s", dir,
		catalog.String(), pipelines.String()), 0o600)
}

// mine waits until every row of docs has been worked since a moment, and returns when that was.
func (s *sidecar) mine(ctx context.Context, since time.Time) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		done := 0
		err := s.pool.QueryRow(ctx, `SELECT count(*) FROM embedsidecar.ledger AS l
			JOIN embedsidecar.pipeline AS p USING (pipeline_id)
			WHERE p.plugin = 'mine' AND l.written_at > $1`, since).Scan(&done)
		now := time.Now()
		if err == nil && done >= isolatedRows {
			return now, nil
		}
		if dead := s.alive(); dead != nil {
			return now, dead
		}
		if err != nil && (ctx.Err() != nil || !notYet(err)) {
			return now, fmt.Errorf("wait for %d rows: %w: %s", isolatedRows, err, s.tail())
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return now, fmt.Errorf("wait for %d rows: %w: %s", isolatedRows, err, s.tail())
		}
	}
}
