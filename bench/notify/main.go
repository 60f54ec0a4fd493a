// Command notify is a minimal alternative to embedsidecar, for comparison: it listens for notifications of a trigger,
// reads the rows and writes their vectors, in batches. It loses notifications while it does not run, and cannot find
// missing vectors.
//
// DATABASE_URL is the database. SIGTERM ends it.
package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pgvector/pgvector-go"
	pgxvector "github.com/pgvector/pgvector-go/pgx"

	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := work(ctx); err != nil && ctx.Err() == nil {
		fmt.Fprintf(os.Stderr, "notify: error: %s\n", err)
		os.Exit(1)
	}
}

func work(ctx context.Context) error {
	config, err := pgx.ParseConfig(os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	var told []string
	config.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) { told = append(told, n.Payload) }
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if err := pgxvector.RegisterTypes(ctx, conn); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "LISTEN toy"); err != nil {
		return err
	}
	for {
		for len(told) == 0 {
			if err := conn.PgConn().WaitForNotification(ctx); err != nil {
				return err
			}
		}
		ids := make([]int64, len(told))
		for i, payload := range told {
			if ids[i], err = strconv.ParseInt(payload, 10, 64); err != nil {
				return err
			}
		}
		told = told[:0]
		slices.Sort(ids)
		if err := embed(ctx, conn, slices.Compact(ids)); err != nil {
			return err
		}
	}
}

// embed reads rows and writes their vectors.
func embed(ctx context.Context, conn *pgx.Conn, ids []int64) error {
	rows, err := conn.Query(ctx, "SELECT id, body FROM public.docs WHERE id = ANY ($1)", ids)
	if err != nil {
		return err
	}
	var (
		id      int64
		text    string
		found   []int64
		hashes  [][]byte
		vectors []pgvector.Vector
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &text}, func() error {
		hash := sha256.Sum256([]byte(text))
		found, hashes = append(found, id), append(hashes, hash[:])
		vectors = append(vectors, pgvector.NewVector(vector.Of(text, vector.DefaultDims)))
		return nil
	})
	if err != nil || len(found) == 0 {
		return err
	}
	_, err = conn.Exec(ctx, `INSERT INTO public.docs_embedding AS e (id, text_hash, embedding)
		SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::public.vector[])
		ON CONFLICT (id) DO UPDATE SET text_hash = excluded.text_hash, embedding = excluded.embedding`,
		found, hashes, vectors)
	return err
}
