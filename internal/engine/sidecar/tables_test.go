package sidecar_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// again gives the run role what the pipelines need after init made something anew.
func (r *rig) again(specs ...pipeline.Spec) {
	r.t.Helper()
	r.init(specs...)
	for _, p := range r.pipelines {
		r.db.Grant(r.role, p)
	}
}

// works waits until a pipeline is worked and the database says so.
func (r *rig) works(s *sidecar.Sidecar, name string) {
	r.t.Helper()
	testenv.Eventually(r.t, waitTimeout, func() (bool, string) {
		for _, state := range s.States() {
			if state.Pipeline.Name == name {
				return state.Reason() == "" && state.Worker != nil, name + ": " + state.Reason()
			}
		}
		return false, "no state of " + name
	})
	r.status(name, pipeline.Active)
}

// tableChange makes a table no longer fit its pipeline.
type tableChange struct {
	spec   pipeline.Spec
	change string // one statement after another
	status pipeline.Status
	words  []string
	mend   func(r *rig, spec pipeline.Spec)
}

var tableChanges = map[string]tableChange{
	"column dropped and made again": {
		spec: intoTable("docs", "title", "body"), change: `ALTER TABLE docs DROP title`,
		status: pipeline.Misconfigured, words: []string{`no column "title" any more`, "init"},
		mend: func(r *rig, _ pipeline.Spec) {
			r.db.MustExec(`ALTER TABLE docs ADD title text DEFAULT 'new'`)
			r.db.Grant(r.role, r.pipelines[0])
		},
	},
	"column dropped and given up": {
		spec: column("docs", "title", "body"), change: `ALTER TABLE docs DROP title`,
		status: pipeline.Misconfigured, words: []string{`no column "title" any more`},
		mend: func(r *rig, spec pipeline.Spec) {
			spec.Columns = []string{"body"}
			r.again(spec, intoTable("notes", "body"))
		},
	},
	// Columns are followed, and so is a key; not what stands in somebody's own text, nor the key's name in an embedding
	// table.
	"column of a text renamed and taken over": {
		spec: heading("title"), change: `ALTER TABLE docs RENAME title TO heading`,
		status: pipeline.Misconfigured, words: []string{"title"},
		mend: func(r *rig, _ pipeline.Spec) { r.again(heading("heading"), intoTable("notes", "body")) },
	},
	"key renamed and back": {
		spec: intoTable("docs", "title", "body"), change: `ALTER TABLE docs RENAME id TO no; UPDATE docs SET body = 'while renamed' WHERE no = 1`,
		status: pipeline.Misconfigured, words: []string{`no column "no"`},
		mend: func(r *rig, _ pipeline.Spec) { r.db.MustExec(`ALTER TABLE docs RENAME no TO id`) },
	},
	"key dropped and made again": {
		spec: intoTable("docs", "title", "body"), change: `ALTER TABLE docs DROP CONSTRAINT docs_pkey; INSERT INTO docs VALUES (10001, 'without', 'key')`,
		status: pipeline.Misconfigured, words: []string{"no primary key", "ADD PRIMARY KEY"},
		mend: func(r *rig, _ pipeline.Spec) { r.db.MustExec(`ALTER TABLE docs ADD PRIMARY KEY (id)`) },
	},
	"another key": {
		spec: column("docs", "title", "body"), change: `ALTER TABLE docs DROP CONSTRAINT docs_pkey, ADD PRIMARY KEY (id, n); UPDATE docs SET body = 'other key' WHERE id = 1`,
		status: pipeline.Misconfigured, words: []string{`"id", "n"`, "init"},
		mend: func(r *rig, spec pipeline.Spec) { r.again(spec, intoTable("notes", "body")) },
	},
	"identity nothing": {
		spec: intoTable("docs", "title", "body"), change: `ALTER TABLE docs REPLICA IDENTITY NOTHING; INSERT INTO docs VALUES (10001, 'without', 'identity')`,
		status: pipeline.Misconfigured, words: []string{"NOTHING"},
		mend: func(r *rig, _ pipeline.Spec) { r.db.MustExec(`ALTER TABLE docs REPLICA IDENTITY FULL`) },
	},
	"destination column dropped": {
		spec: column("docs", "title", "body"), change: `ALTER TABLE docs DROP embedding`,
		status: pipeline.Misconfigured, words: []string{"is gone", "init"},
		mend: func(r *rig, spec pipeline.Spec) { r.again(spec, intoTable("notes", "body")) },
	},
	"destination widened": {
		spec: column("docs", "title", "body"), change: `ALTER TABLE docs ALTER embedding TYPE vector(9) USING NULL`,
		status: pipeline.Misconfigured, words: []string{"8 wide", "9"},
		mend: func(r *rig, _ pipeline.Spec) {
			r.db.MustExec(`ALTER TABLE docs ALTER embedding TYPE vector(8) USING NULL`)
		},
	},
	"embedding table without its key": {
		spec:   intoTable("docs", "title", "body"),
		change: `ALTER TABLE docs_embedding DROP CONSTRAINT docs_embedding_pkey; UPDATE docs SET body = 'without' WHERE id < 9`,
		status: pipeline.Misconfigured, words: []string{"primary key is ()", "chunk_no"},
		mend: func(r *rig, _ pipeline.Spec) {
			r.db.MustExec(`ALTER TABLE docs_embedding ADD PRIMARY KEY (id, chunk_no)`)
		},
	},
	"embedding table with a column that takes no NULL": {
		spec: intoTable("docs", "title", "body"),
		change: `DELETE FROM docs WHERE id = 50; ALTER TABLE docs_embedding ADD tenant int NOT NULL DEFAULT 1; ` +
			`ALTER TABLE docs_embedding ALTER tenant DROP DEFAULT; UPDATE docs SET body = 'without' WHERE id < 9`,
		status: pipeline.Misconfigured, words: []string{`"tenant" is NOT NULL without a default`},
		mend: func(r *rig, _ pipeline.Spec) { r.db.MustExec(`ALTER TABLE docs_embedding ALTER tenant DROP NOT NULL`) },
	},
	"embedding table dropped": {
		spec: intoTable("docs", "title", "body"), change: `DROP TABLE docs_embedding`,
		status: pipeline.Misconfigured, words: []string{"docs_embedding", "is gone", "init"},
		mend: func(r *rig, spec pipeline.Spec) { r.again(spec, intoTable("notes", "body")) },
	},
	"table dropped and made again": {
		spec: intoTable("docs", "title", "body"), change: `DROP TABLE docs; ` + wide,
		status: pipeline.Missing, words: []string{"was dropped"},
		mend: func(r *rig, spec pipeline.Spec) { r.again(spec, intoTable("notes", "body")) },
	},
	"taken out of the publication and put back": {
		spec: intoTable("docs", "title", "body"), change: `ALTER PUBLICATION {pub} DROP TABLE docs; UPDATE docs SET body = 'unseen'; DELETE FROM docs WHERE id = 30`,
		status: pipeline.Unpublished, words: []string{"not in the publication"},
		mend: func(r *rig, _ pipeline.Spec) { r.db.MustExec(`ALTER PUBLICATION ` + r.db.Name + `_pub ADD TABLE docs`) },
	},
}

