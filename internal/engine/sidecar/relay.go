package sidecar

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/database"
)

// If stream and workers are one process, workers are woken in memory. Otherwise the streaming process sends
// notifications and working processes listen. The sweep at every heartbeat finds missed ones.

// workChannel is the notification channel for work in the queue.
const workChannel = "embedsidecar_work"

// relayPause is the minimum time between notifications, and between wakes: any role can send notifications.
const relayPause = 10 * time.Millisecond

// tellWork notifies other processes of work enqueued here.
func (s *Sidecar) tellWork(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.told:
		}
		if _, err := s.o.Pool.Exec(ctx, "SELECT pg_notify($1, '')", workChannel); err != nil && ctx.Err() == nil {
			s.o.Log.DebugContext(ctx, "workers not notified of work", "error", err)
		}
		sleep.For(ctx, relayPause)
	}
}

// hearWork wakes the workers of this process when another process has enqueued work.
func (s *Sidecar) hearWork(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := s.listen(ctx); err != nil && ctx.Err() == nil {
			s.o.Log.DebugContext(ctx, "not listening for work: the next sweep finds it", "error", err)
		}
		sleep.For(ctx, s.o.Heartbeat)
	}
	return nil
}

// listen wakes workers until the connection ends.
func (s *Sidecar) listen(ctx context.Context) (err error) {
	pooled, err := s.o.StreamPool.Acquire(ctx)
	if err != nil {
		return err
	}
	conn := pooled.Hijack() // used until it ends
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	if _, err := conn.Exec(ctx, "LISTEN "+workChannel); err != nil {
		return err
	}
	for {
		s.mu.Lock()
		ids := make([]int32, 0, len(s.running))
		for id := range s.running {
			ids = append(ids, id)
		}
		s.mu.Unlock()
		s.queue.Wake(ids...)
		if err := s.notified(ctx, conn.PgConn()); err != nil {
			return err
		}
		sleep.For(ctx, relayPause)
	}
}

// notified waits for a notification. It reads for one heartbeat at a time: a longer read would count as a lost answer.
func (s *Sidecar) notified(ctx context.Context, conn *pgconn.PgConn) error {
	for ctx.Err() == nil {
		reading, cancel := context.WithTimeout(ctx, s.o.Heartbeat)
		heard, err := database.Hear(reading, conn)
		cancel()
		if heard || err != nil {
			return err
		}
	}
	return ctx.Err()
}
