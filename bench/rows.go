package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pgvector/pgvector-go"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
)

// perTransaction is how many rows a bulk change has in one transaction.
const perTransaction = 1000

// measureRows measures how many rows a second get their vector when the embedder costs nothing, beside a bulk write
// of the same vectors.
func measureRows(ctx context.Context, p *place) ([]section, error) {
	f := newFigures("rows", fmt.Sprintf("Rows/s with an embedder that costs nothing (%d rows, %d dimensions)", p.rows,
		vector.DefaultDims))
	for round := range p.rounds {
		if err := p.rowsRound(ctx, f, round); err != nil {
			return nil, err
		}
		p.say("rows: round %d of %d", round+1, p.rounds)
	}
	return []section{f.done(bulkInsert)}, nil
}

const (
	bulkInsert = "bulk insert"
	bulkCopy   = "bulk COPY"
	backfill   = "backfill"
	live       = "live updates"
	backColumn = "backfill, column"
	liveColumn = "live updates, column"

	bulkCPU = "server CPU us/row"
)

func (p *place) rowsRound(ctx context.Context, f *figures, round int) error {
	pool, err := p.docs(ctx, fmt.Sprintf("rows_%d", round), p.rows)
	if err != nil {
		return err
	}
	if err := p.bulk(ctx, pool, f, p.rows); err != nil {
		return err
	}
	if err := p.sidecarRows(ctx, pool, f, backfill, live); err != nil {
		return err
	}
	if err := p.drop(ctx, pool); err != nil {
		return err
	}
	if !p.columns {
		return nil
	}
	if pool, err = p.docs(ctx, fmt.Sprintf("columns_%d", round), p.rows); err != nil {
		return err
	}
	if err := p.sidecarRows(ctx, pool, f, backColumn, liveColumn, "--into", "embedding"); err != nil {
		return err
	}
	return p.drop(ctx, pool)
}

// docs makes a database with a table docs of so many rows.
func (p *place) docs(ctx context.Context, name string, rows int) (*pgxpool.Pool, error) {
	pool, err := p.database(ctx, name, 4)
	if err != nil {
		return nil, err
	}
	if _, err := pool.Exec(ctx, "CREATE TABLE public.docs (id bigint PRIMARY KEY, body text NOT NULL, views int NOT NULL DEFAULT 0)"); err != nil {
		return nil, fmt.Errorf("make the table: %w", err)
	}
	_, err = pool.CopyFrom(ctx, pgx.Identifier{"public", "docs"}, []string{"id", "body"},
		pgx.CopyFromSlice(rows, func(i int) ([]any, error) { return []any{i + 1, p.text(i+1, 0)}, nil }))
	if err != nil {
		return nil, fmt.Errorf("fill the table: %w", err)
	}
	if _, err := pool.Exec(ctx, "VACUUM ANALYZE public.docs"); err != nil {
		return nil, fmt.Errorf("analyze the table: %w", err)
	}
	return pool, nil
}

