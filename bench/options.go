package main

import "time"

// options are the flags.
type options struct {
	smoke   bool
	json    string
	major   int
	only    []string
	named   []string // neighbours of the part isolation; none: all
	again   int      // rounds; 0: as many as usual
	bin     string   // folder with embedsidecar, bench-bare and plugins/
	texts   string   // CSV
	profile string
	keep    bool
	plot    string            // SVG of the part cost
	python  string            // that has psycopg
	rates   []int             // of the part cost; none: its own
	server  map[string]string // settings of the server
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
	commits    int // whose latency is measured with the fake embedder
	realCommit int // and with the real one
	questions  int // of each kind, idle and during a backfill
	// whose memory is measured: rows of a table, and of one transaction
	table, transaction int
}

var (
	short = sizes{
		rounds: 3, realTexts: 600, rows: 20_000, pgbench: 3 * time.Second, scripts: []script{updateSource}, commits: 300,
		realCommit: 100, questions: 60, waiting: 10_000, table: 100_000, transaction: 200_000,
	}
	full = sizes{
		rounds: 5, realTexts: 2000, rows: 100_000, columns: true, pgbench: 15 * time.Second,
		scripts: []script{updateSource, updateOther, insertRow}, commits: 2000, realCommit: 500, questions: 1000,
		waiting: 100_000, table: 1_000_000, transaction: 2_000_000,
	}
)

// costPart is the part that needs more of the server than others.
const costPart = "cost"
