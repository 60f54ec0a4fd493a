package main

import (
	"fmt"
	"time"
)

// clients keep two cores busy.
const clients = 4

// Names of those that the writer is measured beside, in the order of the tables.
const (
	nobody       = "the writer alone"
	recvlogical  = "pg_recvlogical"
	notifyGo     = "NOTIFY worker, Go"
	notifyPython = "NOTIFY worker, Python"
	usTable      = "embedsidecar, embedding table"
	usColumn     = "embedsidecar, column"
)

// A script is what pgbench does to the table docs.
type script struct{ name, sql string }

const docsRows = 10_000

var (
	updateSource = script{"update of the source column", sourceOf(docsRows)}
	updateOther  = script{"update of another column", otherOf(docsRows)}
	insertRow    = script{"insert", "\\set n random(1, 1000000000)\nINSERT INTO public.docs (id, body) " +
		"VALUES (nextval('public.docs_ids'), 'a text that is new, number ' || :n);\n"}
)

// sourceOf changes the source column of one of so many rows, and otherOf another one.
func sourceOf(rows int) string {
	return fmt.Sprintf("\\set id random(1, %d)\n\\set n random(1, 1000000000)\n"+
		"UPDATE public.docs SET body = 'a text that was changed once more, number ' || :n WHERE id = :id;\n", rows)
}

func otherOf(rows int) string {
	return fmt.Sprintf("\\set id random(1, %d)\nUPDATE public.docs SET views = views + 1 WHERE id = :id;\n", rows)
}

// costPart is the part that needs more of the server than others.
const costPart = "cost"

// options are the flags.
type options struct {
	smoke, keep  bool
	json, python string
	bin          string // folder with embedsidecar, bench-bare and plugins/
	major, again int    // again: rounds; 0: as many as usual
	only         []string
	rates        []int // of the part cost; none: its own
}

// sizes say how much is measured.
type sizes struct {
	rounds     int           // of everything that is a ratio
	realTexts  int           // with the real model
	rows       int           // with the fake embedder
	columns    bool          // measure a column destination, too
	pgbench    time.Duration // one run
	scripts    []script
	waiting    int // transactions that wait in a slot
	questions  int // of each kind, idle and during a backfill
	table      int // rows whose memory is measured, and those of one transaction
	atOnce     int
	cost       []int         // single-row commits a second
	costLength time.Duration // of a load
	costRows   int
	costBeside []string
}

var (
	short = sizes{
		rounds: 3, realTexts: 600, rows: 20_000, pgbench: 3 * time.Second, scripts: []script{updateSource}, questions: 60,
		waiting: 10_000, table: 100_000, atOnce: 200_000, cost: []int{300}, costLength: 2 * time.Second, costRows: 5000,
		costBeside: []string{nobody, recvlogical, notifyGo, usTable},
	}
	full = sizes{
		rounds: 5, realTexts: 2000, rows: 100_000, columns: true, pgbench: 15 * time.Second,
		scripts: []script{updateSource, updateOther, insertRow}, questions: 1000, waiting: 100_000, table: 1_000_000,
		atOnce: 2_000_000, cost: []int{30, 300, 1000, 3000}, costLength: 4 * time.Second, costRows: 10_000,
		costBeside: []string{nobody, recvlogical, notifyGo, notifyPython, usTable, usColumn},
	}
)
