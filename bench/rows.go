package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pgvector/pgvector-go"

	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
)

// perTransaction is how many rows a bulk change has in one transaction.
const perTransaction = 1000

const (
	bulkInsert = "bulk insert"
	bulkCopy   = "bulk COPY"
	backfill   = "backfill"

	serverCPU  = "server CPU us/row"
	sidecarCPU = "sidecar CPU us/row"
)

// measureRows measures how many rows a second get their vector when the embedder costs nothing, beside a bulk write
// of the same vectors.
func measureRows(ctx context.Context, p *place) ([]section, error) {
	f := newFigures("Rows/s with an embedder that costs nothing (%d rows, %d dimensions)", p.rows, vector.DefaultDims)
	names := []string{usTable}
	if p.columns {
		names = append(names, usColumn)
	}
	for round := range p.rounds {
		for i, name := range names {
			pool, err := p.docs(ctx, fmt.Sprintf("rows_%d_%d", round, i), p.rows)
			if err == nil && name == usTable {
				err = p.bulk(ctx, pool, f, p.rows)
			}
			if err == nil {
				err = p.ourRows(ctx, f, name, pool)
			}
			if err == nil {
				err = p.drop(ctx, pool)
			}
			if err != nil {
				return nil, err
			}
		}
		p.say("rows: round %d of %d", round+1, p.rounds)
	}
	return []section{f.done(bulkInsert)}, nil
}

// bulk writes ready vectors into a table like ours: in binary by INSERT from arrays, which is what a careful program
// would do, and by COPY.
func (p *place) bulk(ctx context.Context, pool *pgxpool.Pool, f *figures, rows int) error {
	err := execute(ctx, pool, `CREATE TABLE public.bulk (id bigint NOT NULL, chunk_no int NOT NULL DEFAULT 0,
		generation int NOT NULL, text_hash bytea NOT NULL, embedded_at timestamptz NOT NULL DEFAULT now(),
		embedding public.vector(384) NOT NULL, PRIMARY KEY (id, chunk_no))`)
	if err != nil {
		return err
	}
	var (
		ids     = make([]int64, rows)
		hashes  = make([][]byte, rows)
		vectors = make([]pgvector.Vector, rows)
	)
	for i := range rows {
		text := p.text(i+1, 0)
		hash := sha256.Sum256([]byte(text))
		ids[i], hashes[i], vectors[i] = int64(i+1), hash[:], pgvector.NewVector(fakeVector(text))
	}
	ways := []struct {
		name  string
		write func(tx pgx.Tx, from, to int) error
	}{
		{bulkInsert, func(tx pgx.Tx, from, to int) error {
			_, err := tx.Exec(ctx, `INSERT INTO public.bulk (id, generation, text_hash, embedding) SELECT id, 1, hash, embedding
				FROM unnest($1::bigint[], $2::bytea[], $3::public.vector[]) AS b (id, hash, embedding)`, ids[from:to],
				hashes[from:to], vectors[from:to])
			return err
		}},
		{bulkCopy, func(tx pgx.Tx, from, to int) error {
			row := func(i int) ([]any, error) { return []any{ids[from+i], 1, hashes[from+i], vectors[from+i]}, nil }
			_, err := tx.CopyFrom(ctx, pgx.Identifier{"public", "bulk"}, []string{"id", "generation", "text_hash", "embedding"},
				pgx.CopyFromSlice(to-from, row))
			return err
		}},
	}
	for _, way := range ways {
		server, began := p.serverCPU(), time.Now()
		for from := 0; from < rows; from += perTransaction {
			write := func(tx pgx.Tx) error { return way.write(tx, from, min(from+perTransaction, rows)) }
			if err := pgx.BeginFunc(ctx, pool, write); err != nil {
				return fmt.Errorf("%s: %w", way.name, err)
			}
		}
		f.add(way.name, "rows/s", float64(rows)/time.Since(began).Seconds())
		f.note(way.name, serverCPU, micros(p.serverCPU()-server, rows))
		if err := execute(ctx, pool, "TRUNCATE public.bulk"); err != nil {
			return err
		}
	}
	return nil
}

