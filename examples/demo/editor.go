package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// editor changes rows as an application would, one transaction at a time, and measures how long after each commit the
// vector of the new text can be read.
type editor struct {
	dsn    string
	tough  bool // the server comes and goes: try again
	took   []time.Duration
	counts [3]int // by change
}

// changes are what it does, to a row drawn by chance with the text of another one; in ten, so many of each.
var changes = [3]struct {
	often     int
	what, sql string
}{
	{6, "edits", `UPDATE public.packages SET summary = summary || ', ' || (SELECT summary FROM public.packages
		ORDER BY random() LIMIT 1) WHERE id = (SELECT id FROM public.packages ORDER BY random() LIMIT 1) RETURNING id`},
	{2, "inserts", `INSERT INTO public.packages (id, name, section, summary) SELECT 1000000 + (SELECT max(id)
		FROM public.packages) % 1000000 + 1, name, section, summary || ', and more' FROM public.packages
		ORDER BY random() LIMIT 1 RETURNING id`},
	{2, "deletes", `DELETE FROM public.packages WHERE id = (SELECT id FROM public.packages ORDER BY random() LIMIT 1)
		RETURNING id`},
}

// run makes a change, waits for its vector, waits a little and begins again, until it has made enough changes (0: no
// end) or ctx ends, which is no error.
func (e *editor) run(ctx context.Context, every time.Duration, enough int) error {
	for done := 0; (enough == 0 || done < enough) && pause(ctx, every); done++ {
		err := withConn(ctx, e.dsn, func(conn *pgx.Conn) error { return e.change(ctx, conn) })
		if err != nil && ctx.Err() == nil && !e.tough {
			return fmt.Errorf("change a row: %w", err)
		}
	}
	return nil
}

// arrived reports whether a row has the vector of its present text. The hash is computed here, from the row: the
// sidecar is asked only which text the vector is of, which it writes in the same transaction.
const arrived = `SELECT NOT EXISTS (SELECT FROM public.packages WHERE id = $1) OR EXISTS (
	SELECT FROM public.packages AS p JOIN embedsidecar.ledger AS l ON l.row_key = p.id::text
	WHERE p.id = $1 AND p.embedding IS NOT NULL AND l.text_hash = sha256(convert_to(p.name || E'\n\n' || p.summary, 'UTF8')))`

// change makes one change, and waits until its vector is there.
func (e *editor) change(ctx context.Context, conn *pgx.Conn) error {
	const every, limit = time.Millisecond, 5 * time.Minute
	kind := 0
	for draw := rand.IntN(10); draw >= changes[kind].often; kind++ {
		draw -= changes[kind].often
	}
	var id int
	if err := conn.QueryRow(ctx, changes[kind].sql).Scan(&id); err != nil {
		return err
	}
	e.counts[kind]++
	if changes[kind].what == "deletes" {
		return nil
	}
	for since := time.Now(); time.Since(since) < limit; {
		var there bool
		switch err := conn.QueryRow(ctx, arrived, id).Scan(&there); {
		case err != nil:
			return err
		case there:
			e.took = append(e.took, time.Since(since))
			return nil
		case !pause(ctx, every):
			return ctx.Err()
		}
	}
	return errors.New("the vector of a changed row did not come within " + limit.String())
}

// latency describes how long the vectors took that came since the last call.
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