// heading is a pipeline whose text names a column.
func heading(name string) pipeline.Spec {
	spec := column("docs")
	spec.Text = "concat_ws(' ', " + name + ", body)"
	return spec
}

// TestP5_TablesChangeWhileItRuns changes the table of one pipeline so that it no longer fits, and then so that it
// fits again. Another pipeline works all the time.
func TestP5_TablesChangeWhileItRuns(t *testing.T) {
	t.Parallel()
	for name, test := range tableChanges {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testenv.DB(t)
			db.MustExec(wide)
			db.MustExec(notes)
			db.MustExec(`INSERT INTO docs SELECT i, 'title ' || i, 'body ' || i, i % 3 FROM generate_series(1, 50) AS i`)
			r := newRig(t, db, test.spec, intoTable("notes", "body"))
			s, _ := r.start()
			r.settle()
			r.verify()
			for statement := range strings.SplitSeq(test.change, "; ") {
				db.MustExec(strings.ReplaceAll(statement, "{pub}", db.Name+"_pub"))
			}
			db.MustExec(`INSERT INTO notes VALUES (1, 'meanwhile')`)
			reason(t, s, "docs", test.words...)
			r.has(1, `SELECT count(*) FROM notes_embedding`)
			r.status("docs", test.status)
			db.MustExec(`INSERT INTO notes VALUES (2, 'and on')`)
			r.settle() // which waits for nothing that cannot be
			r.has(2, `SELECT count(*) FROM notes_embedding`)
			test.mend(r, test.spec)
			db.MustExec(`INSERT INTO docs (` + testenv.Value[string](db,
				`SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum)
				FROM pg_attribute WHERE attrelid = 'docs'::regclass AND attname IN ('id', 'body', 'n')`) +
				`) SELECT i, 'late ' || i, 1 FROM generate_series(60, 70) AS i`)
			r.noticed()
			r.status("docs", pipeline.Active)
			r.works(s, "docs")
			r.settle()
			r.verify()
			if n := r.count(`SELECT count(*) FROM embedsidecar.task WHERE state = 'failed' OR attempt > 0`); n != 0 {
				t.Errorf("%d tasks were blamed", n)
			}
		})
	}
}