// bulk writes ready vectors into a table like ours: in binary by INSERT from arrays, which is what a careful program
// would do, and by COPY.
func (p *place) bulk(ctx context.Context, pool *pgxpool.Pool, f *figures, rows int) error {
	_, err := pool.Exec(ctx, `CREATE TABLE public.bulk (id bigint NOT NULL, chunk_no int NOT NULL DEFAULT 0,
		generation int NOT NULL,
		text_hash bytea NOT NULL, embedded_at timestamptz NOT NULL DEFAULT now(), embedding public.vector(384) NOT NULL, PRIMARY KEY (id, chunk_no))`)
	if err != nil {
		return fmt.Errorf("make a table for the bulk write: %w", err)
	}
	var (
		ids     = make([]int64, rows)
		hashes  = make([][]byte, rows)
		vectors = make([]pgvector.Vector, rows)
	)
	for i := range rows {
		text := p.text(i+1, 0)
		hash := pipeline.TextHash(text)
		ids[i], hashes[i], vectors[i] = int64(i+1), hash[:], pgvector.NewVector(vector.Of(text, vector.DefaultDims))
	}
	ways := []struct {
		name  string
		write func(ctx context.Context, tx pgx.Tx, from, to int) error
	}{
		{bulkInsert, func(ctx context.Context, tx pgx.Tx, from, to int) error {
			_, err := tx.Exec(ctx, `INSERT INTO public.bulk (id, generation, text_hash, embedding) SELECT id, 1, hash, embedding
				FROM unnest($1::bigint[], $2::bytea[], $3::public.vector[]) AS b (id, hash, embedding)`, ids[from:to],
				hashes[from:to], vectors[from:to])
			return err
		}},
		{bulkCopy, func(ctx context.Context, tx pgx.Tx, from, to int) error {
			_, err := tx.CopyFrom(ctx, pgx.Identifier{"public", "bulk"}, []string{"id", "generation", "text_hash", "embedding"},
				pgx.CopyFromSlice(to-from, func(i int) ([]any, error) {
					return []any{
						ids[from+i], 1, hashes[from+i],
						vectors[from+i],
					}, nil
				}))
			return err
		}},
	}
	for _, way := range ways {
		server, began := p.serverCPU(), time.Now()
		for from := 0; from < rows; from += perTransaction {
			err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				return way.write(ctx, tx, from,
					min(from+perTransaction, rows))
			})
			if err != nil {
				return fmt.Errorf("%s: %w", way.name, err)
			}
		}
		f.add(way.name, "rows/s", float64(rows)/time.Since(began).Seconds())
		f.note(way.name, bulkCPU, micros(p.serverCPU()-server, rows))
		if _, err := pool.Exec(ctx, "TRUNCATE public.bulk"); err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
	}
	return nil
}

func (p *place) serverCPU() time.Duration { return cpuTime(p.pg.PID()) }

func micros(d time.Duration, n int) float64 { return float64(d.Microseconds()) / float64(n) }

// sidecarRows measures a backfill and then live updates.
func (p *place) sidecarRows(ctx context.Context, pool *pgxpool.Pool, f *figures, backfillName, liveName string,
	flags ...string,
) (err error) {
	server := p.serverCPU()
	s, err := p.subject(ctx, pool, flags...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.end()) }()
	end, err := s.worked(ctx, time.Time{}, p.rows)
	if err != nil {
		return err
	}
	var first time.Time
	if err := pool.QueryRow(ctx, "SELECT min(written_at) FROM embedsidecar.ledger").Scan(&first); err != nil {
		return fmt.Errorf("ask when the backfill began: %w", err)
	}
	f.add(backfillName, "rows/s", float64(p.rows)/end.Sub(first).Seconds())
	f.note(backfillName, "server CPU us/row", micros(p.serverCPU()-server, p.rows))
	f.note(backfillName, "sidecar CPU us/row", micros(s.cpu(), p.rows))
	if err := s.settle(ctx); err != nil {
		return err
	}

	server, own, began := p.serverCPU(), s.cpu(), time.Now()
	var since time.Time
	if err := pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&since); err != nil {
		return fmt.Errorf("ask for the time: %w", err)
	}
	for from := 1; from <= p.rows; from += perTransaction {
		_, err := pool.Exec(ctx, "UPDATE public.docs SET body = body || ' again' WHERE id >= $1 AND id < $2", from,
			from+perTransaction)
		if err != nil {
			return fmt.Errorf("update: %w", err)
		}
	}
	if end, err = s.worked(ctx, since, p.rows); err != nil {
		return err
	}
	f.add(liveName, "rows/s", float64(p.rows)/end.Sub(began).Seconds())
	f.note(liveName, "server CPU us/row", micros(p.serverCPU()-server, p.rows))
	f.note(liveName, "sidecar CPU us/row", micros(s.cpu()-own, p.rows))
	vectors := tableVectors
	if slices.Contains(flags, "--into") {
		vectors = columnVectors
	}
	return oracle(ctx, pool, vectors, nil)
}
