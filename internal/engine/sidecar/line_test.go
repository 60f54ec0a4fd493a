package sidecar_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// lined is a pipeline that nobody works, whose statements for changes that are worked at once are tried.
type lined struct {
	*rig
	t     *testing.T
	table *rows.Table
	line  database.DB

	checkpoint string // when the stream had enqueued anything, as rows were last screened
}

func newLined(t *testing.T, spec pipeline.Spec) *lined {
	t.Helper()
	db := testenv.DB(t)
	db.MustExec(docs)
	r := newRig(t, db, spec)
	pool := connect(t, r.url, 2)
	line := database.NewLine(pool, 0) // what waits for a lock here does so on purpose, and as long as the machine takes
	conn, err := line.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		line.Failed(t.Context(), nil)
		line.Close(t.Context())
	})
	if _, err := conn.Exec(t.Context(), `SET lock_timeout = 0`); err != nil {
		t.Fatal(err)
	}
	db.MustExecSuper(`UPDATE embedsidecar.lsn_checkpoint SET epoch = 5,
		timeline = ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::integer`)
	return &lined{rig: r, t: t, table: rows.New(&r.pipelines[0], pool, rows.Options{}), line: conn}
}

// screen returns the verdicts on changes of rows, by transactions that everybody sees unless one is given.
func (l *lined) screen(xid int64, unchanged []byte, keys ...string) (verdicts string, found []rows.Row) {
	l.t.Helper()
	xids, patterns := make([]int64, len(keys)), make([][]byte, len(keys))
	for i := range keys {
		xids[i], patterns[i] = xid, unchanged
	}
	s, err := l.table.Screen(l.t.Context(), l.line, keys, xids, patterns, 1<<20)
	if err != nil {
		l.t.Fatal(err)
	}
	l.checkpoint = s.Checkpoint
	if s.Hidden {
		return "hidden " + strings.Join(s.Verdicts, " "), s.Rows
	}
	return strings.Join(s.Verdicts, " "), s.Rows
}

// write writes vectors for rows as they were looked at, and says what came of it.
func (l *lined) write(epoch int64, found []rows.Row) string {
	l.t.Helper()
	entries, writes := make([]rows.Entry, len(found)), make([]rows.Write, len(found))
	for i := range found {
		r := &found[i]
		writes[i] = rows.Write{Key: r.Key, TextHash: r.TextHash[:], Vector: []float32{1, 2, 3, 4, 5, 6, 7, 8}}
		hash := l.table.VectorHash(&writes[i])
		entries[i] = rows.Entry{Key: r.Key, Source: r.Source, Text: r.TextHash[:], Vector: hash[:], LSN: "0/1"}
		if r.Ledger {
			entries[i].Version = &r.LedgerVersion
		}
	}
	right := rows.Right{Slot: l.slot, Epoch: epoch, Checkpoint: l.checkpoint}
	held, passed, err := l.table.WriteAtOnce(l.t.Context(), l.line, right, writes, entries)
	if err != nil {
		l.t.Fatal(err)
	}
	return fmt.Sprintf("held %t, %d passed", held, len(passed))
}

func (l *lined) want(what, got, want string) {
	l.t.Helper()
	if got != want {
		l.t.Errorf("%s: %s, want %s", what, got, want)
	}
}

