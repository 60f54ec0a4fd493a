package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pgvector/pgvector-go"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
)

// toy is the least that could do our work, for comparison: a trigger that notifies, and a worker that listens, reads
// the row and writes the vector. It forgets what it was told while it does not run, keeps no order, and slows the
// user's commits down.
type toy struct {
	cancel context.CancelFunc
	done   chan error
}

func startToy(ctx context.Context, pool *pgxpool.Pool) (*toy, error) {
	_, err := pool.Exec(ctx, `
		CREATE TABLE public.docs_embedding (id bigint PRIMARY KEY, text_hash bytea NOT NULL,
		embedding public.vector(384) NOT NULL)`)
	if err != nil {
		return nil, fmt.Errorf("make the toy's table: %w", err)
	}
	_, err = pool.Exec(ctx, `
		CREATE FUNCTION public.tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_notify('toy', NEW.id::text);
		RETURN NULL; END $$`)
	if err != nil {
		return nil, fmt.Errorf("make the toy's function: %w", err)
	}
	_, err = pool.Exec(ctx, "CREATE TRIGGER tell AFTER INSERT OR UPDATE OF body ON public.docs FOR EACH ROW EXECUTE FUNCTION public.tell()")
	if err != nil {
		return nil, fmt.Errorf("make the toy's trigger: %w", err)
	}
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "LISTEN toy"); err != nil {
		conn.Release()
		return nil, fmt.Errorf("listen: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	t := &toy{cancel: cancel, done: make(chan error, 1)}
	go func() {
		defer conn.Release()
		t.done <- work(ctx, conn.Conn())
	}()
	return t, nil
}

func work(ctx context.Context, conn *pgx.Conn) error {
	var told []string
	database.Heed(conn.PgConn(), func(payload string) { told = append(told, payload) })
	for {
		for len(told) == 0 {
			if err := conn.PgConn().WaitForNotification(ctx); err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return err
			}
		}
		payload := told[0]
		told = told[1:]
		id, err := strconv.ParseInt(payload, 10, 64)
		if err != nil {
			return err
		}
		var text string
		if err := conn.QueryRow(ctx, "SELECT body FROM public.docs WHERE id = $1", id).Scan(&text); err != nil {
			return err
		}
		hash := pipeline.TextHash(text)
		_, err = conn.Exec(ctx, `INSERT INTO public.docs_embedding AS e (id, text_hash, embedding) VALUES ($1, $2, $3)
			ON CONFLICT (id) DO UPDATE SET text_hash = excluded.text_hash, embedding = excluded.embedding`,
			id, hash[:], pgvector.NewVector(vector.Of(text, vector.DefaultDims)))
		if err != nil {
			return err
		}
	}
}

func (t *toy) end() error {
	t.cancel()
	if err := <-t.done; err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("the toy: %w", err)
	}
	return nil
}
