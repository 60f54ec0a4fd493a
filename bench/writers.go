package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"
)

var (
	tpsPattern   = regexp.MustCompile(`(?m)^tps = ([0-9.]+) `)
	countPattern = regexp.MustCompile(`(?m)^number of transactions actually processed: ([0-9]+)`)
)

// pgbench runs a script and returns transactions a second, and how many there were.
func (p *place) pgbench(ctx context.Context, pool *pgxpool.Pool, sc script, args ...string) (tps, count float64,
	err error,
) {
	path := filepath.Join(p.dir, "script.sql")
	if err := os.WriteFile(path, []byte(sc.sql), 0o600); err != nil {
		return 0, 0, fmt.Errorf("write pgbench's script: %w", err)
	}
	environ, err := p.libpq(named(pool))
	if err != nil {
		return 0, 0, err
	}
	out, err := output(ctx, append(environ, args[1:]...), filepath.Join(p.pg.Bin(), "pgbench"), "--no-vacuum",
		"--protocol=prepared", "--client="+strconv.Itoa(clients), "--jobs=1", "--file="+path, args[0])
	if err != nil {
		return 0, 0, err
	}
	for pattern, into := range map[*regexp.Regexp]*float64{tpsPattern: &tps, countPattern: &count} {
		found := pattern.FindStringSubmatch(out)
		if found == nil {
			return 0, 0, fmt.Errorf("pgbench printed no result: %s", out)
		}
		if *into, err = strconv.ParseFloat(found[1], 64); err != nil {
			return 0, 0, fmt.Errorf("pgbench printed %q: %w", found[0], err)
		}
	}
	return tps, count, nil
}

// readers makes those that read the WAL, each on a database of its own with so many rows.
func (p *place) readers(ctx context.Context, prefix string, rows int, names ...string) ([]*subject, error) {
	var subjects []*subject
	for i, name := range names {
		pool, err := p.docs(ctx, fmt.Sprintf("%s_%d", prefix, i), rows)
		if err != nil {
			return nil, err
		}
		s, err := p.newSubject(ctx, name, pool)
		if err != nil {
			return nil, err
		}
		subjects = append(subjects, s)
	}
	return subjects, nil
}

// measureWriters measures how many transactions a second the user's writers make beside nothing, us, and
// pg_recvlogical, which does nothing with what it reads: the floor for every reader of the WAL.
func measureWriters(ctx context.Context, p *place) (sections []section, err error) {
	for i, sc := range p.scripts {
		f := newFigures("pgbench, %s, %d clients: transactions/s while somebody reads the WAL", sc.name, clients)
		subjects, err := p.readers(ctx, fmt.Sprintf("writers_%d", i), docsRows, nobody, recvlogical, usTable)
		if err != nil {
			return sections, err
		}
		for round := range p.rounds {
			for i := range subjects {
				s := subjects[(i+round)%len(subjects)]
				if err := p.besideOne(ctx, f, s, sc); err != nil {
					return sections, fmt.Errorf("%s: %w", s.name, err)
				}
			}
			p.say("writers, %s: round %d of %d", sc.name, round+1, p.rounds)
		}
		for _, s := range subjects {
			if err := p.drop(ctx, s.pool); err != nil {
				return sections, err
			}
		}
		sections = append(sections, f.done(nobody, recvlogical))
	}
	return sections, nil
}

func (p *place) besideOne(ctx context.Context, f *figures, s *subject, sc script) (err error) {
	ended, own, pid := func() error { return nil }, time.Duration(0), 0
	if s.start != nil {
		c, err := s.begin(ctx)
		if err != nil {
			return err
		}
		pid = c.PID()
		ended = func() error {
			began := time.Now()
			err := s.caughtUp(ctx, c)
			f.note(s.name, "s behind at the end", time.Since(began).Seconds())
			if err == nil {
				err = s.oracle(ctx)
			}
			return errors.Join(err, c.stop(s.end))
		}
		own = cpuTime(pid)
	}
	server := p.serverCPU()
	tps, count, err := p.pgbench(ctx, s.pool, sc, fmt.Sprintf("--time=%d", int(p.sizes.pgbench.Seconds())))
	if err == nil {
		f.add(s.name, "TPS", tps)
		f.note(s.name, "server CPU us/transaction", micros(p.serverCPU()-server, int(count)))
		if pid != 0 {
			f.note(s.name, "own CPU us/transaction", micros(cpuTime(pid)-own, int(count)))
		}
	}
	return errors.Join(err, ended())
}

