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

	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
)

var (
	tpsPattern   = regexp.MustCompile(`(?m)^tps = ([0-9.]+) `)
	countPattern = regexp.MustCompile(`(?m)^number of transactions actually processed: ([0-9]+)`)
)

// pgbench runs a script and returns the transactions per second, and their number.
func (p *place) pgbench(ctx context.Context, pool *pgxpool.Pool, sc script, args ...string) (tps, count float64) {
	path := filepath.Join(p.dir, "script.sql")
	check(os.WriteFile(path, []byte(sc.sql), 0o600))
	out := output(ctx, append(p.libpq(named(pool)), args[1:]...), filepath.Join(p.pg.Bin(), "pgbench"), "--no-vacuum",
		"--protocol=prepared", "--client="+strconv.Itoa(clients), "--jobs=1", "--file="+path, args[0])
	for pattern, into := range map[*regexp.Regexp]*float64{tpsPattern: &tps, countPattern: &count} {
		found := pattern.FindStringSubmatch(out)
		if found == nil {
			check(fmt.Errorf("pgbench printed no result: %s", out))
		}
		*into = must(strconv.ParseFloat(found[1], 64))
	}
	return tps, count
}

// measureWriters measures the writers' transactions per second alone, beside the sidecar, and beside pg_recvlogical,
// which discards what it reads: the lower bound for every reader of the WAL.
func measureWriters(ctx context.Context, p *place) {
	for i, sc := range p.scripts {
		p.measureWriter(ctx, fmt.Sprintf("writers_%d", i), sc)
	}
}

func (p *place) measureWriter(ctx context.Context, prefix string, sc script) {
	f := newFigures("pgbench, %s, %d clients: transactions/s while somebody reads the WAL", sc.name, clients)
	defer p.show(f, nobody, recvlogical)
	var subjects []*subject // each on a database of its own
	for i, name := range []string{nobody, recvlogical, usTable} {
		subjects = append(subjects, p.newSubject(ctx, name, p.docs(ctx, fmt.Sprintf("%s_%d", prefix, i), docsRows)))
	}
	for round := range p.rounds {
		for i := range subjects {
			p.besideOne(ctx, f, subjects[(i+round)%len(subjects)], sc)
		}
		p.say("writers, %s: round %d of %d", sc.name, round+1, p.rounds)
	}
	for _, s := range subjects {
		p.drop(ctx, s.pool)
	}
}

func (p *place) besideOne(ctx context.Context, f *figures, s *subject, sc script) {
	defer during("%s", s.name)
	var c *child
	own := func() time.Duration { return 0 }
	if s.start != nil {
		c = s.begin(ctx)
		own = func() time.Duration { return cpuTime(c.PID()) }
	}
	server, before := p.serverCPU(), own()
	tps, count := p.pgbench(ctx, s.pool, sc, fmt.Sprintf("--time=%d", int(p.sizes.pgbench.Seconds())))
	f.add(s.name, "TPS", tps)
	f.note(s.name, "server CPU us/transaction", micros(p.serverCPU()-server, int(count)))
	if c == nil {
		return
	}
	f.note(s.name, "own CPU us/transaction", micros(own()-before, int(count)))
	began := time.Now()
	s.caughtUp(ctx, c)
	f.note(s.name, "s behind at the end", time.Since(began).Seconds())
	s.oracle(ctx)
	c.stop(s.end)
}

// measureCatchUp measures how fast the sidecar and pg_recvlogical read the same backlog of a slot: transactions that
// must be queued, and irrelevant ones.
func measureCatchUp(ctx context.Context, p *place) {
	for i, sc := range []script{
		{"read and queued", sourceOf(p.waiting)},
		{"updates of another column", otherOf(p.waiting)},
	} {
		p.catchUp(ctx, p.docs(ctx, fmt.Sprintf("catchup_%d", i), p.waiting), sc)
	}
}

// catchUp accumulates transactions while no reader runs, and then lets both read them, one after the other. It measures
// until they are queued, without embedding.
func (p *place) catchUp(ctx context.Context, pool *pgxpool.Pool, sc script) {
	f := newFigures("Catch-up of %d single-row transactions that waited in the slot, %s", p.waiting, sc.name)
	defer p.show(f, recvlogical)
	ours := p.newSubject(ctx, usTable, pool)
	ours.begin(ctx).stop(ours.end) // does the setup and embeds existing rows
	subjects := []*subject{ours, p.newSubject(ctx, recvlogical, pool)}
	for round := range p.rounds {
		slices.Reverse(subjects)
		execute(ctx, pool, "SELECT embedsidecar.pause()")
		// Waiting for the disk at each commit would only take time.
		p.pgbench(ctx, pool, sc, "--transactions="+strconv.Itoa(p.waiting/clients), "PGOPTIONS=-c synchronous_commit=off")
		for _, s := range subjects {
			p.reads(ctx, f, s)
		}
		p.say("catchup, %s: round %d of %d", sc.name, round+1, p.rounds)
	}
	p.drop(ctx, pool)
}

