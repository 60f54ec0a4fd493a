package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// Flags of `embedsidecar run` that say which embedder to use.
var (
	fake = []string{"--plugin", "fake"}
	onnx = []string{"--plugin", "onnx"}
)

const timeout = 2 * time.Minute // for anything that takes seconds

// sidecar is a running sidecar on the table docs of a database.
type sidecar struct {
	runner

	pool *pgxpool.Pool
	slot string
}

// runner is what runs it.
type runner interface {
	alive() error       // an error if it has ended
	pid() int           // of its process; 0: it has none of its own
	tail() string       // the end of its log
	cpu() time.Duration // what it and its plugins have used so far
	end() error         // ends it in order
}

// start runs `embedsidecar run`. Its pipeline embeds public.docs (body) into the table docs_embedding, unless flags
// say otherwise.
func (p *place) start(pool *pgxpool.Pool, flags ...string) (*sidecar, error) {
	flags = append([]string{"--table", "public.docs", "--columns", "body"}, flags...)
	if !slices.Contains(flags, "--into") {
		flags = append(flags, "--into-table", "docs_embedding")
	}
	return p.startWith(pool, flags...)
}

// startWith starts `embedsidecar run` with what its flags say.
func (p *place) startWith(pool *pgxpool.Pool, flags ...string) (*sidecar, error) {
	name := pool.Config().ConnConfig.Database
	slot := "slot_" + name
	args := append([]string{"run", "--slot", slot, "--publication", "sidecar"}, flags...)
	cmd := exec.Command(filepath.Join(p.bin, "embedsidecar"), args...) //nolint:noctx // it is ended in order, by end
	cmd.Env = append(slices.Clip(p.environ), "EMBEDSIDECAR_DATABASE_URL="+p.pg.URL(name, ""))
	c, err := start(cmd, p.log("sidecar-"+name))
	if err != nil {
		return nil, err
	}
	return &sidecar{runner: c, pool: pool, slot: slot}, nil
}

// streams waits until the sidecar reads the slot. Until then it sets up its schema, and whoever looked into that would
// be in its way.
func (s *sidecar) streams(ctx context.Context) error {
	for {
		var active bool
		err := s.pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $1 AND active)",
			s.slot).Scan(&active)
		if err == nil && active {
			return nil
		}
		if dead := s.alive(); dead != nil {
			return dead
		}
		if err == nil {
			err = pause(ctx, 20*time.Millisecond)
		}
		if err != nil {
			return fmt.Errorf("wait until the sidecar reads its slot: %w: %s", err, s.tail())
		}
	}
}

// settle waits until everything that is committed now is worked.
func (s *sidecar) settle(ctx context.Context) error { return s.settleWithin(ctx, timeout) }

func (s *sidecar) settleWithin(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := s.streams(ctx); err != nil {
		return err
	}
	for {
		lsn, err := report.Now(ctx, s.pool)
		if err == nil {
			var state report.CaughtUp
			if state, err = report.Wait(ctx, s.pool, s.slot, lsn); err == nil {
				if state.Failed > 0 || len(state.Resting) > 0 {
					return fmt.Errorf("rows were not embedded: %d failed, resting: %q; %s", state.Failed, state.Resting, s.tail())
				}
				return nil
			}
		}
		if dead := s.alive(); dead != nil {
			return dead
		}
		if ctx.Err() != nil || !notYet(err) {
			return fmt.Errorf("wait until the sidecar has caught up: %w: %s", err, s.tail())
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// notYet reports whether an error only means that the sidecar has not set up everything yet.
func notYet(err error) bool {
	var pg *pgconn.PgError
	return errors.Is(err, report.ErrNoSlot) || errors.Is(err, report.ErrNoPipeline) ||
		errors.As(err, &pg) && (pg.Code == pgerrcode.UndefinedTable || pg.Code == pgerrcode.InvalidSchemaName)
}

// pause waits, unless ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// worked waits until no task is left and so many rows have been worked since a moment, and returns when that was. It
// looks seldom enough to cost nothing: the dead tasks of a busy queue are many to walk over.
func (s *sidecar) worked(ctx context.Context, since time.Time, rows int) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := s.streams(ctx); err != nil {
		return time.Time{}, err
	}
	const shortest, longest, perRow = 5 * time.Millisecond, 50 * time.Millisecond, 5 * time.Microsecond
	interval := min(max(time.Duration(rows)*perRow, shortest), longest)
	for {
		var open bool
		err := s.pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM embedsidecar.task)").Scan(&open)
		now := time.Now()
		if err == nil && !open {
			var done int
			err = s.pool.QueryRow(ctx, "SELECT count(*) FROM embedsidecar.ledger WHERE written_at > $1", since).Scan(&done)
			if err == nil && done >= rows {
				return now, nil
			}
		}
		if dead := s.alive(); dead != nil {
			return now, dead
		}
		if err != nil && (ctx.Err() != nil || !notYet(err)) {
			return now, fmt.Errorf("wait for %d rows: %w: %s", rows, err, s.tail())
		}
		if err := pause(ctx, interval); err != nil {
			return now, fmt.Errorf("wait for %d rows: %w: %s", rows, err, s.tail())
		}
	}
}
