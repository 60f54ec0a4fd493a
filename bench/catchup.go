package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// measureCatchUp measures how fast transactions are read that have waited in the slot, by us and by pg_recvlogical, of
// the same WAL: such that must be queued, and such that change nothing.
func measureCatchUp(ctx context.Context, p *place) ([]section, error) {
	var sections []section
	for i, sc := range []script{
		{"read and queued", sourceOf(p.waiting)},
		{"updates of another column", otherOf(p.waiting)},
	} {
		s, err := p.catchUp(ctx, sc, strconv.Itoa(i))
		if err != nil {
			return sections, fmt.Errorf("%s: %w", sc.name, err)
		}
		sections = append(sections, s)
	}
	return sections, nil
}

func (p *place) catchUp(ctx context.Context, sc script, suffix string) (section, error) {
	f := newFigures("catchup", fmt.Sprintf("Catch-up of %d single-row transactions that waited in the slot, %s", p.waiting,
		sc.name))
	path := filepath.Join(p.dir, "waiting-"+suffix+".sql")
	if err := os.WriteFile(path, []byte(sc.sql), 0o600); err != nil {
		return section{}, fmt.Errorf("write pgbench's script: %w", err)
	}
	pool, err := p.docs(ctx, "catchup_"+suffix, p.waiting)
	if err != nil {
		return section{}, err
	}
	if err := p.backfilled(ctx, pool); err != nil {
		return section{}, err
	}
	fl := &floor{place: p, pool: pool, slot: "floor_" + pool.Config().ConnConfig.Database}
	if _, err := pool.Exec(ctx, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", fl.slot); err != nil {
		return section{}, fmt.Errorf("make a slot: %w", err)
	}
	for round := range p.rounds {
		if err := p.catchUpOnce(ctx, f, fl, path, round%2 == 1); err != nil {
			return section{}, err
		}
		p.say("catchup, %s: round %d of %d", sc.name, round+1, p.rounds)
	}
	return f.done(besideFloor), p.drop(ctx, pool)
}

// backfilled sets everything up and embeds what is there.
func (p *place) backfilled(ctx context.Context, pool *pgxpool.Pool) error {
	s, err := p.start(pool, fake...)
	if err != nil {
		return err
	}
	return errors.Join(s.settle(ctx), s.end())
}

// catchUpOnce lets transactions gather while nobody reads, and has both read them, one after the other.
func (p *place) catchUpOnce(ctx context.Context, f *figures, fl *floor, path string, oursFirst bool) (err error) {
	// What is read is queued; what an embedder does is another matter.
	if _, err := fl.pool.Exec(ctx, "SELECT embedsidecar.pause()"); err != nil {
		return fmt.Errorf("pause: %w", err)
	}
	if err := p.gather(ctx, fl.pool, path); err != nil {
		return err
	}
	end, err := report.Now(ctx, fl.pool)
	if err != nil {
		return fmt.Errorf("ask for the end of the WAL: %w", err)
	}
	ways := []func() error{
		func() error { return p.floorReads(ctx, f, fl) },
		func() error { return p.weRead(ctx, f, fl.pool, end) },
	}
	if oursFirst {
		slices.Reverse(ways)
	}
	for _, read := range ways {
		if err := read(); err != nil {
			return err
		}
	}
	return nil
}

// gather makes the transactions. That each waits for the disk would only take time.
func (p *place) gather(ctx context.Context, pool *pgxpool.Pool, path string) error {
	environ, err := p.libpq(pool.Config().ConnConfig.Database)
	if err != nil {
		return err
	}
	_, err = output(ctx, append(environ, "PGOPTIONS=-c synchronous_commit=off"), filepath.Join(p.pg.Bin(), "pgbench"),
		"--no-vacuum", "--protocol=prepared", "--client="+strconv.Itoa(clients), "--jobs=1",
		"--transactions="+strconv.Itoa(p.waiting/clients), "--file="+path)
	return err
}

// floorReads measures pg_recvlogical from the moment on at which it has its slot.
func (p *place) floorReads(ctx context.Context, f *figures, fl *floor) error {
	server := p.serverCPU()
	if err := fl.start(); err != nil {
		return err
	}
	began, err := active(ctx, fl.pool, fl.slot, fl.c.alive)
	if err == nil {
		err = fl.caughtUp(ctx)
	}
	took := time.Since(began)
	own := fl.cpu()
	if err = errors.Join(err, fl.interrupt()); err != nil {
		return fmt.Errorf("%s: %w", besideFloor, err)
	}
	p.tell(f, besideFloor, took, own, p.serverCPU()-server)
	return nil
}

// weRead does the same with the sidecar, which is done when all is durable on our side. Then it embeds what it has
// queued, which is not measured, and the vectors must be true.
func (p *place) weRead(ctx context.Context, f *figures, pool *pgxpool.Pool, end pglogrepl.LSN) error {
	server := p.serverCPU()
	s, err := p.start(pool, fake...)
	if err != nil {
		return err
	}
	began, err := active(ctx, pool, s.slot, s.alive)
	if err == nil {
		err = s.decoded(ctx, end)
	}
	took := time.Since(began)
	own := s.cpu()
	if err == nil {
		p.tell(f, besideSelves, took, own, p.serverCPU()-server)
		_, err = pool.Exec(ctx, "SELECT embedsidecar.resume()")
	}
	if err == nil {
		err = s.settle(ctx)
	}
	if err == nil {
		err = oracle(ctx, pool, tableVectors, nil)
	}
	return errors.Join(err, s.end())
}

func (p *place) tell(f *figures, who string, took, own, server time.Duration) {
	f.add(who, "transactions/s", float64(p.waiting)/took.Seconds())
	f.note(who, "own CPU us/transaction", micros(own, p.waiting))
	f.note(who, "server CPU us/transaction", micros(server, p.waiting))
}

// active waits until somebody has the slot, and returns when that was seen.
func active(ctx context.Context, pool *pgxpool.Pool, slot string, alive func() error) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		var active bool
		err := pool.QueryRow(ctx, "SELECT active FROM pg_replication_slots WHERE slot_name = $1", slot).Scan(&active)
		if now := time.Now(); active {
			return now, nil
		}
		if err = errors.Join(err, alive()); err == nil {
			err = pause(ctx, 5*time.Millisecond)
		}
		if err != nil {
			return time.Now(), fmt.Errorf("wait until slot %s is read: %w", slot, err)
		}
	}
}

// decoded waits until everything before a position is in the queue, or was nothing.
func (s *sidecar) decoded(ctx context.Context, end pglogrepl.LSN) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for asked := (time.Time{}); ; {
		// An idle streamer saves itself the write of its position, unless somebody asks for it.
		if time.Since(asked) > time.Second {
			if _, err := report.Now(ctx, s.pool); err != nil {
				return fmt.Errorf("ask for the position: %w", err)
			}
			asked = time.Now()
		}
		state, err := report.At(ctx, s.pool, s.slot, end)
		if err == nil && state.Decoded {
			return nil
		}
		if err = errors.Join(err, s.alive()); err == nil {
			err = pause(ctx, 10*time.Millisecond)
		}
		if err != nil {
			return fmt.Errorf("wait until the sidecar has read all: %w: %s", err, s.tail())
		}
	}
}