const wide = `CREATE TABLE docs (id bigint PRIMARY KEY, title text, body text, n int DEFAULT 0)`

func TestP2_TypesChangeWhileItRuns(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"rewritten":     `ALTER TABLE docs ALTER n TYPE text USING 'n' || n`,
		"not rewritten": `ALTER TABLE docs ALTER body TYPE varchar(1000)`,
		"key":           `ALTER TABLE docs ALTER id TYPE numeric USING id + 0.50`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testenv.DB(t)
			db.MustExec(wide)
			db.MustExec(`INSERT INTO docs SELECT i, 'title ' || i, 'body ' || i, i % 3 FROM generate_series(1, 50) AS i`)
			r := newRig(t, db, column("docs", "body", "n"))
			s, _ := r.start()
			r.settle()
			db.MustExec(sql)
			db.MustExec(`UPDATE docs SET body = body || '!' WHERE body LIKE '%7'`)
			testenv.Eventually(t, waitTimeout, func() (bool, string) {
				return s.Stream().CatalogueScans.Load() > 0,
					"the change was not noticed"
			})
			r.settle()
			r.verify()
		})
	}
}

// TestP1_AnEmbeddingTableThatOthersEmptyIsFilledAgain: the whole of it, or a partition at any depth. One that a crash
// of the server would empty stops its pipeline.
func TestP1_AnEmbeddingTableThatOthersEmptyIsFilledAgain(t *testing.T) {
	t.Parallel()
	const whole = `CREATE TABLE docs_embedding (id bigint, chunk_no integer NOT NULL DEFAULT 0,
		generation integer NOT NULL, text_hash bytea NOT NULL, embedded_at timestamptz NOT NULL,
		embedding vector(8) NOT NULL, PRIMARY KEY (id, chunk_no))`
	const parts = whole + ` PARTITION BY RANGE (id);
		CREATE TABLE low PARTITION OF docs_embedding FOR VALUES FROM (0) TO (20);
		CREATE TABLE high PARTITION OF docs_embedding FOR VALUES FROM (20) TO (90) PARTITION BY RANGE (id);
		CREATE TABLE middle PARTITION OF high FOR VALUES FROM (20) TO (40);
		CREATE TABLE top PARTITION OF high FOR VALUES FROM (40) TO (90)`
	for name, c := range map[string]struct{ made, emptied, unlogged string }{
		"table":                    {whole, `TRUNCATE docs_embedding`, `docs_embedding`},
		"partition":                {parts, `TRUNCATE low`, `low`},
		"partition of a partition": {parts, `TRUNCATE middle`, `middle`},
		"partition that comes back": {parts, `BEGIN; ALTER TABLE high DETACH PARTITION top; DELETE FROM top WHERE id > 45;
			ALTER TABLE high ATTACH PARTITION top FOR VALUES FROM (40) TO (90); COMMIT`, `top`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testenv.DB(t)
			db.MustExec(wide)
			db.MustExec(c.made)
			db.MustExec(`INSERT INTO docs SELECT i, 'title ' || i, 'body ' || i, i % 3 FROM generate_series(1, 50) AS i`)
			r := newRig(t, db, intoTable("docs", "body"))
			r.start()
			r.settle()
			r.verify()
			sent := r.embedder.sent()
			db.MustExec(c.emptied)
			r.has(50, `SELECT count(*) FROM docs_embedding`)
			if n := r.embedder.sent(); n != sent {
				t.Errorf("%d texts were sent again though their vectors were remembered", n-sent)
			}
			r.verify()
			db.MustExec(`ALTER TABLE ` + c.unlogged + ` SET UNLOGGED`)
			r.status("docs", pipeline.Misconfigured)
			db.MustExec(`ALTER TABLE ` + c.unlogged + ` SET LOGGED`)
			r.status("docs", pipeline.Active)
		})
	}
}

