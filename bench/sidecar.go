package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Flags of `embedsidecar run` that say which embedder to use.
var (
	fake = []string{"--plugin", "fake"}
	onnx = []string{"--plugin", "onnx"}
)

const slotActive = "SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $1 AND active)"

// slotOf is the slot of a database's sidecar.
func slotOf(pool *pgxpool.Pool) string { return "slot_" + named(pool) }

// sidecar runs `embedsidecar run` with a pipeline that embeds public.docs (body) into the table docs_embedding, unless
// flags say otherwise.
func (p *place) sidecar(pool *pgxpool.Pool, flags ...string) (*child, error) {
	if !slices.Contains(flags, "--config") {
		flags = append([]string{"--table", "public.docs", "--columns", "body"}, flags...)
		if !slices.Contains(flags, "--into") {
			flags = append(flags, "--into-table", "docs_embedding")
		}
	}
	return p.start(p.sidecarEnviron(pool), filepath.Join(p.bin, "embedsidecar"),
		append([]string{"run", "--slot", slotOf(pool), "--set", "publication.name=sidecar"}, flags...)...)
}

func (p *place) sidecarEnviron(pool *pgxpool.Pool) []string {
	return append(slices.Clip(p.environ), "EMBEDSIDECAR_DATABASE_URL="+p.pg.URL(named(pool), ""))
}

// streams waits until the sidecar reads its slot. Until then it sets up its schema, and whoever looked into that would
// be in its way.
func streams(ctx context.Context, c *child, pool *pgxpool.Pool) (time.Time, error) {
	return c.until(ctx, pool, 5*time.Millisecond, slotActive, slotOf(pool))
}

// settle waits until everything that is committed now is worked.
func settle(ctx context.Context, c *child, pool *pgxpool.Pool) error {
	if _, err := streams(ctx, c, pool); err != nil {
		return err
	}
	if _, err := c.until(ctx, pool, 5*time.Millisecond, "SELECT EXISTS (SELECT FROM embedsidecar.pipeline)"); err != nil {
		return err
	}
	if _, err := c.until(ctx, pool, 0, "CALL embedsidecar.wait_until(timeout => '5 s')"); err != nil {
		return err
	}
	var failed int
	err := pool.QueryRow(ctx, "SELECT count(*) FROM embedsidecar.task WHERE state = 'failed'").Scan(&failed)
	if err == nil && failed > 0 {
		err = c.failed("%d rows were not embedded", failed)
	}
	return err
}

// decoded waits until everything that is committed now is in the queue, or was nothing. An idle streamer saves itself
// the write of its position, unless somebody asks for it.
func decoded(ctx context.Context, c *child, pool *pgxpool.Pool) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var lsn string
	err := pool.QueryRow(ctx, "SELECT pg_current_wal_insert_lsn()::text").Scan(&lsn)
	for err == nil {
		if err = execute(ctx, pool, "NOTIFY embedsidecar_waiting, '"+lsn+"'"); err != nil {
			break
		}
		second, end := context.WithTimeout(ctx, time.Second)
		_, err = c.until(second, pool, 5*time.Millisecond,
			"SELECT coalesce(bool_and(lsn >= $1::text::pg_lsn), false) FROM embedsidecar.lsn_checkpoint", lsn)
		end()
		if err == nil {
			return nil
		}
		if ctx.Err() == nil && second.Err() != nil {
			err = nil
		}
	}
	return err
}

// worked waits until no task is left and so many rows have been worked since a moment, and returns when that was. It
// looks seldom enough to cost nothing: the dead tasks of a busy queue are many to walk over.
func worked(ctx context.Context, c *child, pool *pgxpool.Pool, since time.Time, rows int) (time.Time, error) {
	if _, err := streams(ctx, c, pool); err != nil {
		return time.Time{}, err
	}
	const shortest, longest, perRow = 5 * time.Millisecond, 50 * time.Millisecond, 5 * time.Microsecond
	return c.until(ctx, pool, min(max(time.Duration(rows)*perRow, shortest), longest),
		`SELECT CASE WHEN EXISTS (SELECT FROM embedsidecar.task) THEN false
			ELSE (SELECT count(*) FROM embedsidecar.ledger WHERE written_at > $1) >= $2 END`, since, rows)
}

// serverTime is what the server's clock says.
func serverTime(ctx context.Context, pool *pgxpool.Pool) (now time.Time, err error) {
	if err := pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now); err != nil {
		return now, fmt.Errorf("ask for the time: %w", err)
	}
	return now, nil
}

// verified has the program itself look whether each row has a vector of its text, and embed some of them again: nobody
// here knows what the real model makes of a text. Then it ends the sidecar.
func (p *place) verified(ctx context.Context, c *child, pool *pgxpool.Pool) error {
	if err := settle(ctx, c, pool); err != nil {
		return err
	}
	args := append([]string{"verify", "--slot", slotOf(pool), "--set", "publication.name=sidecar", "--deep", "50"},
		onnx...)
	if _, err := output(ctx, p.sidecarEnviron(pool), filepath.Join(p.bin, "embedsidecar"), args...); err != nil {
		return fmt.Errorf("%w: %w", errNotTrue, err)
	}
	return c.stop(syscall.SIGTERM)
}

func (p *place) serverCPU() time.Duration { return cpuTime(p.pg.PID()) }
