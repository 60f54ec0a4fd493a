package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// idleFor is how long a sidecar has nothing to do before its memory is looked at: some heartbeats, and as long as Go's
// runtime takes to give back what the start needed.
const idleFor = 30 * time.Second

// measureMemory measures the resident memory of the sidecar's process, without its plugins: idle, while it embeds a
// table that was full before its start, and while it reads and embeds one large transaction.
func measureMemory(ctx context.Context, p *place) ([]section, error) {
	f := newFigures("memory", fmt.Sprintf("Resident memory of the sidecar (backfill of %d rows, a transaction of %d)",
		p.table, p.transaction))
	for round := range p.rounds {
		if err := p.memoryRound(ctx, f, round); err != nil {
			return []section{f.done()}, err
		}
		p.say("memory: round %d of %d", round+1, p.rounds)
	}
	return []section{f.done()}, nil
}

// memoryRound measures each once, in a process of its own.
func (p *place) memoryRound(ctx context.Context, f *figures, round int) error {
	pool, err := p.docs(ctx, fmt.Sprintf("memory_%d", round), p.table)
	if err != nil {
		return err
	}
	loads := []struct {
		name string
		run  func(s *sidecar) error
	}{
		{backfill, func(*sidecar) error { return nil }},
		{"idle", func(*sidecar) error { return pause(ctx, idleFor) }},
		{"one transaction", func(*sidecar) error { return p.insertAtOnce(ctx, pool) }},
	}
	for _, l := range loads {
		if err := p.residentDuring(ctx, f, pool, l.name, l.run); err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
	}
	if err := oracle(ctx, pool, tableVectors, nil); err != nil {
		return err
	}
	return p.drop(ctx, pool)
}

// residentDuring starts a sidecar, has it catch up with what is there and with a load, and notes what its process had
// at the end, and the most it had.
func (p *place) residentDuring(
	ctx context.Context, f *figures, pool *pgxpool.Pool, name string, load func(*sidecar) error,
) (err error) {
	s, err := p.start(pool, fake...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.end()) }()
	// A million rows take a while on a machine that does something else as well.
	const patience = 2 * time.Hour
	if err := s.settleWithin(ctx, patience); err != nil {
		return err
	}
	if err := load(s); err != nil {
		return err
	}
	if err := s.settleWithin(ctx, patience); err != nil {
		return err
	}
	now, most, err := resident(s.pid())
	if err != nil {
		return err
	}
	if name == "idle" {
		f.add(name, "MB", now)
		f.note(name, "the most since its start, MB", most)
	} else {
		f.add(name, "MB at most", most)
		f.note(name, "at the end, MB", now)
	}
	p.say("memory: %s: %s MB, at most %s", name, number(now), number(most))
	return nil
}

// insertAtOnce inserts many rows in one transaction.
func (p *place) insertAtOnce(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, `INSERT INTO public.docs (id, body)
		SELECT $1::bigint + n, 'Row ' || n || ' of a large transaction, with as much text as others have: ' || md5(n::text)
		FROM generate_series(1, $2::integer) AS n`, p.table, p.transaction)
	if err != nil {
		return fmt.Errorf("insert %d rows: %w", p.transaction, err)
	}
	return nil
}
