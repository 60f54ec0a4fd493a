package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"
)

// insertedRows and slowly are what a first try may look like: a thousand new rows, and a model that takes a while.
const (
	insertedRows = 1000
	insertRate   = 200 // a second
	slowly       = "EMBEDSIDECAR_PLUGIN_FAULTS=cost=50ms/call"
)

// measureInserts tells how long a thousand rows take that are inserted one by one, with default settings and an
// embedder of 50 ms a call, and how long the inserts take beside that and beside nothing.
func measureInserts(ctx context.Context, p *place) ([]section, error) {
	f := newFigures("inserts", fmt.Sprintf("%d rows inserted one by one, %d a second, embedder of 50 ms a call", insertedRows,
		insertRate))
	before := p.environ
	defer func() { p.environ = before }()
	p.environ = append(slices.Clip(p.environ), slowly)
	for round := range p.rounds {
		for _, beside := range []bool{round%2 == 0, round%2 != 0} {
			if err := p.insertsRound(ctx, f, round, beside); err != nil {
				return nil, err
			}
		}
		p.say("inserts: round %d of %d", round+1, p.rounds)
	}
	return []section{f.done("insert p95, no sidecar")}, nil
}

func (p *place) insertsRound(ctx context.Context, f *figures, round int, beside bool) (err error) {
	pool, err := p.docs(ctx, fmt.Sprintf("inserts_%d_%t", round, beside), 100)
	if err != nil {
		return err
	}
	name := "insert p95, no sidecar"
	var s *sidecar
	if beside {
		name = "insert p95, beside the sidecar"
		if s, err = p.start(pool, fake...); err != nil {
			return err
		}
		if err := s.settle(ctx); err != nil {
			return errors.Join(err, s.end())
		}
	}
	began := time.Now()
	times, err := p.inserts(ctx, pool)
	if err == nil {
		f.add(name, "ms", quantile(times, 0.95))
		f.note(name, "p50 ms", quantile(times, 0.5))
	}
	if beside {
		if err == nil {
			err = s.settle(ctx)
			f.add("from the first insert to the last vector", "s", time.Since(began).Seconds())
		}
		if err == nil {
			err = oracle(ctx, pool, tableVectors, nil)
		}
		err = errors.Join(err, s.end())
	}
	return errors.Join(err, p.drop(ctx, pool))
}

// inserts inserts the rows, each with a commit of its own, and returns how long each took, in ms.
func (p *place) inserts(ctx context.Context, pool *pgxpool.Pool) (times []float64, err error) {
	work, ctx := errgroup.WithContext(ctx)
	var mu sync.Mutex
	begin, next := time.Now(), 0
	for range clients {
		work.Go(func() error {
			for {
				mu.Lock()
				n := next
				next++
				mu.Unlock()
				if n >= insertedRows {
					return nil
				}
				if err := pause(ctx, time.Until(begin.Add(time.Duration(n)*time.Second/insertRate))); err != nil {
					return err
				}
				began := time.Now()
				if _, err := pool.Exec(ctx, "INSERT INTO public.docs (id, body) VALUES ($1, $2)", 1_000_000+n, p.text(n, 1)); err != nil {
					return fmt.Errorf("insert a row: %w", err)
				}
				took := time.Since(began)
				mu.Lock()
				times = append(times, float64(took.Microseconds())/1000)
				mu.Unlock()
			}
		})
	}
	return times, work.Wait()
}

// deadLetters are so many that to try them all again takes longer than what is measured beside it.
const deadLetters = 300_000

