package sidecar_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/testenv"
)

func TestP2_AStandbyThatTakesOverKnowsPipelinesAddedMeanwhile(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	db.MustExec(`CREATE TABLE notes (id bigint PRIMARY KEY, body text)`)
	first := intoTable("docs", "body")
	r := newRig(t, db, first)
	streamer, stop := r.start()
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		return streamer.Stream() != nil && streamer.Stream().Streaming.Load(), "the first does not stream"
	})
	standby, _ := r.start()
	testenv.Eventually(t, waitTimeout, func() (bool, string) { return len(standby.States()) == 1, "the second is not up" })
	r.init(first, intoTable("notes", "body"))
	for _, p := range r.pipelines {
		db.Grant(r.role, p)
	}
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		return len(streamer.States()) == 2,
			"the new pipeline is not seen"
	})
	r.settle()
	stop()
	testenv.Eventually(t, waitTimeout, func() (bool, string) { return standby.Stream().Streaming.Load(), "no takeover" })
	db.MustExec(`INSERT INTO notes VALUES (1, 'after the takeover')`)
	r.settle()
	r.verify()
	if n := r.count(`SELECT count(*) FROM notes_embedding`); n != 1 {
		t.Errorf("%d vectors for the new pipeline's row, want 1", n)
	}
}

func TestP1_ADeadLetterGoesWithItsRow(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, 5) AS i`)
	r := newRig(t, db, intoTable("docs", "body"))
	r.options = func(o *sidecar.Options) { o.Retry.MaxAttempts = 1 }
	r.start()
	r.settle()
	r.embedder.hook(func(_ context.Context, texts []string) error {
		if strings.Contains(strings.Join(texts, " "), "poison") {
			return &embed.Error{Class: embed.Data, Code: "wrong_count", Err: errors.New("one too few")}
		}
		return nil
	})
	db.MustExec(`UPDATE docs SET body = 'poison' WHERE id = 3`)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		return r.count(`SELECT count(*) FROM embedsidecar.task WHERE state = 'failed'`) == 1, "no dead letter"
	})
	db.MustExec(`TRUNCATE docs`)
	r.settle()
	r.verify()
	if n := r.count(`SELECT count(*) FROM embedsidecar.task`); n != 0 {
		t.Errorf("%d tasks of rows that are gone", n)
	}
}

// newPartitionedRig has a pipeline over a table with one partition, which partitionAway takes out, changes and puts
// back.
func newPartitionedRig(t *testing.T) *rig {
	t.Helper()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text) PARTITION BY RANGE (id)`)
	db.MustExec(`CREATE TABLE docs_a PARTITION OF docs FOR VALUES FROM (0) TO (100)`)
	db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, 20) AS i`)
	return newRig(t, db, intoTable("docs", "body"))
}

const partitionAway = `BEGIN; ALTER TABLE docs DETACH PARTITION docs_a; UPDATE docs_a SET body = body || '!'; INSERT INTO docs_a VALUES (50, 'new');
	ALTER TABLE docs ATTACH PARTITION docs_a FOR VALUES FROM (0) TO (100); COMMIT`

func TestP2_APartitionThatWasAwayForAWhile(t *testing.T) {
	t.Parallel()
	r := newPartitionedRig(t)
	s, _ := r.start()
	r.settle()
	scans := s.Stream().CatalogueScans.Load()
	r.db.MustExec(partitionAway)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		return s.Stream().CatalogueScans.Load() > scans,
			"it was not noticed"
	})
	r.settle()
	r.verify()
}

// TestP2_APartitionHasAnotherIdentity: it is the partition's own, and decides what its updates and deletes tell.
func TestP2_APartitionHasAnotherIdentity(t *testing.T) {
	t.Parallel()
	r := newPartitionedRig(t)
	r.db.MustExec(`ALTER TABLE docs_a ALTER body SET NOT NULL; CREATE UNIQUE INDEX docs_other ON docs_a (body)`)
	s, _ := r.start()
	r.settle()
	for _, identity := range []string{"FULL", "USING INDEX docs_other", "NOTHING", "DEFAULT"} {
		r.noticed()
		scans := s.Stream().CatalogueScans.Load()
		r.db.MustExec(`ALTER TABLE docs_a REPLICA IDENTITY ` + identity)
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			return s.Stream().CatalogueScans.Load() > scans, "not noticed: " + identity
		})
	}
	r.settle()
	r.verify()
}

func TestP2_APartitionThatWasAwayBeforeAnybodyStreamed(t *testing.T) {
	t.Parallel()
	r := newPartitionedRig(t)
	letGo := r.hold()
	s, _ := r.start()
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		return r.count(`SELECT count(*) FROM embedsidecar.scan WHERE phase <> 'done'`) == 0 &&
			r.count(`SELECT count(*) FROM docs_embedding`) == 20, "no backfill"
	})
	r.db.MustExec(partitionAway)
	letGo()
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		return s.Stream().CatalogueScans.Load() > 0,
			"it was not noticed"
	})
	r.settle()
	r.verify()
}

func TestP2_APublicationThatSendsLess(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ less, all string }{
		"kinds":  {`SET (publish = 'insert')`, `SET (publish = 'insert, update, delete, truncate')`},
		"filter": {`SET TABLE docs WHERE (id > 3)`, `SET TABLE docs`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testenv.DB(t)
			if name == "filter" && db.Server.Major() < 15 {
				return // publications have no filters there
			}
			db.MustExec(docs)
			db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, 5) AS i`)
			r := newRig(t, db, intoTable("docs", "body"))
			r.start()
			r.settle()
			// What the pipeline's row says, and what each look at the catalogue finds, which would take it back.
			status := func(want string, published bool) {
				t.Helper()
				testenv.Eventually(t, waitTimeout, func() (bool, string) {
					got := testenv.Value[string](db, `SELECT status FROM embedsidecar.pipeline`)
					return got == want, got
				})
				sql, args := r.catalogue()
				if got := testenv.Value[bool](db, `SELECT published FROM (`+sql+`) AS c`, args...); got != published {
					t.Errorf("a look finds the table published: %t, want %t", got, published)
				}
			}
			db.MustExec(`ALTER PUBLICATION ` + db.Name + `_pub ` + c.less)
			db.MustExec(`UPDATE docs SET body = body || '!'`)
			status("unpublished", false)
			db.MustExec(`ALTER PUBLICATION ` + db.Name + `_pub ` + c.all)
			status("active", true)
			r.settle()
			r.verify()
		})
	}
}

