package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// clients keep two cores busy.
const clients = 4

// A reader is who reads the WAL while pgbench runs.
type reader interface {
	begin(ctx context.Context) error                  // and be done with what is there
	cpu() time.Duration                               // used since begin
	after(ctx context.Context) (time.Duration, error) // ends; tells how long it took to be done with all
}

// measureWriters measures how many transactions a second the user's writers make beside nothing, us, and
// pg_recvlogical, which does nothing with what it reads: the floor for every reader of the WAL.
func measureWriters(ctx context.Context, p *place) ([]section, error) {
	var sections []section
	for i, sc := range p.scripts {
		s, err := p.writers(ctx, sc, strconv.Itoa(i))
		if err != nil {
			return sections, err
		}
		sections = append(sections, s)
	}
	return sections, nil
}

const (
	beside       = "nobody reads"
	besideFloor  = "pg_recvlogical"
	besideSelves = "embedsidecar"
)

func (p *place) writers(ctx context.Context, sc script, suffix string) (section, error) {
	f := newFigures("writers", fmt.Sprintf("pgbench, %s, %d clients: transactions/s while somebody reads the WAL", sc.name,
		clients))
	path := filepath.Join(p.dir, "script-"+suffix+".sql")
	if err := os.WriteFile(path, []byte(sc.sql), 0o600); err != nil {
		return section{}, fmt.Errorf("write pgbench's script: %w", err)
	}
	// Each has a database of its own: a slot that waits would otherwise find the others' changes when it is read again.
	var kinds []kind
	for _, name := range []string{beside, besideFloor, besideSelves} {
		pool, err := p.docs(ctx, fmt.Sprintf("writers_%s_%d", suffix, len(kinds)), docsRows)
		if err != nil {
			return section{}, err
		}
		if _, err := pool.Exec(ctx, "CREATE SEQUENCE public.docs_ids START 1000000"); err != nil {
			return section{}, fmt.Errorf("make a sequence: %w", err)
		}
		k := kind{name: name, pool: pool}
		switch name {
		case besideFloor:
			if k.reader, err = p.newFloor(ctx, pool); err != nil {
				return section{}, err
			}
		case besideSelves:
			k.reader = &us{place: p, pool: pool}
		}
		kinds = append(kinds, k)
	}
	for round := range p.rounds {
		for i := range kinds {
			if err := p.besideOne(ctx, f, kinds[(i+round)%len(kinds)], path); err != nil {
				return section{}, err
			}
		}
		p.say("writers, %s: round %d of %d", sc.name, round+1, p.rounds)
	}
	for _, k := range kinds {
		if err := p.drop(ctx, k.pool); err != nil {
			return section{}, err
		}
	}
	return f.done(beside, besideFloor), nil
}

// kind is one of those that pgbench is run beside.
type kind struct {
	name   string
	pool   *pgxpool.Pool
	reader reader // nil: nobody
}

