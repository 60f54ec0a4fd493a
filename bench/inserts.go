package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// measureInserts tells how long a thousand rows take that are inserted one by one, with default settings and an
// embedder of 50 ms a call, and how long the inserts take beside that and beside nothing.
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
