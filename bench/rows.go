package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pgvector/pgvector-go"

	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
)

// perTransaction is the number of rows per transaction of a bulk change.
const perTransaction = 1000

const (
	bulkInsert = "bulk insert"
	bulkCopy   = "bulk COPY"
	backfill   = "backfill"

	serverCPU  = "server CPU us/row"
	sidecarCPU = "sidecar CPU us/row"
)

// measureRows measures the rows per second with an embedder that costs nothing, compared with a bulk write of the same
// vectors.
func measureRows(ctx context.Context, p *place) {
	f := newFigures("Rows/s with an embedder that costs nothing (%d rows, %d dimensions)", p.rows, vector.DefaultDims)
	defer p.show(f, bulkInsert)
	names := []string{usTable}
	if p.columns {
		names = append(names, usColumn)
	}
	for round := range p.rounds {
		for i, name := range names {
			pool := p.docs(ctx, fmt.Sprintf("rows_%d_%d", round, i), p.rows)
			if name == usTable {
				p.bulk(ctx, pool, f, p.rows)
			}
			p.ourRows(ctx, f, name, pool)
			p.drop(ctx, pool)
		}
		p.say("rows: round %d of %d", round+1, p.rounds)
	}
}

// bulk writes ready vectors into a table like ours: in binary by INSERT from arrays, as an optimized program does, and
// by COPY.
func (p *place) bulk(ctx context.Context, pool *pgxpool.Pool, f *figures, rows int) {
	execute(ctx, pool, `CREATE TABLE public.bulk (id bigint NOT NULL, chunk_no int NOT NULL DEFAULT 0,
		generation int NOT NULL, text_hash bytea NOT NULL, embedded_at timestamptz NOT NULL DEFAULT now(),
		embedding public.vector(384) NOT NULL, PRIMARY KEY (id, chunk_no))`)
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
			check(wrap.Errorf(pgx.BeginFunc(ctx, pool, write), "%s", way.name))
		}
		f.add(way.name, "rows/s", float64(rows)/time.Since(began).Seconds())
		f.note(way.name, serverCPU, micros(p.serverCPU()-server, rows))
		execute(ctx, pool, "TRUNCATE public.bulk")
	}
}

// ourRows measures a backfill and then live updates.
func (p *place) ourRows(ctx context.Context, f *figures, name string, pool *pgxpool.Pool) {
	s := p.newSubject(ctx, name, pool)
	server, own := p.serverCPU(), time.Duration(0)
	c := s.start(ctx)
	add := func(load string, took time.Duration) {
		f.add(load+", "+name, "rows/s", float64(p.rows)/took.Seconds())
		f.note(load+", "+name, serverCPU, micros(p.serverCPU()-server, p.rows))
		f.note(load+", "+name, sidecarCPU, micros(cpuTime(c.PID())-own, p.rows))
	}
	end := worked(ctx, c, pool, time.Time{}, p.rows)
	add(backfill, end.Sub(value[time.Time](ctx, pool, "SELECT min(written_at) FROM embedsidecar.ledger")))
	settle(ctx, c, pool)

	since := serverTime(ctx, pool)
	server, own = p.serverCPU(), cpuTime(c.PID())
	began := time.Now()
	for from := 1; from <= p.rows; from += perTransaction {
		execute(ctx, pool, fmt.Sprintf("UPDATE public.docs SET body = body || ' again' WHERE id >= %d AND id < %d", from,
			from+perTransaction))
	}
	add("live updates", worked(ctx, c, pool, since, p.rows).Sub(began))
	s.oracle(ctx)
	c.stop(s.end)
}

// measureMemory measures the resident memory of the sidecar's process, without its plugins: during a backfill, idle,
// and during one large transaction, each in a new process.
func measureMemory(ctx context.Context, p *place) {
	// Long enough for some heartbeats, and for Go's runtime to return the memory of the start.
	const idleFor = 30 * time.Second
	// A million rows take long on a busy machine.
	ctx, cancel := context.WithTimeout(ctx, 6*time.Hour)
	defer cancel()
	f := newFigures("Resident memory of the sidecar (backfill of %d rows, a transaction of %d)", p.table, p.atOnce)
	defer p.show(f)
	for round := range p.rounds {
		pool := p.docs(ctx, fmt.Sprintf("memory_%d", round), p.table)
		s := p.newSubject(ctx, usTable, pool)
		s.residentDuring(ctx, f, backfill, func() {})
		s.residentDuring(ctx, f, "idle", func() { check(pause(ctx, idleFor)) })
		s.residentDuring(ctx, f, "one transaction", func() {
			execute(ctx, pool, fmt.Sprintf(`INSERT INTO public.docs (id, body) SELECT %d + n, 'Row ' || n ||
				' of a large transaction, with as much text as others have: ' || md5(n::text)
				FROM generate_series(1, %d) AS n`, p.table, p.atOnce))
		})
		s.oracle(ctx)
		p.drop(ctx, pool)
		p.say("memory: round %d of %d", round+1, p.rounds)
	}
}

// residentDuring starts a sidecar, waits until it has caught up, also after a load, and records its resident memory at
// the end and its peak.
func (s *subject) residentDuring(ctx context.Context, f *figures, name string, load func()) {
	defer during("%s", name)
	c := s.begin(ctx)
	load()
	s.caughtUp(ctx, c)
	now, most := resident(c.PID())
	f.add(name+", at most", "MB", most)
	f.add(name+", at the end", "MB", now)
	c.stop(s.end)
}
