package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// historySQL counts what was written, and rows.
const historySQL = `SELECT (SELECT count(*) FROM embedsidecar.history WHERE outcome = 'embedded'),
       (SELECT count(*) FROM public.packages), (SELECT count(embedding) FROM public.packages)`

// summary prints the figures.
func (d *demo) summary(ctx context.Context) error {
	d.sidecar.scrape(ctx)
	conn, err := d.live.connect(ctx)
	if err != nil {
		return err
	}
	defer leave(ctx, conn)
	var written, rows, vectors int64
	if err := conn.QueryRow(ctx, historySQL).Scan(&written, &rows, &vectors); err != nil {
		return fmt.Errorf("read the history: %w", err)
	}
	writeBacks, caused, err := causedByWriteBacks(ctx, conn, marksSlot)
	if err != nil {
		return err
	}
	d.out.heading("figures")
	d.row("rows", "%s, of which %s have a vector: coverage %.1f %%", thousands(rows), thousands(vectors),
		100*float64(vectors)/float64(rows))
	d.row("changes meanwhile", "%s", d.live.counts)
	if d.o.broken {
		d.latency("while things broke", d.figures.busy)
	} else {
		f := d.figures
		d.row("speed", "%.0f texts/s: %s vectors in %.1f s", float64(f.embedded)/f.backfill.Seconds(), thousands(f.embedded),
			f.backfill.Seconds())
		d.latency("during the backfill", f.busy)
		d.latency("with nothing else to do", f.idle)
	}
	counts := &d.sidecar.counts
	known := ""
	if !d.o.broken { // otherwise some come back twice, and some are counted by a process that is killed
		known = fmt.Sprintf(" (%s came back through the WAL and were known by their mark)",
			thousands(counts.get("changes_skipped_total", "reason=own_write")))
	}
	d.row("write-backs", "%s in %s transactions; tasks they caused: %d%s", thousands(written), thousands(writeBacks),
		caused, known)
	d.saved(counts)
	d.watch.lap("summing up")
	if writeBacks == 0 {
		return errors.New("no transaction in the WAL begins with the mark of a write-back")
	}
	if caused != 0 {
		return fmt.Errorf("write-backs caused %d tasks, expected none", caused)
	}
	return nil
}

// saved tells of the changes that needed no embedder. After a kill -9 it knows what was counted up to a second before.
func (d *demo) saved(counts *counters) {
	known := counts.get("embedding_cache_hits_total")
	unchanged := counts.get("changes_skipped_total", "reason=unchanged") + counts.get("tasks_finished_total",
		"outcome=unchanged")
	joined := counts.get("tasks_deduplicated_total")
	d.row("embedder calls saved", "%s: %s changes touched no text, %s texts were embedded before, %s changes joined one that waited",
		thousands(unchanged+known+joined), thousands(unchanged), thousands(known), thousands(joined))
}

func (d *demo) row(name, format string, args ...any) {
	d.out.say("  %-22s %s", name, fmt.Sprintf(format, args...))
}

func (d *demo) latency(name string, took []time.Duration) {
	const median, most = 50, 99
	d.row("commit -> vector", "p50 %s, p99 %s %s (%d changes)", span(percentile(took, median)),
		span(percentile(took, most)), name, len(took))
}