// measureCatchUp measures how fast transactions are read that have waited in the slot, by us and by pg_recvlogical, of
// the same WAL: such that must be queued, and such that change nothing.
func measureCatchUp(ctx context.Context, p *place) (sections []section, err error) {
	for i, sc := range []script{
		{"read and queued", sourceOf(p.waiting)},
		{"updates of another column", otherOf(p.waiting)},
	} {
		f := newFigures("Catch-up of %d single-row transactions that waited in the slot, %s", p.waiting, sc.name)
		subjects, err := p.readers(ctx, fmt.Sprintf("catchup_%d", i), p.waiting, usTable)
		if err != nil {
			return sections, err
		}
		pool := subjects[0].pool
		c, err := subjects[0].begin(ctx) // sets everything up, and embeds what is there
		if err == nil {
			err = c.stop(subjects[0].end)
		}
		if err != nil {
			return sections, err
		}
		floor, err := p.newSubject(ctx, recvlogical, pool)
		subjects = append(subjects, floor)
		for round := 0; round < p.rounds && err == nil; round++ {
			slices.Reverse(subjects)
			err = p.catchUp(ctx, f, subjects, sc)
			p.say("catchup, %s: round %d of %d", sc.name, round+1, p.rounds)
		}
		if err = errors.Join(err, p.drop(ctx, pool)); err != nil {
			return sections, err
		}
		sections = append(sections, f.done(recvlogical))
	}
	return sections, nil
}

// catchUp lets transactions gather while nobody reads, and has both read them, one after the other. What is read is
// queued; what an embedder does is another matter.
func (p *place) catchUp(ctx context.Context, f *figures, subjects []*subject, sc script) error {
	pool := subjects[0].pool
	if err := execute(ctx, pool, "SELECT embedsidecar.pause()"); err != nil {
		return err
	}
	// That each waits for the disk would only take time.
	if _, _, err := p.pgbench(ctx, pool, sc, "--transactions="+strconv.Itoa(p.waiting/clients),
		"PGOPTIONS=-c synchronous_commit=off"); err != nil {
		return err
	}
	for _, s := range subjects {
		if err := p.reads(ctx, f, s); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// reads measures one from the moment on at which it has its slot. We are done when all is durable on our side. What we
// have queued is embedded then, which is not measured, and the vectors must be true.
func (p *place) reads(ctx context.Context, f *figures, s *subject) (err error) {
	server := p.serverCPU()
	c, err := s.start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.stop(s.end)) }()
	read := s.caughtUp
	if s.name == usTable {
		read = func(ctx context.Context, c *child) error { return decoded(ctx, c, s.pool) }
		if _, err := streams(ctx, c, s.pool); err != nil {
			return err
		}
	}
	began := time.Now()
	if err := read(ctx, c); err != nil {
		return err
	}
	f.add(s.name, "transactions/s", float64(p.waiting)/time.Since(began).Seconds())
	f.note(s.name, "own CPU us/transaction", micros(cpuTime(c.PID()), p.waiting))
	f.note(s.name, "server CPU us/transaction", micros(p.serverCPU()-server, p.waiting))
	if s.name != usTable {
		return nil
	}
	if err := execute(ctx, s.pool, "SELECT embedsidecar.resume()"); err != nil {
		return err
	}
	if err := s.caughtUp(ctx, c); err != nil {
		return err
	}
	return s.oracle(ctx)
}

const (
	writerApplication = "writer"
	changeRow         = "UPDATE public.docs SET body = $2, changed_at = clock_timestamp() WHERE id = $1"
)

// writer is the user: a few connections that write one row a transaction, so many a second. Commits come as by many
// independent users, with exponential pauses; one that is late is made up for.
type writer struct {
	pool  *pgxpool.Pool
	place *place
	sql   string    // of a transaction: the id of a row that is there, and a text
	began time.Time // by the server's clock
	rows  int

	mu      sync.Mutex
	next    time.Time
	version int
	times   []float64 // of the transactions, in ms
}

