package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
)

// editor changes rows as an application does, one transaction at a time, and measures the time from each commit until
// the new vector is visible.
type editor struct {
	dsn     string
	tough   bool // retry, because the server is killed
	rng     *rand.Rand
	loaded  []pkg // in the table
	reserve []pkg // to be inserted
	took    []time.Duration
	counts  counts
}

// counts are the numbers of changes.
type counts struct{ edited, inserted, deleted int }

func (c counts) String() string {
	return fmt.Sprintf("%d edits, %d inserts, %d deletes", c.edited, c.inserted, c.deleted)
}

func newEditor(dsn string, loaded, reserve []pkg, tough bool) *editor {
	return &editor{
		dsn: dsn, tough: tough, rng: rand.New(rand.NewPCG(2, 2)), loaded: slices.Clone(loaded),
		reserve: slices.Clone(reserve),
	}
}

// run repeatedly makes a change and waits for its vector, until it has made enough changes (0: no limit) or ctx ends,
// which is not an error.
func (e *editor) run(ctx context.Context, every time.Duration, enough int) error {
	for done := 0; (enough == 0 || done < enough) && sleep.For(ctx, every); done++ {
		err := withConn(ctx, e.dsn, func(conn *pgx.Conn) error { return e.change(ctx, conn) })
		if err != nil && ctx.Err() == nil && !e.tough {
			return fmt.Errorf("change a row: %w", err)
		}
	}
	return nil
}

// change makes one change of a random kind.
func (e *editor) change(ctx context.Context, conn *pgx.Conn) error {
	at := e.rng.IntN(len(e.loaded))
	row := e.loaded[at]
	switch draw := e.rng.IntN(10); {
	case draw < 2:
		e.loaded = slices.Delete(e.loaded, at, at+1)
		_, err := conn.Exec(ctx, "DELETE FROM public.packages WHERE id = $1", row.id)
		e.counts.deleted++
		return err
	case draw < 4 && len(e.reserve) > 0:
		row, e.reserve = e.reserve[0], e.reserve[1:]
		e.loaded = append(e.loaded, row)
		e.counts.inserted++
		return e.measured(ctx, conn, row.id,
			"INSERT INTO public.packages (id, name, section, summary) VALUES ($1, $2, $3, $4) ON CONFLICT (id) DO NOTHING",
			row.id, row.name, row.section, row.summary)
	}
	e.counts.edited++
	other := e.loaded[e.rng.IntN(len(e.loaded))]
	return e.measured(ctx, conn, row.id, "UPDATE public.packages SET summary = $2 WHERE id = $1", row.id,
		row.summary+", "+other.summary)
}

// arrived reports whether a row has the vector of its current text. It computes the hash from the row and compares it
// with the text hash that the sidecar writes in the same transaction as the vector.
const arrived = `SELECT NOT EXISTS (SELECT FROM public.packages WHERE id = $1) OR EXISTS (
	SELECT FROM public.packages AS p JOIN embedsidecar.ledger AS l ON l.row_key = p.id::text
	WHERE p.id = $1 AND p.embedding IS NOT NULL AND l.text_hash = sha256(convert_to(p.name || E'\n\n' || p.summary, 'UTF8')))`

// measured makes a change and waits for its vector.
func (e *editor) measured(ctx context.Context, conn *pgx.Conn, id int32, sql string, args ...any) error {
	const every, limit = time.Millisecond, 5 * time.Minute
	if _, err := conn.Exec(ctx, sql, args...); err != nil {
		return err
	}
	for since := time.Now(); time.Since(since) < limit; {
		var there bool
		switch err := conn.QueryRow(ctx, arrived, id).Scan(&there); {
		case err != nil:
			return err
		case there:
			e.took = append(e.took, time.Since(since))
			return nil
		case !sleep.For(ctx, every):
			return ctx.Err()
		}
	}
	return errors.New("no vector of a changed row within " + limit.String())
}

// latency describes the latency of vectors since the last call.
func (e *editor) latency() string {
	took := e.took
	e.took = nil
	if len(took) == 0 {
		return "nothing measured"
	}
	slices.Sort(took)
	of := func(percent int) time.Duration { return took[(len(took)-1)*percent/100].Round(time.Millisecond / 10) }
	return fmt.Sprintf("p50 %s, p99 %s (%d changes)", of(50), of(99), len(took))
}