// ourRows measures a backfill and then live updates.
func (p *place) ourRows(ctx context.Context, f *figures, name string, pool *pgxpool.Pool) (err error) {
	s, err := p.newSubject(ctx, name, pool)
	if err != nil {
		return err
	}
	server := p.serverCPU()
	c, err := s.start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.stop(s.end)) }()
	end, err := worked(ctx, c, pool, time.Time{}, p.rows)
	if err != nil {
		return err
	}
	var first time.Time
	if err := pool.QueryRow(ctx, "SELECT min(written_at) FROM embedsidecar.ledger").Scan(&first); err != nil {
		return fmt.Errorf("ask when the backfill began: %w", err)
	}
	own := time.Duration(0)
	add := func(load string, took time.Duration) {
		f.add(load+", "+name, "rows/s", float64(p.rows)/took.Seconds())
		f.note(load+", "+name, serverCPU, micros(p.serverCPU()-server, p.rows))
		f.note(load+", "+name, sidecarCPU, micros(cpuTime(c.PID())-own, p.rows))
	}
	add(backfill, end.Sub(first))
	if err := settle(ctx, c, pool); err != nil {
		return err
	}

	since, err := serverTime(ctx, pool)
	if err != nil {
		return err
	}
	server, own = p.serverCPU(), cpuTime(c.PID())
	began := time.Now()
	for from := 1; from <= p.rows; from += perTransaction {
		if _, err := pool.Exec(ctx, "UPDATE public.docs SET body = body || ' again' WHERE id >= $1 AND id < $2", from,
			from+perTransaction); err != nil {
			return fmt.Errorf("update: %w", err)
		}
	}
	if end, err = worked(ctx, c, pool, since, p.rows); err != nil {
		return err
	}
	add("live updates", end.Sub(began))
	return s.oracle(ctx)
}

// measureMemory measures the resident memory of the sidecar's process, without its plugins: while it embeds a table
// that was full before its start, idle, and while it reads and embeds one large transaction; in a process each.
func measureMemory(ctx context.Context, p *place) ([]section, error) {
	// Some heartbeats, and as long as Go's runtime takes to give back what the start needed.
	const idleFor = 30 * time.Second
	// A million rows take a while on a machine that does something else as well.
	ctx, cancel := context.WithTimeout(ctx, 6*time.Hour)
	defer cancel()
	f := newFigures("Resident memory of the sidecar (backfill of %d rows, a transaction of %d)", p.table, p.atOnce)
	for round := range p.rounds {
		pool, err := p.docs(ctx, fmt.Sprintf("memory_%d", round), p.table)
		if err != nil {
			return nil, err
		}
		s, err := p.newSubject(ctx, usTable, pool)
		if err != nil {
			return nil, err
		}
		for _, l := range []struct {
			name string
			run  func() error
		}{
			{backfill, func() error { return nil }},
			{"idle", func() error { return pause(ctx, idleFor) }},
			{"one transaction", func() error {
				return execute(ctx, pool, fmt.Sprintf(`INSERT INTO public.docs (id, body) SELECT %d + n, 'Row ' || n ||
					' of a large transaction, with as much text as others have: ' || md5(n::text)
					FROM generate_series(1, %d) AS n`, p.table, p.atOnce))
			}},
		} {
			if err := s.residentDuring(ctx, f, l.name, l.run); err != nil {
				return []section{f.done()}, fmt.Errorf("%s: %w", l.name, err)
			}
		}
		if err := errors.Join(s.oracle(ctx), p.drop(ctx, pool)); err != nil {
			return []section{f.done()}, err
		}
		p.say("memory: round %d of %d", round+1, p.rounds)
	}
	return []section{f.done()}, nil
}

// residentDuring starts a sidecar, has it catch up with what is there and with a load, and notes what its process had
// at the end, and the most it had.
func (s *subject) residentDuring(ctx context.Context, f *figures, name string, load func() error) (err error) {
	c, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.stop(s.end)) }()
	if err := load(); err != nil {
		return err
	}
	if err := s.caughtUp(ctx, c); err != nil {
		return err
	}
	now, most, err := resident(c.PID())
	f.add(name+", at most", "MB", most)
	f.add(name+", at the end", "MB", now)
	return err
}
