package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// measureLatency measures the time from a commit to its visible vector, on an idle machine: one row, one commit, then
// a pause.
func measureLatency(ctx context.Context, p *place) ([]section, error) {
	f := newFigures("latency", "Idle: from one row's commit to its visible vector")
	if err := p.fakeLatency(ctx, f); err != nil {
		return nil, err
	}
	if err := p.realLatency(ctx, f); err != nil {
		return []section{f.done()}, err
	}
	return []section{f.done()}, nil
}

const latencyRows = 1000

// fakeLatency measures us with the fake embedder and the toy in turns.
func (p *place) fakeLatency(ctx context.Context, f *figures) (err error) {
	pool, err := p.docs(ctx, "latency", latencyRows)
	if err != nil {
		return err
	}
	s, err := p.start(pool, fake...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.end()) }()
	if err := s.settle(ctx); err != nil {
		return err
	}
	toyPool, err := p.docs(ctx, "latency_toy", latencyRows)
	if err != nil {
		return err
	}
	if err := prepareToy(ctx, toyPool); err != nil {
		return err
	}
	t, err := p.startToy(ctx, toyPool, p.goToy())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.end()) }()
	ours, theirs := p.newProbe(pool), p.newProbe(toyPool)
	for range p.commits {
		for _, pr := range []*probe{ours, theirs} {
			if err := pr.once(ctx, s.alive); err != nil {
				return err
			}
		}
	}
	ours.into(f, "embedsidecar, fake embedder")
	theirs.into(f, "LISTEN/NOTIFY toy")
	if err := oracle(ctx, pool, tableVectors, nil); err != nil {
		return err
	}
	p.say("latency: %d commits each beside a LISTEN/NOTIFY toy", p.commits)
	return nil
}

// realLatency measures us with the real model, and the model alone with the same texts.
func (p *place) realLatency(ctx context.Context, f *figures) (err error) {
	bare, err := p.startBare(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bare.end()) }()
	pool, err := p.docs(ctx, "latency_onnx", latencyRows)
	if err != nil {
		return err
	}
	// The table is small for a model that costs something: this is about one row.
	if _, err := pool.Exec(ctx, "DELETE FROM public.docs WHERE id > 100"); err != nil {
		return fmt.Errorf("make the table smaller: %w", err)
	}
	s, err := p.start(pool, onnx...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.end()) }()
	if err := s.settle(ctx); err != nil {
		return err
	}
	pr := p.newProbe(pool)
	var alone []float64
	for range p.realCommit {
		if err := pr.once(ctx, s.alive); err != nil {
			return err
		}
		took, err := bare.single(pr.text)
		if err != nil {
			return err
		}
		alone = append(alone, float64(took.Microseconds())/1000)
	}
	pr.into(f, "embedsidecar, real model")
	addTimes(f, "that model alone", alone)
	if err := p.verified(ctx, s); err != nil {
		return err
	}
	p.say("latency: %d commits with the real model", p.realCommit)
	return nil
}

// probe commits and waits for the vector.
type probe struct {
	pool    *pgxpool.Pool
	place   *place
	version int
	text    string // of the last commit
	times   []float64
}

func (p *place) newProbe(pool *pgxpool.Pool) *probe { return &probe{pool: pool, place: p} }

func (pr *probe) once(ctx context.Context, alive func() error) error {
	const (
		warmUp        = 5
		rows          = 100
		lookAgain     = 300 * time.Microsecond // often enough to see it, seldom enough to leave the cores to those who work
		shortestPause = 5 * time.Millisecond
		longestPause  = 25 * time.Millisecond
	)
	// A pause of its own length each time, so that no rhythm of ours meets one of theirs.
	if err := pause(ctx, shortestPause+rand.N(longestPause-shortestPause)); err != nil {
		return err
	}
	pr.version++
	id := pr.version%rows + 1
	pr.text = pr.place.text(id, pr.version)
	hash := pipeline.TextHash(pr.text)
	if _, err := pr.pool.Exec(ctx, "UPDATE public.docs SET body = $2 WHERE id = $1", id, pr.text); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	committed := time.Now()
	deadline := committed.Add(timeout)
	for {
		var there int
		err := pr.pool.QueryRow(ctx, "SELECT 1 FROM public.docs_embedding WHERE id = $1 AND text_hash = $2", id,
			hash[:]).Scan(&there)
		now := time.Now()
		if err == nil {
			if pr.version > warmUp {
				pr.times = append(pr.times, float64(now.Sub(committed).Microseconds())/1000)
			}
			return nil
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("look for the vector: %w", err)
		}
		if err := alive(); err != nil {
			return err
		}
		if now.After(deadline) {
			return fmt.Errorf("no vector within %s", timeout)
		}
		if err := pause(ctx, lookAgain); err != nil {
			return err
		}
	}
}

func (pr *probe) into(f *figures, name string) { addTimes(f, name, pr.times) }

// addTimes adds the figures of single times, in ms.
func addTimes(f *figures, name string, times []float64) {
	f.add(name+", p50", "ms", quantile(times, 0.5))
	f.add(name+", p99", "ms", quantile(times, 0.99))
}