// Without a task goes what everybody sees, of rows that no task names.
func TestLine_ScreensWhatItLooksAt(t *testing.T) {
	t.Parallel()
	l := newLined(t, intoTable("docs", "body"))
	l.db.MustExec(`INSERT INTO docs VALUES (1, 'one'), (2, 'two'), (3, 'two')`)
	verdicts, found := l.screen(3, nil, "1", "2", "4")
	l.want("rows and none", verdicts, "now now now")
	if !found[0].Found || found[0].Text != "one" || !found[0].New || found[2].Found {
		t.Errorf("found %+v", found)
	}
	l.want("written", l.write(5, found[:2]), "held true, 2 passed")
	if _, found = l.screen(3, nil, "3"); found[0].New {
		t.Error("a text that another row has is taken for new")
	}
	_, found = l.screen(3, nil, "1")
	same := append(append([]byte{}, found[0].LedgerSource...), found[0].LedgerVector...)
	for i, b := range same { // LIKE
		if b == '%' || b == '_' || b == '\\' {
			same[i] = '_'
		}
	}
	verdicts, found = l.screen(3, same, "1", "2")
	l.want("nothing changed in one", verdicts, "drop now")
	if found[0].Found || !found[1].Found {
		t.Error("a row was looked at though nothing had changed")
	}
	l.db.MustExecSuper(`INSERT INTO embedsidecar.task (pipeline_id, row_key, lane, xid, first_lsn, last_lsn, committed_at)
		SELECT pipeline_id, '2', 1, '3', '0/1', '0/1', now() FROM embedsidecar.pipeline`)
	verdicts, _ = l.screen(3, nil, "1", "2")
	l.want("a row with a task", verdicts, "now task")
	l.db.MustExecSuper(`UPDATE embedsidecar.task SET state = 'failed'`)
	verdicts, _ = l.screen(3, nil, "1", "2")
	l.want("a row with a dead letter", verdicts, "now task")
	var written int64
	if err := l.db.Super().QueryRow(t.Context(), `SELECT xmin::text::bigint FROM embedsidecar.ledger WHERE row_key = '1'`).Scan(
		&written); err != nil {
		t.Fatal(err)
	}
	verdicts, _ = l.screen(written, same, "1")
	l.want("our own write-back", verdicts, "own")
	_, xid := l.db.Open()
	verdicts, _ = l.screen(int64(xid), same, "1")
	l.want("a commit that nobody sees yet", verdicts, "hidden task")
	for _, off := range []string{
		`embedsidecar.pipeline SET enabled = false`, `embedsidecar.installation SET enabled = false`,
		`embedsidecar.pipeline SET generation = generation + 1`,
	} {
		l.db.MustExecSuper(`UPDATE ` + off)
		verdicts, _ = l.screen(3, same, "1")
		l.want(off, verdicts, "task")
		l.db.MustExecSuper(`UPDATE ` + strings.Replace(off, "false", "true", 1))
	}
	l.db.MustExecSuper(`DELETE FROM embedsidecar.ledger; DELETE FROM embedsidecar.task; DELETE FROM embedsidecar.pipeline`)
	verdicts, _ = l.screen(3, same, "1")
	l.want("a pipeline that is gone", verdicts, "task")
}

// Nothing is worked at once while the pipeline or all are paused, or outside of hours that nobody has opened.
func TestLine_PauseAndHoursLeaveAllToTheQueue(t *testing.T) {
	t.Parallel()
	l := newLined(t, intoTable("docs", "body"))
	l.db.MustExec(`INSERT INTO docs VALUES (1, 'one')`)
	for n := range 16 {
		paused, off, closed, asked := n&1 != 0, n&2 != 0, n&4 != 0, n&8 != 0
		l.db.MustExecSuper(`UPDATE embedsidecar.installation SET enabled = $1`, !off)
		l.db.MustExecSuper(`UPDATE embedsidecar.pipeline SET enabled = $1,
			active_minutes = CASE WHEN $2 THEN '{}'::int4multirange END, active_zone = 'UTC',
			open_until = CASE WHEN $3 THEN now() + interval '1 h' END`, !paused, closed, asked)
		want := "task"
		if !paused && !off && (!closed || asked) {
			want = "now"
		}
		verdicts, _ := l.screen(3, nil, "1")
		l.want(fmt.Sprintf("paused %t, off %t, closed %t, asked %t", paused, off, closed, asked), verdicts, want)
	}
}