// measureRetry tells what writers lose while somebody has very many dead letters tried again. They are of another
// pipeline, which is paused: so what is measured is the action, and not the work that was asked for.
func measureRetry(ctx context.Context, p *place) (_ []section, err error) {
	f := newFigures("retry", fmt.Sprintf("pgbench, %s, %d clients, beside `retry` of %d dead letters: transactions/s",
		insertRow.name, clients, deadLetters))
	pool, err := p.docs(ctx, "retry", docsRows)
	if err != nil {
		return nil, err
	}
	path, err := p.prepareRetry(ctx, pool)
	if err != nil {
		return nil, err
	}
	s, err := p.startWith(pool, append([]string{
		"--pipeline", "docs: body -> table docs_embedding", "--pipeline", "old: body -> table old_embedding",
	}, fake...)...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.end()) }()
	if err := s.settle(ctx); err != nil {
		return nil, err
	}
	for round := range p.rounds {
		for _, beside := range []bool{round%2 != 0, round%2 == 0} {
			if err := p.retryRound(ctx, s, f, path, beside); err != nil {
				return nil, err
			}
		}
		p.say("retry: round %d of %d", round+1, p.rounds)
	}
	return []section{f.done("no retry")}, nil
}

func (p *place) prepareRetry(ctx context.Context, pool *pgxpool.Pool) (script string, err error) {
	for _, sql := range []string{
		"CREATE SEQUENCE public.docs_ids START 1000000", "CREATE TABLE public.old (id bigint PRIMARY KEY, body text)",
	} {
		if _, err := pool.Exec(ctx, sql); err != nil {
			return "", fmt.Errorf("%s: %w", sql, err)
		}
	}
	script = filepath.Join(p.dir, "retry.sql")
	if err := os.WriteFile(script, []byte(insertRow.sql), 0o600); err != nil {
		return "", fmt.Errorf("write pgbench's script: %w", err)
	}
	return script, nil
}

// retryRound makes the dead letters anew, and has pgbench run while they are tried again, or while nobody does that.
func (p *place) retryRound(ctx context.Context, s *sidecar, f *figures, path string, beside bool) error {
	for _, sql := range []string{
		"SELECT embedsidecar.pause('public.old')",
		"DELETE FROM embedsidecar.task",
		fmt.Sprintf(`INSERT INTO embedsidecar.task (pipeline_id, row_key, lane, xid, first_lsn, last_lsn, committed_at, state, attempt,
			error_class, error_code, error_message)
			SELECT p.pipeline_id, i::text, 1, '3', '0/1', '0/1', now(), 'failed', 8, 'data', 'refused', 'refused'
			FROM embedsidecar.pipeline AS p CROSS JOIN generate_series(1, %d) AS i WHERE p.name = 'public.old'`, deadLetters),
		"VACUUM ANALYZE embedsidecar.task",
	} {
		if _, err := s.pool.Exec(ctx, sql); err != nil {
			return fmt.Errorf("make dead letters: %w", err)
		}
	}
	name, ended := "no retry", make(chan error, 1)
	retrying, cancel := context.WithCancel(ctx)
	defer cancel()
	if beside {
		name = "beside a retry"
		environ := append(slices.Clip(p.environ),
			"EMBEDSIDECAR_DATABASE_URL="+p.pg.URL(s.pool.Config().ConnConfig.Database, ""))
		go func() {
			_, err := output(retrying, environ, filepath.Join(p.bin, "embedsidecar"), "retry", "public.old")
			if retrying.Err() != nil { // what it has done stays done, and the rest takes too long to wait for
				err = nil
			}
			ended <- err
		}()
	} else {
		ended <- nil
	}
	tps, _, err := p.runPgbench(ctx, s.pool, path)
	if err != nil {
		return err
	}
	if beside {
		var left int
		if err := s.pool.QueryRow(ctx, "SELECT count(*) FROM embedsidecar.task WHERE state = 'failed'").Scan(&left); err != nil {
			return err
		}
		f.note(name, "rows left when pgbench ended", float64(left))
	}
	f.add(name, "TPS", tps)
	cancel()
	if err := <-ended; err != nil {
		return err
	}
	return s.settleOthers(ctx)
}

// settleOthers waits until nothing of the pipeline docs is left to do.
func (s *sidecar) settleOthers(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, "CALL embedsidecar.drain('public.docs', '2 min')")
	return err
}