// TestP1_AnEmbeddingTableThatMovesIsWatched: under another name, or in another schema, it is the pipeline's, and one
// that is emptied there is filled again.
func TestP1_AnEmbeddingTableThatMovesIsWatched(t *testing.T) {
	t.Parallel()
	const made = `CREATE TABLE docs_embedding (id bigint, chunk_no integer NOT NULL DEFAULT 0,
		generation integer NOT NULL, text_hash bytea NOT NULL, embedded_at timestamptz NOT NULL,
		embedding vector(8) NOT NULL, PRIMARY KEY (id, chunk_no))`
	for name, c := range map[string]struct{ made, moves, now string }{
		"renamed": {made, `ALTER TABLE docs_embedding RENAME TO moved`, `moved`},
		"partitioned": {
			made + ` PARTITION BY RANGE (id); CREATE TABLE low PARTITION OF docs_embedding FOR VALUES FROM (0) TO (20);
			CREATE TABLE high PARTITION OF docs_embedding FOR VALUES FROM (20) TO (90)`,
			`ALTER TABLE docs_embedding RENAME TO moved`, `moved`,
		},
		"another schema": {
			made, `CREATE SCHEMA other; GRANT USAGE ON SCHEMA other TO public; ALTER TABLE docs_embedding SET SCHEMA other`,
			`other.docs_embedding`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testenv.DB(t)
			db.MustExec(wide)
			db.MustExec(c.made)
			db.MustExec(`INSERT INTO docs SELECT i, 'title ' || i, 'body ' || i, i % 3 FROM generate_series(1, 50) AS i`)
			r := newRig(t, db, intoTable("docs", "body"))
			s, _ := r.start()
			r.settle()
			db.MustExecSuper(c.moves)
			testenv.Eventually(t, waitTimeout, func() (bool, string) {
				list, _ := s.Pipelines()
				return len(list) == 1 && list[0].Status == pipeline.Active && list[0].Into() != r.pipelines[0].Into(),
					fmt.Sprint(list)
			})
			vector := "[" + strings.Repeat("1,", dims-1) + "1]"
			if n := len(testenv.Values[string](db, `SELECT row_key FROM embedsidecar.neighbours('docs', $1, 5)`, vector)); n != 5 {
				t.Errorf("a search finds %d rows, want 5", n)
			}
			sent := r.embedder.sent()
			db.MustExecSuper(`TRUNCATE ` + c.now)
			r.has(50, `SELECT count(*) FROM `+c.now)
			if n := r.embedder.sent(); n != sent {
				t.Errorf("%d texts were sent again though their vectors were remembered", n-sent)
			}
			r.verify()
		})
	}
}