// P3: the statement that writes at once writes under the epoch of the slot, and only what nobody has written since.
func TestP3_WhatIsWrittenInOneStatementIsFenced(t *testing.T) {
	t.Parallel()
	l := newLined(t, intoTable("docs", "body"))
	l.db.MustExec(`INSERT INTO docs VALUES (1, 'one'), (2, 'two')`)
	_, none := l.screen(3, nil, "1", "2")
	l.want("of one before", l.write(4, none), "held false, 0 passed")
	if n := l.count(`SELECT count(*) FROM docs_embedding`) + l.count(`SELECT count(*) FROM embedsidecar.ledger`); n != 0 {
		t.Errorf("%d rows were written under an epoch that is over", n)
	}
	l.want("new", l.write(5, none[:1]), "held true, 1 passed")
	l.want("one of them is not new any more", l.write(5, none), "held true, 1 passed")
	_, found := l.screen(3, nil, "1", "2")
	l.want("as they were read", l.write(5, found), "held true, 2 passed")
	l.want("somebody was faster", l.write(5, found), "held true, 0 passed")
	if n := l.count(`SELECT count(*) FROM docs_embedding`); n != 2 {
		t.Errorf("%d vectors", n)
	}

	// Somebody takes the slot while the statement waits for the checkpoint's row: it is not held any more.
	_, found = l.screen(3, nil, "1")
	tx, err := l.db.Super().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), `UPDATE embedsidecar.lsn_checkpoint SET epoch = 6`); err != nil {
		t.Fatal(err)
	}
	ended := make(chan string, 1)
	go func() { defer close(ended); ended <- l.write(5, found) }()
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		select {
		case got := <-ended:
			t.Fatalf("it does not wait: %s", got)
		default:
		}
		var waits bool
		err := l.db.Super().QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waits) // owners see not all sessions
		return waits, fmt.Sprint("nobody is seen waiting: ", err)
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.want("taken meanwhile", <-ended, "held false, 0 passed")

	// Another table in the place of the embedding table is not written.
	l.db.MustExecSuper(`ALTER TABLE docs_embedding RENAME TO moved`)
	l.db.MustExecSuper(`CREATE TABLE docs_embedding (LIKE moved INCLUDING ALL)`)
	l.db.MustExecSuper(`GRANT ALL ON docs_embedding TO PUBLIC`)
	l.want("another table", l.write(6, found), "held false, 0 passed")
	if n := l.count(`SELECT count(*) FROM docs_embedding`); n != 0 {
		t.Error("another table was written")
	}
}

// P1: the stream gave a statement up, because the network or the server stood still, and made its changes tasks. A row
// was embedded, and its vector removed when it was deleted. The server gets the statement only now: it has the same
// epoch, and finds no entry, as when the rows were read.
func TestP1_AStatementThatWasGivenUpWritesNothingLater(t *testing.T) {
	t.Parallel()
	l := newLined(t, intoTable("docs", "body"))
	l.db.MustExec(`INSERT INTO docs VALUES (1, 'one'), (2, 'two')`)
	_, found := l.screen(3, nil, "1", "2")
	if _, err := queue.New(l.db.Super()).Enqueue(t.Context(), l.db.Super(), queue.Batch{
		Slot: l.slot, Epoch: 5, Since: 1,
		Changes: []queue.Change{{PipelineID: l.pipelines[0].ID, RowKey: "1", Lane: pipeline.Normal, XID: 3, LSN: 1}},
	}); err != nil {
		t.Fatal(err)
	}
	l.db.MustExec(`DELETE FROM docs WHERE id = 1`)
	l.db.MustExecSuper(`DELETE FROM embedsidecar.task`)
	l.want("given up", l.write(5, found), "held false, 0 passed")
	if n := l.count(`SELECT count(*) FROM docs_embedding`); n != 0 {
		t.Errorf("%d vectors, one of a row that is gone", n)
	}
	_, found = l.screen(3, nil, "2")
	l.want("the next one", l.write(5, found), "held true, 1 passed")
}

// P4: code of users' that runs beside what is worked at once is planned as ever.
func TestP4_CodeOfUsersPlansAsEverAtOnce(t *testing.T) {
	t.Parallel()
	const usual = `IF current_setting('enable_seqscan') = 'off' OR current_setting('plan_cache_mode') <> 'force_custom_plan'
		THEN RAISE 'planned in another way'; END IF;`
	spec := intoTable("docs")
	spec.Text = `public.looked(body)`
	db := testenv.DB(t)
	db.MustExec(docs)
	db.MustExec(`CREATE FUNCTION looked(t text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN ` + usual + ` RETURN t; END $$`)
	r := newRig(t, db, spec)
	r.options = unhurried
	db.MustExec(`ALTER TABLE docs_embedding ADD CHECK (public.looked(embedding::text) IS NOT NULL)`)
	s, _ := r.start()
	db.MustExec(`INSERT INTO docs VALUES (1, 'a text')`)
	r.settle()
	made := s.Stream().Made.Load()
	for id := range 5 {
		db.MustExec(`INSERT INTO docs VALUES ($1, 'text ' || $1::bigint)`, id+2)
		r.settle()
	}
	r.counted()
	r.verify()
	if made := s.Stream().Made.Load() - made; made != 0 || s.Stream().Direct.Load() < 5 {
		t.Errorf("%d tasks were made, %d changes worked at once", made, s.Stream().Direct.Load())
	}
}