// reads measures a subject from the time at which it acquires its slot. The sidecar is done when everything is durable
// in its queue. After the measurement the queue is embedded and the vectors are checked.
func (p *place) reads(ctx context.Context, f *figures, s *subject) {
	defer during("%s", s.name)
	server := p.serverCPU()
	c := s.start(ctx)
	read := s.caughtUp
	if s.name == usTable {
		read = func(ctx context.Context, c *child) { decoded(ctx, c, s.pool) }
		streams(ctx, c, s.pool)
	}
	began := time.Now()
	read(ctx, c)
	f.add(s.name, "transactions/s", float64(p.waiting)/time.Since(began).Seconds())
	f.note(s.name, "own CPU us/transaction", micros(cpuTime(c.PID()), p.waiting))
	f.note(s.name, "server CPU us/transaction", micros(p.serverCPU()-server, p.waiting))
	if s.name == usTable {
		execute(ctx, s.pool, "SELECT embedsidecar.resume()")
		s.caughtUp(ctx, c)
		s.oracle(ctx)
	}
	c.stop(s.end)
}

const (
	writerApplication = "writer"
	changeRow         = "UPDATE public.docs SET body = $2, changed_at = clock_timestamp() WHERE id = $1"
)

// writer simulates users: a few connections that write one row per transaction at a given rate. Commits have
// exponential pauses, as from many independent users; delays are caught up.
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

// newWriter connects. The connections stay open, so that connecting is not measured.
func (p *place) newWriter(ctx context.Context, pool *pgxpool.Pool, sql string) *writer {
	defer during("connect as the writer")
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
	own := must(pgxpool.NewWithConfig(ctx, config))
	p.pools = append(p.pools, own)
	for range clients {
		defer must(own.Acquire(ctx)).Release() // so that all connections are made now
	}
	// Texts never repeat, also between runs, because a known text costs less.
	w := &writer{pool: own, place: p, sql: sql, version: int(time.Now().UnixMicro())}
	w.rows, w.began = value[int](ctx, pool, "SELECT count(*) FROM public.docs"), serverTime(ctx, pool)
	return w
}

// run commits at a rate for a time.
func (w *writer) run(ctx context.Context, rate int, length time.Duration) {
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
				if err := w.write(ctx, version); err != nil {
					return err
				}
			}
		})
	}
	check(wrap.Errorf(work.Wait(), "write rows"))
}

// write commits a text.
func (w *writer) write(ctx context.Context, version int) error {
	id := rand.IntN(w.rows) + 1
	began := time.Now()
	_, err := w.pool.Exec(ctx, w.sql, id, w.place.text(id, version))
	took := time.Since(began)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.times = append(w.times, millis(took))
	return err
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

// Rate, duration and name of the inserts.
const (
	insertRate   = 200
	insertLength = 5 * time.Second
	insertAlone  = "insert p95, no sidecar"
	insertBeside = "insert p95, beside the sidecar"
)

// measureInserts measures the latency of vectors for a thousand single inserts, with default settings and an embedder
// of 50 ms per call, and the duration of the inserts with and without the sidecar.
func measureInserts(ctx context.Context, p *place) {
	f := newFigures("Rows inserted one by one, %d a second for %s, embedder of 50 ms a call", insertRate, insertLength)
	defer p.show(f, insertAlone)
	before := p.environ
	defer func() { p.environ = before }()
	p.environ = append(slices.Clip(p.environ), "EMBEDSIDECAR_PLUGIN_FAULTS=cost=50ms/call")
	for round := range p.rounds {
		order := []string{insertAlone, insertBeside}
		if round%2 != 0 {
			slices.Reverse(order)
		}
		for i, name := range order {
			p.insertsRound(ctx, f, fmt.Sprintf("inserts_%d_%d", round, i), name)
		}
		p.say("inserts: round %d of %d", round+1, p.rounds)
	}
}

func (p *place) insertsRound(ctx context.Context, f *figures, database, name string) {
	pool := p.docs(ctx, database, 100)
	s := p.newSubject(ctx, usTable, pool)
	var c *child
	if name == insertBeside {
		c = s.begin(ctx)
	}
	began := time.Now()
	w := p.newWriter(ctx, pool, "INSERT INTO public.docs (id, body) VALUES (nextval('public.docs_ids') + 0 * $1::int, $2)")
	w.run(ctx, insertRate, insertLength)
	f.add(name, "ms", quantile(w.times, 0.95))
	f.note(name, "p50 ms", quantile(w.times, 0.5))
	if c != nil {
		s.caughtUp(ctx, c)
		f.add("from the first insert to the last vector", "s", time.Since(began).Seconds())
		s.oracle(ctx)
		c.stop(s.end)
	}
	w.pool.Close()
	p.drop(ctx, pool)
}
