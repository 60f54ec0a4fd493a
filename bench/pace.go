package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"
)

const writerApplication = "writer"

// writer is the user: a few connections that change one row a transaction, so many a second. Commits come as by many
// independent users, with exponential pauses; one that is late is made up for.
type writer struct {
	pool  *pgxpool.Pool
	place *place
	began string // the server's time

	mu      sync.Mutex
	next    time.Time
	version int
	times   []float64 // of the transactions, in ms
}

// newWriter connects. The connections stay until close, so that to make and end them is no part of what is measured.
func (p *place) newWriter(ctx context.Context, pool *pgxpool.Pool) (*writer, error) {
	config := pool.Config().Copy()
	config.ConnConfig.RuntimeParams["application_name"] = writerApplication
	config.ConnConfig.RuntimeParams["plan_cache_mode"] = "auto" // as applications have it
	config.MaxConns, config.MinConns = clients, clients
	own, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect as the writer: %w", err)
	}
	// No text comes twice, in no run: one that is known costs less.
	w := &writer{pool: own, place: p, version: int(time.Now().UnixMicro())}
	var conns []*pgxpool.Conn
	for range clients {
		conn, failed := own.Acquire(ctx)
		if failed != nil {
			err = failed
			break
		}
		conns = append(conns, conn)
		// The first use of a connection prepares the statement and fills its caches.
		if _, err = conn.Exec(ctx, changeRow, 0, ""); err != nil {
			break
		}
	}
	for _, conn := range conns {
		conn.Release()
	}
	if err == nil {
		err = own.QueryRow(ctx, "SELECT clock_timestamp()::text").Scan(&w.began)
	}
	if err != nil {
		own.Close()
		return nil, fmt.Errorf("connect as the writer: %w", err)
	}
	return w, nil
}

func (w *writer) close() { w.pool.Close() }

const changeRow = "UPDATE public.docs SET body = $2, changed_at = clock_timestamp() WHERE id = $1"

// run commits at a rate for a while.
func (w *writer) run(ctx context.Context, rate int, length time.Duration) error {
	var rows int
	if err := w.pool.QueryRow(ctx, "SELECT count(*) FROM public.docs").Scan(&rows); err != nil {
		return fmt.Errorf("count the rows: %w", err)
	}
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
				id := rand.IntN(rows) + 1
				began := time.Now()
				if _, err := w.pool.Exec(ctx, changeRow, id, w.place.text(id, version)); err != nil {
					return fmt.Errorf("change a row: %w", err)
				}
				took := time.Since(began)
				w.mu.Lock()
				w.times = append(w.times, float64(took.Microseconds())/1000)
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