func TestP5_OneRowsRefusalParksNobody(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text, embedding vector(8))`)
	db.MustExec(`CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN IF new.id = 7 THEN RAISE insufficient_privilege USING MESSAGE = 'locked: ' || new.body; END IF; RETURN new; END $$`)
	db.MustExec(`CREATE TRIGGER keep BEFORE UPDATE ON docs FOR EACH ROW EXECUTE FUNCTION keep()`)
	db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, 20) AS i`)
	r := newRig(t, db, column("docs", "body"))
	r.options = func(o *sidecar.Options) { o.Retry.MaxAttempts = 1 }
	r.start()
	r.settle()
	if n := r.count(`SELECT count(*) FROM docs WHERE embedding IS NOT NULL`); n != 19 {
		t.Errorf("%d of 19 innocent rows have a vector", n)
	}
	if got := testenv.Values[string](db,
		`SELECT row_key || ' ' || error_code || ' ' || error_message FROM embedsidecar.task`); fmt.Sprint(
		got) != "[7 write_refused SQLSTATE 42501]" {
		t.Errorf("tasks %v", got)
	}
}

func TestP1_AnOldDefinitionDoesNotEatTheScanOfANewOne(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, 5) AS i`)
	spec := intoTable("docs", "body")
	r := newRig(t, db, spec)
	r.options = func(o *sidecar.Options) { o.NoStream = true } // it works the queue and is told of nothing
	_, stop := r.start()
	r.options = nil
	r.start()
	r.settle()
	spec.Columns, spec.Text = nil, "upper(body)"
	r.init(spec)
	r.settle()
	stop()
	r.settle()
	r.verify()
	if n := r.embedder.sent("BODY 1"); n == 0 {
		t.Error("the new text was never embedded")
	}
}

func TestP1_AKeySpelledAnewWhoseTextIsGone(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id numeric PRIMARY KEY, body text)`)
	db.MustExec(`INSERT INTO docs VALUES (1.0, 'one'), (2.0, 'two'), (3.0, 'three')`)
	r := newRig(t, db, intoTable("docs", "body"))
	r.start()
	r.settle()
	db.MustExec(`UPDATE docs SET id = 1.00, body = '' WHERE id = 1`)
	db.MustExec(`UPDATE docs SET id = 2.00 WHERE id = 2`)
	db.MustExec(`UPDATE docs SET id = 3.00 WHERE id = 3`)
	r.settle()
	db.MustExec(`DELETE FROM docs WHERE id = 3`)
	r.settle()
	r.verify()
	if got := testenv.Values[string](db, `SELECT id::text FROM docs_embedding`); fmt.Sprint(got) != "[2.00]" {
		t.Errorf("vectors of %v, want only that of 2.00", got)
	}
}

