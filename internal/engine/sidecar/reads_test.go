package sidecar_test

import (
	"slices"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP1_WhatATextReadsIsNotKnown: a role that may make no temporary view cannot find out which columns a text reads.
func TestP1_WhatATextReadsIsNotKnown(t *testing.T) {
	t.Parallel()
	for name, chunking := range map[string]pipeline.Chunking{"whole": {}, "chunked": {
		Strategy: pipeline.ChunkSentences,
		Tokens:   32,
	}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testenv.DB(t)
			db.MustExecSuper(`REVOKE TEMPORARY ON DATABASE "` + db.Name + `" FROM public, "` + testenv.Owner + `"`)
			db.MustExec(wide)
			db.MustExec(`INSERT INTO docs SELECT i, 'title ' || i, 'body ' || i, i % 3 FROM generate_series(1, 50) AS i`)
			spec := intoTable("docs")
			spec.Text, spec.Filter, spec.Chunking = `upper(body)`, `n < 2`, chunking
			r := newRig(t, db, spec)
			db.MustExec(`GRANT SELECT ON docs TO ` + r.role)
			r.start()
			r.settle()
			if !r.pipelines[0].WatchAll {
				t.Fatal("it is known what the text reads")
			}
			sent := r.embedder.sent()
			db.MustExec(`UPDATE docs SET title = 'other'`)
			r.settle()
			if n := r.embedder.sent(); n != sent {
				t.Errorf("%d texts were sent again though none changed", n-sent)
			}
			db.MustExec(`UPDATE docs SET body = body || '!' WHERE id <= 20`)
			db.MustExec(`UPDATE docs SET n = 2 - n WHERE id BETWEEN 15 AND 30`)
			db.MustExec(`UPDATE docs SET body = repeat('long text. ', 5000) || id WHERE id = 4`)
			r.settle()
			r.verify()
			if n, want := r.count(`SELECT count(DISTINCT id) FROM docs_embedding`),
				r.count(`SELECT count(*) FROM docs WHERE n < 2`); n != want {
				t.Errorf("%d rows have vectors, want %d", n, want)
			}
			db.MustExec(`UPDATE docs SET body = body || '?' WHERE id = 4`)
			r.settle()
			r.verify()
		})
	}
}

// A table with a column that is generated, and its rows.
const (
	generated = `CREATE TABLE docs (id bigint PRIMARY KEY, a text, b text, body text GENERATED ALWAYS AS (upper(a)) STORED)`
	fill      = `INSERT INTO docs (id, a, b) SELECT i, CASE WHEN i % 7 > 0 THEN 'a ' || i END, 'b ' || i FROM generate_series(1, 50) AS i`
)

// expression gives a pipeline a text of its own, which reads the column body.
func expression(s pipeline.Spec) pipeline.Spec {
	s.Columns, s.Text = nil, `body || ''`
	return s
}

// filtered leaves rows out by a column.
func filtered(s pipeline.Spec) pipeline.Spec {
	s.Filter = `shown`
	return s
}

// readChange changes what a text reads without a change of the rows.
type readChange struct {
	since  int
	before []string
	spec   pipeline.Spec
	change string
	after  string // of rows, once it is noticed
	init   bool   // the pipeline waits until init was run
}