func (p *place) besideOne(ctx context.Context, f *figures, k kind, path string) error {
	var own time.Duration
	if k.reader != nil {
		if err := k.reader.begin(ctx); err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
		own = k.reader.cpu()
	}
	server := p.serverCPU()
	tps, count, err := p.runPgbench(ctx, k.pool, path)
	server = p.serverCPU() - server
	if k.reader != nil {
		own = k.reader.cpu() - own
		lag, stopped := k.reader.after(ctx)
		if err = errors.Join(err, stopped); err == nil && lag > 0 {
			f.note(k.name, "s behind at the end", lag.Seconds())
		}
		if err == nil {
			f.note(k.name, "own CPU us/transaction", micros(own, count))
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", k.name, err)
	}
	f.add(k.name, "TPS", tps)
	f.note(k.name, "server CPU us/transaction", micros(server, count))
	return nil
}

var (
	tpsPattern   = regexp.MustCompile(`(?m)^tps = ([0-9.]+) `)
	countPattern = regexp.MustCompile(`(?m)^number of transactions actually processed: ([0-9]+)`)
)

func (p *place) runPgbench(ctx context.Context, pool *pgxpool.Pool, path string) (tps float64, count int, err error) {
	environ, err := p.libpq(pool.Config().ConnConfig.Database)
	if err != nil {
		return 0, 0, err
	}
	out, err := output(ctx, environ, filepath.Join(p.pg.Bin(), "pgbench"), "--no-vacuum", "--protocol=prepared",
		"--client="+strconv.Itoa(clients), "--jobs=1", "--time="+strconv.Itoa(int(p.sizes.pgbench.Seconds())), "--file="+path)
	if err != nil {
		return 0, 0, err
	}
	rate, number := tpsPattern.FindStringSubmatch(out), countPattern.FindStringSubmatch(out)
	if rate == nil || number == nil {
		return 0, 0, fmt.Errorf("pgbench printed no result: %s", out)
	}
	if tps, err = strconv.ParseFloat(rate[1], 64); err != nil {
		return 0, 0, fmt.Errorf("pgbench printed %q: %w", rate[0], err)
	}
	if count, err = strconv.Atoi(number[1]); err != nil {
		return 0, 0, fmt.Errorf("pgbench printed %q: %w", number[0], err)
	}
	return tps, count, nil
}

// us is the sidecar with the fake embedder.
type us struct {
	place *place
	pool  *pgxpool.Pool
	s     *sidecar
}

func (u *us) begin(ctx context.Context) (err error) {
	if u.s, err = u.place.start(u.pool, fake...); err != nil {
		return err
	}
	return u.s.settle(ctx)
}

func (u *us) cpu() time.Duration { return u.s.cpu() }

func (u *us) after(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	err := u.s.settle(ctx)
	behind := time.Since(began)
	if err == nil {
		err = oracle(ctx, u.pool, tableVectors, nil)
	}
	return behind, errors.Join(err, u.s.end())
}

// floor is pg_recvlogical with the same plugin and a publication like ours.
type floor struct {
	place *place
	pool  *pgxpool.Pool
	slot  string
	c     *child
}

func (p *place) newFloor(ctx context.Context, pool *pgxpool.Pool) (*floor, error) {
	fl := &floor{place: p, pool: pool, slot: "floor_" + pool.Config().ConnConfig.Database}
	if _, err := pool.Exec(ctx, "CREATE PUBLICATION sidecar FOR TABLE public.docs"); err != nil {
		return nil, fmt.Errorf("make a publication: %w", err)
	}
	if _, err := pool.Exec(ctx, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", fl.slot); err != nil {
		return nil, fmt.Errorf("make a slot: %w", err)
	}
	return fl, nil
}

func (fl *floor) begin(ctx context.Context) error {
	if err := fl.start(); err != nil {
		return err
	}
	return fl.caughtUp(ctx)
}

func (fl *floor) start() error {
	environ, err := fl.place.libpq(fl.pool.Config().ConnConfig.Database)
	if err != nil {
		return err
	}
	//nolint:noctx // it is ended in order, by after
	cmd := exec.Command(filepath.Join(fl.place.pg.Bin(), "pg_recvlogical"), "--start",
		"--dbname="+fl.pool.Config().ConnConfig.Database, "--slot="+fl.slot, "--no-loop",
		"--option=proto_version=1", "--option=publication_names=sidecar", "--file="+os.DevNull, "--fsync-interval=0",
		"--status-interval=1")
	cmd.Env = environ
	fl.c, err = start(cmd, fl.place.log("pg_recvlogical"))
	return err
}

func (fl *floor) cpu() time.Duration { return fl.c.cpu() }

// caughtUp waits until everything that is committed now was sent.
func (fl *floor) caughtUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var lsn string
	if err := fl.pool.QueryRow(ctx, "SELECT pg_current_wal_flush_lsn()::text").Scan(&lsn); err != nil {
		return fmt.Errorf("ask for the end of the WAL: %w", err)
	}
	for {
		var done bool
		err := fl.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_stat_replication AS r
			JOIN pg_replication_slots AS s ON s.active_pid = r.pid
			WHERE s.slot_name = $1 AND r.sent_lsn >= $2::text::pg_lsn)`, fl.slot, lsn).Scan(&done)
		if err != nil {
			return fmt.Errorf("wait for pg_recvlogical: %w", err)
		}
		if done {
			return nil
		}
		if err := fl.c.alive(); err != nil {
			return err
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return fmt.Errorf("wait for pg_recvlogical: %w: %s", err, fl.c.tail())
		}
	}
}

func (fl *floor) after(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	err := fl.caughtUp(ctx)
	behind := time.Since(began)
	return behind, errors.Join(err, fl.interrupt())
}

// interrupt ends it as its manual says.
func (fl *floor) interrupt() error { return fl.c.stop(syscall.SIGINT) }