// newWriter connects. The connections stay, so that to make and end them is no part of what is measured.
func (p *place) newWriter(ctx context.Context, pool *pgxpool.Pool, sql string) (*writer, error) {
	config := pool.Config().Copy()
	config.ConnConfig.RuntimeParams["application_name"] = writerApplication
	config.MaxConns, config.MinConns = clients, clients
	// The first use of a connection prepares the statement and fills its caches.
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		tx, err := conn.Begin(ctx)
		if err == nil {
			_, err = tx.Exec(ctx, sql, 0, "")
			err = errors.Join(err, tx.Rollback(ctx))
		}
		return err
	}
	own, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect as the writer: %w", err)
	}
	// No text comes twice, in no run: one that is known costs less.
	w := &writer{pool: own, place: p, sql: sql, version: int(time.Now().UnixMicro())}
	var conns []*pgxpool.Conn
	for range clients {
		var conn *pgxpool.Conn
		if conn, err = own.Acquire(ctx); err != nil {
			break
		}
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		conn.Release()
	}
	if err == nil {
		err = own.QueryRow(ctx, "SELECT clock_timestamp(), count(*) FROM public.docs").Scan(&w.began, &w.rows)
	}
	if err != nil {
		own.Close()
		return nil, fmt.Errorf("connect as the writer: %w", err)
	}
	return w, nil
}

// run commits at a rate for a while.
func (w *writer) run(ctx context.Context, rate int, length time.Duration) error {
	w.next = time.Now()
	end := w.next.Add(length)
	work, ctx := errgroup.WithContext(ctx)
	for range clients {
		work.Go(func() error {
			for {
				at, version := w.turn(rate)
				if at.After(end) || time.Now().After(end) {
					return nil
				}
				if err := pause(ctx, time.Until(at)); err != nil {
					return err
				}
				id := rand.IntN(w.rows) + 1
				began := time.Now()
				if _, err := w.pool.Exec(ctx, w.sql, id, w.place.text(id, version)); err != nil {
					return fmt.Errorf("write a row: %w", err)
				}
				took := time.Since(began)
				w.mu.Lock()
				w.times = append(w.times, millis(took))
				w.mu.Unlock()
			}
		})
	}
	return work.Wait()
}

// turn is when the next commit is due, and the version of its text.
func (w *writer) turn(rate int) (time.Time, int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := w.next
	w.next = at.Add(time.Duration(rand.ExpFloat64() * float64(time.Second) / float64(rate)))
	w.version++
	return at, w.version
}

// measureInserts measures how long a thousand single inserts take, with default settings and an embedder of
// 50 ms a call, and how long the inserts take beside that and beside nothing.
func measureInserts(ctx context.Context, p *place) ([]section, error) {
	const rate, length, alone = 200, 5 * time.Second, "insert p95, no sidecar"
	f := newFigures("Rows inserted one by one, %d a second for %s, embedder of 50 ms a call", rate, length)
	before := p.environ
	defer func() { p.environ = before }()
	p.environ = append(slices.Clip(p.environ), "EMBEDSIDECAR_PLUGIN_FAULTS=cost=50ms/call")
	for round := range p.rounds {
		order := []string{alone, "insert p95, beside the sidecar"}
		if round%2 != 0 {
			slices.Reverse(order)
		}
		for i, name := range order {
			if err := p.insertsRound(ctx, f, fmt.Sprintf("inserts_%d_%d", round, i), name, name != alone, rate, length); err != nil {
				return nil, err
			}
		}
		p.say("inserts: round %d of %d", round+1, p.rounds)
	}
	return []section{f.done(alone)}, nil
}

func (p *place) insertsRound(ctx context.Context, f *figures, database, name string, beside bool, rate int,
	length time.Duration,
) error {
	pool, err := p.docs(ctx, database, 100)
	if err != nil {
		return err
	}
	s, err := p.newSubject(ctx, usTable, pool)
	if err != nil {
		return err
	}
	end := func() error { return nil }
	if beside {
		c, err := s.begin(ctx)
		if err != nil {
			return err
		}
		began := time.Now()
		end = func() error {
			err := s.caughtUp(ctx, c)
			f.add("from the first insert to the last vector", "s", time.Since(began).Seconds())
			if err == nil {
				err = s.oracle(ctx)
			}
			return errors.Join(err, c.stop(s.end))
		}
	}
	w, err := p.newWriter(ctx, pool, "INSERT INTO public.docs (id, body) VALUES (nextval('public.docs_ids') + 0 * $1::int, $2)")
	if err != nil {
		return errors.Join(err, end())
	}
	defer w.pool.Close()
	err = w.run(ctx, rate, length)
	f.add(name, "ms", quantile(w.times, 0.95))
	f.note(name, "p50 ms", quantile(w.times, 0.5))
	return errors.Join(err, end(), p.drop(ctx, pool))
}
