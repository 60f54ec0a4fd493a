package sidecar_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// writer is a session of an application that may change docs and, if allowed, give hints.
func newWriter(t *testing.T, db *testenv.Database, allowed bool) *pgx.Conn {
	t.Helper()
	role := db.Role("")
	db.MustExec(`GRANT SELECT, INSERT, UPDATE, DELETE ON docs TO ` + role)
	db.MustExec(`GRANT USAGE ON SCHEMA embedsidecar TO ` + role)
	if allowed {
		db.MustExec(`GRANT EXECUTE ON FUNCTION embedsidecar.hint TO ` + role)
	}
	conn, err := pgx.Connect(t.Context(), slowly(db.URL(role)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// hinted is what is known of a row: its text, the text that its vector is to be of, and whether its writer said that it
// needs no new vector.
type hinted struct {
	text, vector string
	skipped      bool
}

// hints is a random history of transactions with hints, and what is to come of it.
type hints struct {
	t    *testing.T
	conn *pgx.Conn
	rand *rand.Rand
	rows map[int]hinted
	n    int
}

func (h *hints) exec(sql string, args ...any) {
	h.t.Helper()
	if _, err := h.conn.Exec(h.t.Context(), sql, args...); err != nil {
		h.t.Fatalf("%s: %v", sql, err)
	}
}

// change changes a row, as one that is skipped or not.
func (h *hints) change(skip bool) {
	id := h.rand.IntN(12)
	before, there := h.rows[id]
	h.n++
	text := fmt.Sprintf("text %d %s", h.n, strings.Repeat("long ", h.rand.IntN(2)*1000))
	switch {
	case there && h.rand.IntN(6) == 0:
		h.exec(`DELETE FROM docs WHERE id = $1`, id)
		delete(h.rows, id)
		return
	case !there:
		h.exec(`INSERT INTO docs (id, body) VALUES ($1, $2)`, id, text)
	case h.rand.IntN(4) == 0: // not what is embedded: it changes nothing of what is known
		h.exec(`UPDATE docs SET other = $2 WHERE id = $1`, id, h.n)
		return
	default:
		h.exec(`UPDATE docs SET body = $2 WHERE id = $1`, id, text)
	}
	after := hinted{text: text, vector: text}
	if skip {
		after.vector, after.skipped = before.vector, true
	}
	h.rows[id] = after
}

// transaction does one transaction.
func (h *hints) transaction() {
	before := maps.Clone(h.rows)
	h.exec(`BEGIN`)
	word := []string{"", "", "urgent", "low", "skip", "skip"}[h.rand.IntN(6)]
	if word != "" {
		h.exec(`SELECT embedsidecar.hint($1)`, word)
	}
	if h.rand.IntN(3) == 0 { // what is rolled back was never said
		h.exec(`SAVEPOINT a`)
		saved := maps.Clone(h.rows)
		h.exec(`SELECT embedsidecar.hint($1)`, []string{"urgent", "skip"}[h.rand.IntN(2)])
		h.change(false)
		h.rows = saved
		h.exec(`ROLLBACK TO a`)
	}
	if h.rand.IntN(3) == 0 {
		h.exec(`SAVEPOINT b`)
		h.change(word == "skip")
		h.exec(`RELEASE b`)
	} else {
		h.change(word == "skip")
	}
	if h.rand.IntN(8) == 0 {
		h.exec(`ROLLBACK`)
		h.rows = before
		return
	}
	h.exec(`COMMIT`)
}

// TestProperty_ASkippedRowKeepsItsVectorUntilItChanges: over random histories of transactions with hints, savepoints,
// gaps and comparisons of every row, each row has the vector of its text, or the one that it had when its writer said
// that the text needs none; such a text is never embedded, and no verification misses it.
func TestProperty_ASkippedRowKeepsItsVectorUntilItChanges(t *testing.T) {
	t.Parallel()
	bothDestinations(t, func(t *testing.T, spec func(table string, columns ...string) pipeline.Spec) {
		t.Helper()
		db := testenv.DB(t)
		db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text, other bigint)`)
		r := newRig(t, db, spec("docs", "body"))
		r.options = func(o *sidecar.Options) { o.NoDirect = false }
		_, stop := r.start()
		r.settle()
		h := &hints{t: t, conn: newWriter(t, db, true), rand: rand.New(rand.NewPCG(1, 2)), rows: map[int]hinted{}}
		for step := range 150 {
			h.transaction()
			r.settle()
			switch step % 30 {
			case 10: // a gap: every row is compared
				stop()
				db.MustExecSuper(`UPDATE embedsidecar.lsn_checkpoint SET lsn = consistent_point`)
				_, stop = r.start()
				r.settle()
			case 20:
				db.MustExec(`SELECT embedsidecar.backfill('docs')`)
				r.settle()
			}
			h.check(r)
			if step%50 == 49 {
				h.verify(r)
			}
		}
		h.requeue(r)
	})
}

// check compares what is stored with what is to be.
func (h *hints) check(r *rig) {
	h.t.Helper()
	for id, row := range h.rows {
		state := testenv.Value[string](r.db, `SELECT coalesce((SELECT state FROM embedsidecar.row_state WHERE row_key = $1), '')`,
			fmt.Sprint(id))
		want := "embedded"
		if row.skipped {
			want = "skipped"
			if r.embedder.sent(row.text) > 0 {
				h.t.Fatalf("row %d: its text was embedded though its writer said that it needs no vector", id)
			}
		}
		if state != want {
			h.t.Fatalf("row %d is %s, want %s", id, state, want)
		}
	}
}

// verify holds what a verification says against what is to be.
func (h *hints) verify(r *rig) {
	h.t.Helper()
	skipped := int64(0)
	for _, row := range h.rows {
		if row.skipped {
			skipped++
		}
	}
	if found := r.reports()[0]; !found.OK() || found.Skipped != skipped || found.Covered != int64(len(h.rows))-skipped {
		h.t.Fatalf("%+v, want %d rows skipped of %d", found, skipped, len(h.rows))
	}
}

// requeue has every row embedded after all.
func (h *hints) requeue(r *rig) {
	h.t.Helper()
	keys := []string{}
	for _, id := range slices.Sorted(maps.Keys(h.rows)) {
		keys = append(keys, fmt.Sprint(id))
		h.rows[id] = hinted{text: h.rows[id].text, vector: h.rows[id].text}
	}
	r.db.MustExec(`SELECT embedsidecar.requeue('docs', $1)`, keys)
	r.settle()
	h.check(r)
	h.verify(r)
}

// TestHints_LanesAreThoseOfTheTransaction: whatever came before or after the hint, and no other transaction's. What is
// rolled back to a savepoint was never said. A large transaction is bulk work whatever is said of it.
func TestHints_LanesAreThoseOfTheTransaction(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	r := newRig(t, db, intoTable("docs", "body"))
	r.start()
	r.settle()
	db.MustExec(`SELECT embedsidecar.pause('docs')`)
	h := &hints{t: t, conn: newWriter(t, db, true)}
	for _, sql := range []string{
		`INSERT INTO docs VALUES (1, 'plain')`,
		`BEGIN; INSERT INTO docs VALUES (2, 'a'); SELECT embedsidecar.hint('urgent'); INSERT INTO docs VALUES (3, 'a'); COMMIT`,
		`BEGIN; SELECT embedsidecar.hint('low'); INSERT INTO docs VALUES (4, 'a'); COMMIT`,
		`BEGIN; INSERT INTO docs VALUES (5, 'a'); SAVEPOINT s; SELECT embedsidecar.hint('low'); ROLLBACK TO s; COMMIT`,
		`BEGIN; SELECT embedsidecar.hint('urgent'); SELECT embedsidecar.hint('low'); INSERT INTO docs VALUES (6, 'a'); COMMIT`,
		`BEGIN; SELECT embedsidecar.hint('urgent');
			INSERT INTO docs SELECT i, 'a' FROM generate_series(100, 10200) AS i; COMMIT`,
		`UPDATE docs SET body = 'b' WHERE id = 101`,
	} {
		h.exec(sql)
	}
	lanes := func() []string {
		return testenv.Values[string](db, `SELECT row_key || ' ' || lane FROM embedsidecar.task
			WHERE row_key::int < 100 ORDER BY 1`)
	}
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		return r.count(`SELECT count(*) FROM embedsidecar.task`) == 10107, fmt.Sprint(lanes())
	})
	if got, want := lanes(), []string{"1 1", "2 3", "3 3", "4 0", "5 1", "6 0"}; !slices.Equal(got, want) {
		t.Errorf("lanes %q, want %q", got, want)
	}
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		bulk := testenv.Values[string](db, `SELECT lane || ' ' || count(*) FROM embedsidecar.task
			WHERE row_key::int >= 100 GROUP BY lane ORDER BY 1`)
		return slices.Equal(bulk, []string{"0 10100", "1 1"}), fmt.Sprintf("%q, want an edit that overtakes", bulk)
	})
}

// TestP1_ASkipEndsWithTheLastHintThatIsRead: of each transaction 64 hints are read. A skip must not go on over the
// changes after the hint that would have ended it.
func TestP1_ASkipEndsWithTheLastHintThatIsRead(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	db.MustExec(`INSERT INTO docs SELECT i, 'text ' || i FROM generate_series(1, 80) AS i`)
	r := newRig(t, db, intoTable("docs", "body"))
	r.start()
	r.settle()
	h := &hints{t: t, conn: newWriter(t, db, true)}
	h.exec(`BEGIN`)
	for i := 1; i <= 80; i++ {
		h.exec(`SELECT embedsidecar.hint($1)`, []string{"skip", "low"}[i%2])
		h.exec(`UPDATE docs SET body = 'another ' || id WHERE id = $1`, i)
	}
	h.exec(`COMMIT`)
	r.settle()
	stale := `SELECT count(*) FROM docs AS d JOIN docs_embedding AS e USING (id)
		WHERE e.text_hash <> sha256(convert_to(d.body, 'UTF8')) AND `
	if n := r.count(stale + `id % 2 = 1`); n > 0 {
		t.Errorf("%d rows without a skip have the vector of their text of before", n)
	}
	if n := r.count(stale + `id % 2 = 0`); n != 32 {
		t.Errorf("%d rows were skipped, want those of the first 64 hints", n)
	}
	r.verify()
}

// TestP1_ASkipCoversNoChangeThatWasMissed: its writer speaks of his own change. While an earlier one may have been
// missed, the row is embedded.
func TestP1_ASkipCoversNoChangeThatWasMissed(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	db.MustExec(`INSERT INTO docs VALUES (1, 'first')`)
	r := newRig(t, db, intoTable("docs", "body"))
	_, stop := r.start()
	r.settle()
	stop()
	db.MustExec(`SELECT embedsidecar.pause('docs')`)
	db.MustExec(`UPDATE docs SET body = 'second' WHERE id = 1`)
	db.MustExecSuper(`SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())`, r.slot)
	s, _ := r.start()
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		return s.Stream() != nil && s.Stream().Gaps.Load() == 1 && s.Stream().Streaming.Load(), "the gap is not found"
	})
	h := &hints{t: t, conn: newWriter(t, db, true)}
	h.exec(`BEGIN`)
	h.exec(`SELECT embedsidecar.hint('skip')`)
	h.exec(`UPDATE docs SET body = 'third' WHERE id = 1`)
	h.exec(`COMMIT`)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		return r.count(`SELECT count(*) FROM embedsidecar.task`) == 1, "the change is not queued"
	})
	db.MustExec(`SELECT embedsidecar.resume('docs')`)
	r.settle()
	if n := r.embedder.sent("third"); n != 1 {
		t.Errorf("the row has the vector of its first text: embedded %d times", n)
	}
	r.verify()
}

// TestTrust_HintsOfWhoMayNotAreIgnored: without the grant the function is refused, and what somebody writes into the
// WAL himself, also a hint of another transaction that he has read, changes nothing, is counted and told.
func TestTrust_HintsOfWhoMayNotAreIgnored(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	r := newRig(t, db, intoTable("docs", "body"))
	s, stop := r.start()
	r.settle()
	h := &hints{t: t, conn: newWriter(t, db, false)}
	for _, word := range []string{"urgent", "skip"} {
		if _, err := h.conn.Exec(t.Context(), `SELECT embedsidecar.hint($1)`, word); err == nil {
			t.Errorf("a role that may not has said %q", word)
		}
	}
	key := testenv.Value[string](db, `SELECT encode(embedsidecar.sign('embedsidecar.hint', int8send(1) || 's'::bytea), 'hex')`)
	for i, content := range []string{
		`decode(repeat('00', 42), 'hex')`, `'\x01'::bytea || decode(repeat('ab', 32), 'hex') || int8send(1) || 's'::bytea`,
		`'\x01'::bytea || decode('` + key + `', 'hex') || int8send(1) || 's'::bytea`, `'skip'::bytea`,
	} {
		h.exec(`BEGIN`)
		h.exec(`SELECT pg_logical_emit_message(true, 'embedsidecar.hint', ` + content + `) FROM generate_series(1, 1000)`)
		h.exec(`INSERT INTO docs VALUES ($1, 'text ' || $1::bigint)`, i)
		h.exec(`COMMIT`)
	}
	r.settle()
	if n := r.embedder.sent(); n != 4 {
		t.Errorf("%d texts were embedded, want all 4", n)
	}
	r.verify()
	if n := s.Stream().Forged.Load(); n != 3*64 || s.Stream().Skips.Load() != 0 {
		t.Errorf("%d hints are counted as ignored, want 64 of each transaction", n)
	}
	stop()
	if n := r.count(`SELECT hints_ignored FROM embedsidecar.slots`); n != 3*64 {
		t.Errorf("%d hints are told of", n)
	}
	db.MustExec(`DO $$ BEGIN PERFORM embedsidecar.hint(NULL); RAISE 'none'; EXCEPTION WHEN invalid_parameter_value THEN END $$`)
	db.MustExec(`DO $$ BEGIN PERFORM embedsidecar.hint('high'); RAISE 'none'; EXCEPTION WHEN invalid_parameter_value THEN END $$`)
}