// The vector stays where the old spelling left it, for the new one to write over: also where the row goes before that.
func TestP1_AKeySpelledAnewWhoseRowGoesBeforeItsVector(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id numeric PRIMARY KEY, body text)`)
	db.MustExec(`INSERT INTO docs VALUES (1.0, 'one'), (2.0, 'two')`)
	r := newRig(t, db, intoTable("docs", "body"))
	r.start()
	r.settle()
	db.MustExec(`UPDATE embedsidecar.installation SET enabled = false`)
	db.MustExec(`UPDATE docs SET id = 1.00 WHERE id = 1`)
	r.has(2, `SELECT count(*) FROM embedsidecar.task`)
	// The old spelling was looked at, and is forgotten; the new one was not.
	db.MustExec(`DELETE FROM embedsidecar.task WHERE row_key = '1.0'`)
	db.MustExec(`DELETE FROM embedsidecar.ledger WHERE row_key = '1.0'`)
	db.MustExec(`DELETE FROM docs WHERE id = 1`)
	db.MustExec(`UPDATE embedsidecar.installation SET enabled = true`)
	r.settle()
	r.verify()
	if got := testenv.Values[string](db, `SELECT id::text FROM docs_embedding`); fmt.Sprint(got) != "[2.0]" {
		t.Errorf("vectors of %v, want only that of 2.0", got)
	}
}

// TestP2_AlteredAndAlteredBack: between two looks nothing tells of it but the version of the catalogue's row.
func TestP2_AlteredAndAlteredBack(t *testing.T) {
	t.Parallel()
	publish := func(what string) string { return `ALTER PUBLICATION {pub} SET (publish = '` + what + `')` }
	meanwhile := []string{`UPDATE docs SET body = body || '!' WHERE id < 5`, `DELETE FROM docs WHERE id > 45`}
	for name, story := range map[string][]string{
		"kinds of changes": slices.Concat([]string{publish("insert")}, meanwhile,
			[]string{publish("insert, update, delete, truncate")}),
		"the table": slices.Concat([]string{`ALTER PUBLICATION {pub} DROP TABLE docs`}, meanwhile,
			[]string{`ALTER PUBLICATION {pub} ADD TABLE docs`}),
		"a label": {
			`ALTER TYPE mood RENAME VALUE 'glad' TO 'sad'`, `UPDATE docs SET body = 'x' WHERE id = 5`, `embedded`,
			`ALTER TYPE mood RENAME VALUE 'sad' TO 'glad'`,
		},
	} {
		for _, running := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, running %t", name, running), func(t *testing.T) {
				t.Parallel()
				db := testenv.DB(t)
				db.MustExec(`CREATE TYPE mood AS ENUM ('glad')`)
				db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text, mood mood DEFAULT 'glad')`)
				db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, 50) AS i`)
				r := newRig(t, db, intoTable("docs", "body", "mood"))
				r.options = func(o *sidecar.Options) { o.Heartbeat = time.Hour }
				_, stop := r.start()
				r.settle()
				if !running {
					stop()
				}
				for _, sql := range story {
					switch {
					case sql != "embedded":
						db.MustExec(strings.ReplaceAll(sql, "{pub}", db.Name+"_pub"))
					case running:
						r.has(2, `SELECT count(*) FROM embedsidecar.history WHERE row_key = '5'`)
					}
				}
				if !running {
					r.start()
				}
				r.settle()
				r.verify()
			})
		}
	}
}
