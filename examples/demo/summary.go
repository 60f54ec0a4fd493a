package main

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// historySQL counts write-backs, and the looks at rows that nobody asked for: each row that was loaded is looked at once, and each
// changed one once more per change at most. A write-back that causes a task shows as one look too many.
const historySQL = `SELECT (SELECT count(*) FROM embedsidecar.history WHERE outcome = 'embedded'),
       (SELECT coalesce(sum(greatest(seen.looks - coalesce(due.looks, 1), 0)), 0)::bigint
        FROM   (SELECT row_key, count(*) AS looks FROM embedsidecar.history GROUP BY row_key) AS seen
               LEFT JOIN unnest($1::text[], $2::int[]) AS due (row_key, looks) USING (row_key)),
       (SELECT count(*) FROM public.packages), (SELECT count(embedding) FROM public.packages)`

// looksDue returns how often each changed row may be looked at. When processes are killed, changes are read from the slot again, so
// nobody knows that of changed rows.
func (d *demo) looksDue() (keys []string, looks []int32) {
	const unknown = 1 << 30
	for id, changes := range d.live.touched {
		due := changes
		if d.live.loaded[id] {
			due++
		}
		if d.o.broken {
			due = unknown
		}
		keys, looks = append(keys, strconv.Itoa(int(id))), append(looks, int32(due))
	}
	return keys, looks
}

// summary prints the figures.
func (d *demo) summary(ctx context.Context) error {
	d.sidecar.scrape(ctx)
	conn, err := d.live.connect(ctx)
	if err != nil {
		return err
	}
	defer leave(ctx, conn)
	keys, looks := d.looksDue()
	var written, caused, rows, vectors int64
	if err := conn.QueryRow(ctx, historySQL, keys, looks).Scan(&written, &caused, &rows, &vectors); err != nil {
		return fmt.Errorf("read the history: %w", err)
	}
	d.out.heading("figures")
	d.row("rows", "%s, of which %s have a vector: coverage %.1f %%", thousands(rows), thousands(vectors), 100*float64(vectors)/float64(rows))
	d.row("changes meanwhile", "%s", d.live.counts)
	if d.o.broken {
		d.latency("while things broke", d.figures.busy)
	} else {
		f := d.figures
		d.row("speed", "%.0f texts/s: %s vectors in %.1f s", float64(f.embedded)/f.backfill.Seconds(), thousands(f.embedded), f.backfill.Seconds())
		d.latency("during the backfill", f.busy)
		d.latency("with nothing else to do", f.idle)
	}
	counts := &d.sidecar.counts
	known := ""
	if !d.o.broken { // otherwise some come back twice, and some are counted by a process that is killed
		known = fmt.Sprintf(" (%s came back through the WAL and were known by their mark)", thousands(counts.get("changes_skipped_total", "reason=own_write")))
	}
	d.row("write-backs", "%s; tasks they caused: %d%s", thousands(written), caused, known)
	d.saved(counts)
	d.watch.lap("summing up")
	if caused != 0 {
		return fmt.Errorf("write-backs caused %d tasks, expected none", caused)
	}
	return nil
}

// saved tells of the changes that needed no embedder. After a kill -9 it knows what was counted up to a second before.
func (d *demo) saved(counts *counters) {
	known := counts.get("embedding_cache_hits_total")
	unchanged := counts.get("changes_skipped_total", "reason=unchanged") + counts.get("tasks_finished_total", "outcome=unchanged")
	joined := counts.get("tasks_deduplicated_total")
	d.row("embedder calls saved", "%s: %s changes touched no text, %s texts were embedded before, %s changes joined one that waited",
		thousands(unchanged+known+joined), thousands(unchanged), thousands(known), thousands(joined))
}

func (d *demo) row(name, format string, args ...any) {
	d.out.say("  %-22s %s", name, fmt.Sprintf(format, args...))
}

func (d *demo) latency(name string, took []time.Duration) {
	const median, most = 50, 99
	d.row("commit -> vector", "p50 %s, p99 %s %s (%d changes)", span(percentile(took, median)), span(percentile(took, most)), name, len(took))
}
