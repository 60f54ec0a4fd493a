package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"
)

const (
	writerApplication = "writer"
	changeRow         = "UPDATE public.docs SET body = $2, changed_at = clock_timestamp() WHERE id = $1"
)

// writer is the user: a few connections that write one row a transaction, so many a second. Commits come as by many
// independent users, with exponential pauses; one that is late is made up for.
type writer struct {
	pool  *pgxpool.Pool
	place *place
	sql   string    // of a transaction: the id of a row that is there, and a text
	began time.Time // by the server's clock
	rows  int

	mu      sync.Mutex
	next    time.Time
	version int
	times   []float64 // of the transactions, in ms
}

// newWriter connects. The connections stay, so that to make and end them is no part of what is measured.
func (p *place) newWriter(ctx context.Context, pool *pgxpool.Pool, sql string) (*writer, error) {
	config := pool.Config().Copy()
	config.ConnConfig.RuntimeParams["application_name"] = writerApplication
	config.MaxConns, config.MinConns = clients, clients
	// The first use of a connection prepares the statement and fills its caches.
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		tx, err := conn.Begin(ctx)
		if err == nil {
			_, err = tx.Exec(ctx, sql, 0, "")
			err = errors.Join(err, tx.Rollback(ctx))
		}
		return err
	}
	own, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect as the writer: %w", err)
	}
	// No text comes twice, in no run: one that is known costs less.
	w := &writer{pool: own, place: p, sql: sql, version: int(time.Now().UnixMicro())}
	var conns []*pgxpool.Conn
	for range clients {
		var conn *pgxpool.Conn
		if conn, err = own.Acquire(ctx); err != nil {
			break
		}
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		conn.Release()
	}
	if err == nil {
		err = own.QueryRow(ctx, "SELECT clock_timestamp(), count(*) FROM public.docs").Scan(&w.began, &w.rows)
	}
	if err != nil {
		own.Close()
		return nil, fmt.Errorf("connect as the writer: %w", err)
	}
	return w, nil
}

// run commits at a rate for a while.
func (w *writer) run(ctx context.Context, rate int, length time.Duration) error {
	w.next = time.Now()
	end := w.next.Add(length)
	work, ctx := errgroup.WithContext(ctx)
	for range clients {
		work.Go(func() error {
			for {
				at, version := w.turn(rate)
				if at.After(end) || time.Now().After(end) {
					return nil
				}
				if err := pause(ctx, time.Until(at)); err != nil {
					return err
				}
				id := rand.IntN(w.rows) + 1
				began := time.Now()
				if _, err := w.pool.Exec(ctx, w.sql, id, w.place.text(id, version)); err != nil {
					return fmt.Errorf("write a row: %w", err)
				}
				took := time.Since(began)
				w.mu.Lock()
				w.times = append(w.times, millis(took))
				w.mu.Unlock()
			}
		})
	}
	return work.Wait()
}

// turn is when the next commit is due, and the version of its text.
func (w *writer) turn(rate int) (time.Time, int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := w.next
	w.next = at.Add(time.Duration(rand.ExpFloat64() * float64(time.Second) / float64(rate)))
	w.version++
	return at, w.version
}