func TestP1_TruncateOfSeveralTables(t *testing.T) {
	t.Parallel()
	bothDestinations(t, func(t *testing.T, spec func(string, ...string) pipeline.Spec) {
		t.Helper()
		db := testenv.DB(t)
		db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text)`)
		db.MustExec(`CREATE TABLE parts (doc bigint REFERENCES docs ON DELETE CASCADE, no int, body text, PRIMARY KEY (doc, no))`)
		db.MustExec(`CREATE TABLE apart (id bigint PRIMARY KEY, body text)`)
		fill := func(word string) {
			t.Helper()
			db.MustExec(`INSERT INTO docs SELECT i, $1::text || i FROM generate_series(1, 30) AS i`, word)
			db.MustExec(`INSERT INTO parts SELECT i, j, $1::text || i || j FROM generate_series(1, 30) AS i, generate_series(1, 3) AS j`, word)
		}
		fill("first ")
		db.MustExec(`INSERT INTO apart SELECT i, 'apart ' || i FROM generate_series(1, 30) AS i`)
		r := newRig(t, db, spec("docs", "body"), spec("parts", "body"), spec("apart", "body"))
		r.start()
		r.settle()
		db.MustExec(`TRUNCATE docs CASCADE`)
		r.settle()
		r.verify()
		if n := r.count(`SELECT count(*) FROM embedsidecar.ledger`); n != 30 {
			t.Errorf("%d ledger entries of 30 rows", n)
		}
		fill("second ")
		r.settle()
		db.MustExec(`BEGIN; TRUNCATE docs, parts, apart; INSERT INTO docs VALUES (1, 'in the same transaction'); COMMIT`)
		db.MustExec(`DELETE FROM docs`)
		db.MustExec(`INSERT INTO docs VALUES (1, 'and after')`)
		r.settle()
		r.verify()
		if n := r.count(`SELECT count(*) FROM embedsidecar.ledger`); n != 1 {
			t.Errorf("%d ledger entries of one row", n)
		}
		db.MustExec(`DELETE FROM docs`)
		// Rows that go because others go come through the slot like any other.
		fill("third ")
		r.settle()
		db.MustExec(`DELETE FROM docs WHERE id <= 20`)
		r.settle()
		r.verify()
	})
}

func TestPipelines_SwitchedAddedAndShared(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(wide)
	db.MustExec(notes)
	db.MustExec(`INSERT INTO docs SELECT i, 'title ' || i, 'body ' || i, i % 3 FROM generate_series(1, 50) AS i`)
	first := column("docs", "body")
	r := newRig(t, db, first)
	s, _ := r.start()
	r.settle()
	// Two more on the same table and one on another, while it runs.
	second, third, fourth := intoTable("docs", "title"), column("docs"), intoTable("notes", "body")
	second.Name = "titles"
	third.Name, third.IntoColumn, third.Text, third.Filter = "both", "embedding_2", `title || body`, `n <> 1`
	r.again(first, second, third, fourth)
	db.MustExec(`INSERT INTO notes VALUES (1, 'a note')`)
	// Until the role has its grants they wait, and settle waits for none of them.
	for _, p := range r.pipelines {
		r.works(s, p.Name)
	}
	r.settle()
	r.verify()
	if n := len(s.States()); n != 4 {
		t.Fatalf("%d pipelines are known, want 4", n)
	}
	db.MustExec(`UPDATE docs SET title = 'new ' || id WHERE id <= 10`)
	db.MustExec(`UPDATE docs SET n = 1 WHERE id BETWEEN 11 AND 20`)
	db.MustExec(`DELETE FROM docs WHERE id > 45`)
	r.counted()
	made := s.Stream().Made.Load() + s.Stream().Joined.Load()
	r.verify()
	db.MustExec(`UPDATE docs SET body = body`) // nobody's write-back is news to another
	r.counted()
	if now := s.Stream().Made.Load() + s.Stream().Joined.Load(); now != made {
		t.Errorf("%d tasks of write-backs, or of updates that change nothing", now-made)
	}

	// One rests, the others go on.
	db.MustExec(`UPDATE embedsidecar.pipeline SET enabled = false WHERE name = 'titles'`)
	reason(t, s, "titles", "paused")
	titles := r.count(`SELECT count(*) FROM docs_embedding`)
	db.MustExec(`INSERT INTO docs SELECT i, 'late ' || i, 'late ' || i, 0 FROM generate_series(100, 110) AS i`)
	r.settle()
	if n := r.count(`SELECT count(*) FROM docs WHERE id >= 100 AND embedding IS NOT NULL AND embedding_2 IS NOT NULL`); n != 11 {
		t.Errorf("%d of 11 rows have both vectors while a third pipeline rests", n)
	}
	if n := r.count(`SELECT count(*) FROM docs_embedding`); n != titles {
		t.Errorf("a disabled pipeline wrote %d vectors", n-titles)
	}
	// All rest.
	db.MustExec(`UPDATE embedsidecar.installation SET enabled = false`)
	testenv.Eventually(t, waitTimeout, func() (bool, string) { // what was begun is worked to its end
		return r.count(`SELECT count(*) FROM embedsidecar.lease`) == 0, "a batch is in work"
	})
	sent := r.embedder.seen()
	db.MustExec(`UPDATE docs SET body = 'at rest ' || id`)
	db.MustExec(`DELETE FROM docs WHERE id = 1`)
	r.settle()
	if diff := cmp.Diff(sent, r.embedder.seen()); diff != "" {
		t.Errorf("texts were sent while all was switched off (-before +after):\n%s", diff)
	}
	if n := r.count(`SELECT count(*) FROM embedsidecar.task`); n == 0 {
		t.Error("nothing was queued while all was switched off")
	}
	db.MustExec(`UPDATE embedsidecar.installation SET enabled = true`)
	db.MustExec(`UPDATE embedsidecar.pipeline SET enabled = true`)
	r.settle()
	r.verify()
}