var readChanges = map[string]readChange{
	"no longer generated": {
		before: []string{generated, fill}, spec: column("docs", "body"),
		change: `ALTER TABLE docs ALTER body DROP EXPRESSION`, after: `UPDATE docs SET body = 'now ' || id WHERE id < 20`,
	},
	"no longer generated, an expression": {
		before: []string{generated, fill}, spec: expression(intoTable("docs")),
		change: `ALTER TABLE docs ALTER body DROP EXPRESSION`, after: `UPDATE docs SET body = 'now ' || id WHERE id < 20`,
	},
	"no longer generated, an expression into a column": {
		before: []string{generated, fill}, spec: expression(column("docs")), init: true,
		change: `ALTER TABLE docs ALTER body DROP EXPRESSION`, after: `UPDATE docs SET body = 'now ' || id WHERE id < 20`,
	},
	"generated of something else": {
		since: 17, before: []string{generated, fill}, spec: column("docs", "body"),
		change: `ALTER TABLE docs ALTER body SET EXPRESSION AS (upper(b))`,
		after:  `UPDATE docs SET b = 'now ' || id WHERE id < 20`,
	},
	"generated of something else, an expression": {
		since: 17, before: []string{generated, fill}, spec: expression(intoTable("docs")),
		change: `ALTER TABLE docs ALTER body SET EXPRESSION AS (upper(b))`,
		after:  `UPDATE docs SET b = 'now ' || id WHERE id < 20`,
	},
	"generated otherwise of the same, in the filter": {
		since: 17, before: []string{
			`CREATE TABLE docs (id bigint PRIMARY KEY, body text, n int, shown boolean GENERATED ALWAYS AS (n > 10) STORED)`,
			`INSERT INTO docs SELECT i, 'body ' || i, i FROM generate_series(1, 20) AS i`,
		},
		spec:   filtered(intoTable("docs", "body")),
		change: `ALTER TABLE docs ALTER shown SET EXPRESSION AS (n > 5)`, after: `UPDATE docs SET n = 1 WHERE id = 20`,
	},
	"label of an enum": {
		before: []string{
			`CREATE TYPE state AS ENUM ('open', 'closed')`, `CREATE DOMAIN states AS state[]`,
			`CREATE TABLE docs (id bigint PRIMARY KEY, body states)`,
			`INSERT INTO docs SELECT i, '{open,closed}' FROM generate_series(1, 20) AS i`,
		},
		spec:   column("docs", "body"),
		change: `ALTER TYPE state RENAME VALUE 'open' TO 'opened'`, after: `UPDATE docs SET body = '{opened}' WHERE id = 7`,
	},
	"label of an enum in the key": {
		before: []string{
			`CREATE TYPE state AS ENUM ('open', 'closed', 'third')`,
			`CREATE TABLE docs (id int, state state, body text, PRIMARY KEY (id, state))`,
			`INSERT INTO docs SELECT i, 'open', 'body ' || i FROM generate_series(1, 20) AS i`,
		},
		spec:   intoTable("docs", "body"),
		change: `ALTER TYPE state RENAME VALUE 'open' TO 'opened'`, after: `UPDATE docs SET state = 'third' WHERE id = 7`,
	},
	"attribute of a composite type": {
		before: []string{
			`CREATE TYPE person AS (name text)`, `CREATE TABLE docs (id bigint PRIMARY KEY, body person)`,
			`INSERT INTO docs SELECT i, ROW('Ann ' || i)::person FROM generate_series(1, 20) AS i`,
		},
		spec:   column("docs", "body"),
		change: `ALTER TYPE person ADD ATTRIBUTE born int`, after: `UPDATE docs SET body.born = 1 WHERE id = 7`,
	},
	"constraint of a domain": {
		before: []string{
			`CREATE DOMAIN code AS text`, `CREATE TABLE docs (id code PRIMARY KEY, body text)`,
			`INSERT INTO docs SELECT 'c' || i, 'body ' || i FROM generate_series(1, 20) AS i`,
		},
		spec:   column("docs", "body"),
		change: `ALTER DOMAIN code ADD CONSTRAINT short CHECK (length(VALUE) < 3) NOT VALID`,
		after:  `UPDATE docs SET body = 'other' WHERE id = 'c1'`,
	},
}

// TestP1_WhatATextReadsChanges changes what rows say, or what they will say next time, in ways that no row's change
// tells.
func TestP1_WhatATextReadsChanges(t *testing.T) {
	t.Parallel()
	for name, test := range readChanges {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			majors := testenv.Majors(t)
			major := slices.Max(majors)
			if major < test.since {
				return // such a change cannot be made on the servers at hand
			}
			db := testenv.DB(t, testenv.Major(major))
			for _, sql := range test.before {
				db.MustExec(sql)
			}
			r := newRig(t, db, test.spec)
			db.MustExec(`GRANT SELECT ON docs TO ` + r.role) // other columns may be read afterwards
			s, _ := r.start()
			r.settle()
			noticed := s.Stream().CatalogueScans.Load()
			db.MustExec(test.change)
			if name != "constraint of a domain" { // what a constraint says of new rows is nothing to us
				testenv.Eventually(t, waitTimeout, func() (bool, string) {
					return s.Stream().CatalogueScans.Load() > noticed,
						"the change was not noticed"
				})
			}
			if test.init {
				reason(t, s, "docs", "run embedsidecar init")
				r.init(test.spec)
				r.works(s, "docs")
			}
			r.settle()
			db.MustExec(test.after)
			r.settle()
			r.verify()
			if n := r.count(`SELECT count(*) FROM embedsidecar.task`); n != 0 {
				t.Errorf("%d tasks left: %v", n, testenv.Values[string](db,
					`SELECT concat_ws(' ', row_key, state, error_code, error_message) FROM embedsidecar.task`))
			}
		})
	}
}
