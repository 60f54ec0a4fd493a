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
)

// misbehaviour is what the neighbour's plugin does; the first two are what the others are compared with.
var misbehaviour = []struct{ name, faults string }{
	{neighbourIdle, ""},
	{neighbourGood, "cost=20ms/call"},
	{"wrong count", "wrong-count-every=1"},
	{"wrong width", "wrong-dims-every=1"},
	{"another order", "permute-every=1"},
	{"NaN", "nan-on=e"},
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
	neighbourIdle = "no work"
	neighbourGood = "as it should"
	isolatedRows  = 8000
	backlogRows   = 20_000
)

// measureIsolation tells how fast a pipeline is whose neighbour has a plugin that misbehaves, against one whose neighbour has nothing
// to do and one whose neighbour works as it should: a neighbour's work costs CPU time, too.
func measureIsolation(ctx context.Context, p *place) ([]section, error) {
	f := newFigures("isolation", "A pipeline beside another whose plugin ...")
	for round := range p.rounds {
		for _, m := range misbehaviour {
			if err := p.beside(ctx, f, round, m.name, m.faults); err != nil {
				return nil, fmt.Errorf("neighbour %q: %w", m.name, err)
			}
		}
		p.say("isolation: round %d of %d", round+1, p.rounds)
	}
	return []section{f.done(neighbourIdle, neighbourGood)}, nil
}

// beside measures one pipeline while its neighbour has a backlog.
func (p *place) beside(ctx context.Context, f *figures, round int, name, faults string) (err error) {
	pool, err := p.docs(ctx, fmt.Sprintf("isolation_%d_%s", round, strings.ToLower(strings.ReplaceAll(name, " ", "_"))), isolatedRows)
	if err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, "CREATE TABLE public.neighbour (id bigint PRIMARY KEY, body text NOT NULL)"); err != nil {
		return fmt.Errorf("make the neighbour's table: %w", err)
	}
	dir, err := os.MkdirTemp("", "bench") // names of sockets are short
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// Set up while both are sound: a pipeline whose plugin does not describe itself cannot be.
	file, err := p.neighbours(dir, "")
	if err != nil {
		return err
	}
	database := pool.Config().ConnConfig.Database
	environ := append(slices.Clip(p.environ), "EMBEDSIDECAR_DATABASE_URL="+p.pg.URL(database, ""))
	if _, err := output(ctx, environ, filepath.Join(p.bin, "embedsidecar"), "init", "--slot", "slot_"+database, "--publication", "sidecar", "--config", file); err != nil {
		return err
	}
	if _, err = p.neighbours(dir, faults); err != nil {
		return err
	}
	s, err := p.startWith(pool, "--no-init", "--config", file, "--batch-rows", "64")
	if err != nil {
		return err
	}
	err = errors.Join(s.measureBeside(ctx, f, name), s.end())
	if err != nil {
		return err
	}
	// The server notices only by and by that nobody reads a busy slot any more.
	for {
		var active bool
		if err := pool.QueryRow(ctx, "SELECT coalesce(bool_or(active), false) FROM pg_replication_slots WHERE database = current_database()").Scan(&active); err != nil {
			return fmt.Errorf("ask for the slot: %w", err)
		}
		if !active {
			return p.drop(ctx, pool)
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// measureBeside gives the neighbour its backlog and measures.
func (s *sidecar) measureBeside(ctx context.Context, f *figures, name string) error {
	pool := s.pool
	if _, err := s.mine(ctx, time.Time{}); err != nil {
		return err
	}
	if name != neighbourIdle {
		if _, err := pool.Exec(ctx, "INSERT INTO public.neighbour SELECT i, 'the text of row ' || i FROM generate_series(1, $1::int) AS i", backlogRows); err != nil {
			return fmt.Errorf("give the neighbour work: %w", err)
		}
	}
	var since time.Time
	if err := pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&since); err != nil {
		return err
	}
	began := time.Now()
	if _, err := pool.Exec(ctx, "UPDATE public.docs SET body = body || ' again'"); err != nil {
		return fmt.Errorf("update: %w", err)
	}
	end, err := s.mine(ctx, since)
	if err != nil {
		return err
	}
	f.add(name, "rows/s", isolatedRows/end.Sub(began).Seconds())
	return nil
}

// neighbours writes the configuration of both pipelines, whose plugins are the fake one with other manners.
func (p *place) neighbours(dir, faults string) (file string, err error) {
	fake := filepath.Join(p.bin, "plugins", "embedsidecar-fake")
	for name, manners := range map[string]string{"good": "cost=20ms/call", "bad": faults} {
		script := fmt.Sprintf("#!/bin/sh\nexport EMBEDSIDECAR_PLUGIN_FAULTS='%s' EMBEDSIDECAR_PLUGIN_FORKS='%s'\nexec '%s'\n", manners, filepath.Join(dir, "forks"), fake)
		if err := os.WriteFile(filepath.Join(dir, "embedsidecar-"+name), []byte(script), 0o700); err != nil {
			return "", err
		}
	}
	file = filepath.Join(dir, "embedsidecar.yaml")
	return file, os.WriteFile(file, fmt.Appendf(nil, `
plugins: {dir: %q, catalog: [{name: bad, memory_limit: 256MiB}]}
pipelines:
  - {table: public.docs, columns: [body], plugin: good, into: {table: docs_embedding}}
  - {table: public.neighbour, columns: [body], plugin: bad, into: {table: neighbour_embedding}}
`, dir), 0o600)
}

// mine waits until every row of docs has been worked since a moment, and returns when that was.
func (s *sidecar) mine(ctx context.Context, since time.Time) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		done := 0
		err := s.pool.QueryRow(ctx, `SELECT count(*) FROM embedsidecar.ledger AS l JOIN embedsidecar.pipeline AS p USING (pipeline_id)
			WHERE p.plugin = 'good' AND l.written_at > $1`, since).Scan(&done)
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
