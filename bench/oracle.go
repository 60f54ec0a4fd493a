package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pgvector/pgvector-go"

	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
)

// Rows of docs with their vectors, by destination.
const (
	tableVectors = `SELECT d.id, d.body, e.embedding FROM public.docs AS d FULL JOIN public.docs_embedding AS e USING (id)
		ORDER BY id`
	columnVectors = "SELECT id, body, embedding FROM public.docs ORDER BY id"
)

var errNotTrue = errors.New("a benchmark of vectors that are not true would be worth nothing")

// oracle checks that every row has the vector of its text, and that no vector is left of a row that is gone. of says
// what a text's vector is; nil: the fake plugin's. Whatever wrote them must have caught up.
func oracle(ctx context.Context, pool *pgxpool.Pool, sql string, of func(text string) []float32) error {
	if of == nil {
		of = func(text string) []float32 { return vector.Of(text, vector.DefaultDims) }
	}
	rows, err := pool.Query(ctx, sql)
	if err != nil {
		return fmt.Errorf("read the vectors: %w", err)
	}
	var (
		id                             *int64
		body                           *string
		embedding                      *pgvector.Vector
		seen, missing, orphans, differ int
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &body, &embedding}, func() error {
		seen++
		switch {
		case body == nil:
			orphans++
		case embedding == nil:
			missing++
		case !slices.Equal(embedding.Slice(), of(*body)):
			differ++
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the vectors: %w", err)
	}
	if seen == 0 || missing+orphans+differ > 0 {
		return fmt.Errorf("%w: of %d rows %d have no vector and %d that of another text; %d vectors have no row",
			errNotTrue, seen, missing, differ, orphans)
	}
	return nil
}

// verified has the program itself look whether each row has a vector of its text, and embed some of them again: nobody
// here knows what the real model makes of a text.
func (p *place) verified(ctx context.Context, s *sidecar) error {
	if err := s.settle(ctx); err != nil {
		return err
	}
	environ := append(slices.Clip(p.environ), "EMBEDSIDECAR_DATABASE_URL="+
		p.pg.URL(s.pool.Config().ConnConfig.Database, ""))
	args := append([]string{"verify", "--slot", s.slot, "--publication", "sidecar", "--deep", "50"}, onnx...)
	if _, err := output(ctx, environ, filepath.Join(p.bin, "embedsidecar"), args...); err != nil {
		return fmt.Errorf("%w: %w", errNotTrue, err)
	}
	return nil
}
