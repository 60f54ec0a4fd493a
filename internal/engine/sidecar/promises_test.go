package sidecar_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
)

func TestP1_RowsConvergeWhateverHappensToThem(t *testing.T) {
	t.Parallel()
	bothDestinations(t, func(t *testing.T, spec func(string, ...string) pipeline.Spec) {
		t.Helper()
		db := testenv.DB(t)
		db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, title text, body text, hits int DEFAULT 0)`)
		db.MustExec(`INSERT INTO docs SELECT i, 'title ' || i, 'body ' || i FROM generate_series(1, 500) AS i`)
		r := newRig(t, db, spec("docs", "title", "body"))
		r.start()
		r.settle()
		r.verify()
		for _, sql := range []string{
			`UPDATE docs SET body = body || '!' WHERE id <= 100`,
			`UPDATE docs SET hits = hits + 1`,
			`UPDATE docs SET title = NULL, body = '' WHERE id BETWEEN 101 AND 110`,
			`UPDATE docs SET title = '  ', body = E'\t\n' WHERE id BETWEEN 111 AND 120`,
			`DELETE FROM docs WHERE id BETWEEN 121 AND 140`,
			`UPDATE docs SET id = id + 10000 WHERE id BETWEEN 141 AND 160`,
			`BEGIN; DELETE FROM docs WHERE id = 200; INSERT INTO docs VALUES (200, 'again', 'here'); COMMIT`,
			`BEGIN; INSERT INTO docs VALUES (900, 'a', 'b'); SAVEPOINT s; UPDATE docs SET body = 'lost' WHERE id = 900; ROLLBACK TO s; COMMIT`,
			`BEGIN; INSERT INTO docs VALUES (901, 'never', 'there'); ROLLBACK`,
		} {
			for statement := range strings.SplitSeq(sql, ";;") {
				db.MustExec(statement)
			}
		}
		r.settle()
		r.verify()
		db.MustExec(`BEGIN; TRUNCATE docs; INSERT INTO docs SELECT i, 'new ' || i, '' FROM generate_series(1, 50) AS i; COMMIT`)
		r.settle()
		r.verify()
		if got := r.count(`SELECT count(*) FROM embedsidecar.ledger`); got != 50 {
			t.Errorf("%d ledger entries for 50 rows", got)
		}
	})
}

func TestP1_RemovedVectorsAreMadeAgain(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text)`)
	db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, 50) AS i`)
	r := newRig(t, db, column("docs", "body"))
	r.start()
	r.settle()
	db.MustExec(`UPDATE docs SET embedding = NULL WHERE id <= 20`)
	r.settle()
	r.verify()
}

func TestP3_ALateWorkerIsFenced(t *testing.T) {
	t.Parallel()
	bothDestinations(t, func(t *testing.T, spec func(string, ...string) pipeline.Spec) {
		t.Helper()
		db := testenv.DB(t)
		db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text)`)
		r := newRig(t, db, spec("docs", "body"))
		r.options = func(o *sidecar.Options) { o.Loops = 2 }
		s, _ := r.start()
		r.settle()
		asleep, wake := make(chan struct{}), make(chan struct{})
		var once sync.Once
		r.embedder.hook(func(_ context.Context, texts []string) error {
			if texts[0] == "old" {
				once.Do(func() { close(asleep) })
				<-wake
			}
			return nil
		})
		db.MustExec(`INSERT INTO docs VALUES (1, 'old'), (2, 'beside it')`)
		<-asleep
		// The worker sleeps; its lease is taken from it, as if its heartbeats were lost, and the row changes.
		db.MustExecSuper(`UPDATE embedsidecar.lease SET leased_until = now() - interval '1 s', token = -1`)
		db.MustExec(`UPDATE docs SET body = 'new'`)
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			n := r.embedder.sent("new")
			return n > 0, fmt.Sprintf("sent new %d times", n)
		})
		r.settle()
		close(wake)
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			states := s.States()
			return len(states) == 1 && states[0].Worker != nil && states[0].Worker.Lost.Load() > 0,
				"the late write was not fenced"
		})
		if w := s.States()[0].Worker; w.Lost.Load() != 1 || w.Fenced.Load() < 2 || w.Crashed.Load() != 0 {
			t.Errorf("%d leases lost with %d rows, %d rows held by an embedder that died: want one with two, and none",
				w.Lost.Load(), w.Fenced.Load(), w.Crashed.Load())
		}
		r.verify()
	})
}

func TestP4_AnEmbeddingTableNeverMakesTheUserWait(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text)`)
	r := newRig(t, db, intoTable("docs", "body"))
	r.start()
	r.settle()
	// While we are in the middle of our work on rows: should a writer wait for that, it would do so for ever.
	working, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r.embedder.hook(func(ctx context.Context, _ []string) error {
		once.Do(func() { close(working) })
		select {
		case <-goOn:
		case <-ctx.Done():
		}
		return nil
	})
	db.MustExec(`INSERT INTO docs VALUES (2000, 'in work')`)
	<-working
	err := pgx.BeginTxFunc(t.Context(), db.Pool, pgx.TxOptions{IsoLevel: pgx.Serializable}, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `SET LOCAL lock_timeout = '1min'`)
		for _, sql := range []string{
			`UPDATE docs SET body = body || '.' WHERE id = 2000`,
			`LOCK TABLE docs IN ACCESS EXCLUSIVE MODE`,
		} {
			if err == nil {
				_, err = tx.Exec(t.Context(), sql)
			}
		}
		return err
	})
	close(goOn)
	if err != nil {
		t.Fatal(err)
	}
	// A writer that holds everything it can for as long as it likes, and one that is serializable, both see no trace of
	// us.
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		`SET TRANSACTION ISOLATION LEVEL SERIALIZABLE`, `SET LOCAL lock_timeout = '1min'`,
		`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, 100) AS i`,
	} {
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	db.MustExec(`INSERT INTO docs VALUES (1000, 'other')`)
	r.settle()
	if _, err := tx.Exec(t.Context(), `UPDATE docs SET body = body || '.' WHERE id <= 100`); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.settle()
	r.verify()
}

func TestP4_ALockedRowWaitsForItsWriterAndNotTheOtherWayRound(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text)`)
	r := newRig(t, db, column("docs", "body"))
	s, _ := r.start()
	r.settle()
	db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, 100) AS i`)
	r.settle()
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT FROM docs WHERE id = 7 FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	db.MustExec(`UPDATE docs SET body = body || '!' WHERE id <> 7`)
	db.MustExec(`UPDATE embedsidecar.pipeline SET enabled = enabled`)
	r.settle()
	if _, err := tx.Exec(t.Context(), `UPDATE docs SET body = 'mine' WHERE id = 7`); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.settle()
	r.verify()
	_ = s
}

func TestP5_APoisonedTextStaysAlone(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text)`)
	r := newRig(t, db, intoTable("docs", "body"))
	r.embedder.hook(func(_ context.Context, texts []string) error {
		for _, text := range texts {
			switch {
			case strings.Contains(text, "kills"):
				return &embed.Error{Class: embed.Crash, Code: "crashed", Err: errors.New("the embedder died")}
			case strings.Contains(text, "breaks"):
				return &embed.Error{Class: embed.Data, Code: "wrong_count", Err: errors.New("one too few")}
			}
		}
		return nil
	})
	db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, 300) AS i`)
	db.MustExec(`UPDATE docs SET body = 'it kills' WHERE id = 150`)
	db.MustExec(`UPDATE docs SET body = 'it breaks' WHERE id = 77`)
	r.options = func(o *sidecar.Options) { o.Retry.MaxAttempts = 2 }
	s, _ := r.start()
	r.settle()
	if w := s.States()[0].Worker; w.Crashed.Load() == 0 || w.Lost.Load() != 0 {
		t.Errorf("%d rows held by an embedder that died, %d leases lost: want some, and none", w.Crashed.Load(),
			w.Lost.Load())
	}
	if got := testenv.Values[string](db,
		`SELECT row_key FROM embedsidecar.task WHERE state = 'failed' ORDER BY row_key`); fmt.Sprint(got) != "[150 77]" {
		t.Errorf("dead letters %v, want 150 and 77", got)
	}
	found := r.reports()[0]
	if found.Covered != 298 || found.Missing != 2 {
		t.Errorf("%+v, want 298 covered and 2 missing", found)
	}
	// What cures a dead letter is a change of its row.
	db.MustExec(`UPDATE docs SET body = 'harmless ' || id WHERE id IN (77, 150)`)
	r.settle()
	r.verify()
}

func TestP6_WriteBacksMakeNoTask(t *testing.T) {
	t.Parallel()
	// More than a scan hands out before it pauses, and than the stream keeps in memory.
	rows := int64(testenv.FromEnvironment(t, "EMBEDSIDECAR_WRITE_BACKS", 6000))
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text)`)
	db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, $1::bigint) AS i`, rows)
	r := newRig(t, db, column("docs", "body"))
	s, _ := r.start()
	r.settle()
	if got := r.count(`SELECT count(*) FROM docs WHERE embedding IS NOT NULL`); got != rows {
		t.Fatalf("%d of %d rows have a vector", got, rows)
	}
	r.counted() // our own writes have come by now
	stats := s.Stream()
	if made, joined := stats.Made.Load(), stats.Joined.Load(); made+joined != 0 {
		t.Errorf("%d write-backs made %d tasks and joined %d", rows, made, joined)
	}
	if own, dropped := stats.OwnWrites.Load(), stats.Dropped.Load(); own != rows || dropped != 0 {
		t.Errorf("%d own writes are known and %d others dropped, of %d write-backs", own, dropped, rows)
	}
}

// A row that its user changes between our reading it and our writing to it makes one task, for the user's change.
func TestP6_ARowChangedWhileItIsEmbeddedMakesOneTask(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TYPE pair AS (a text, b text)`)
	db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, title text, body text, couple pair, code char(5))`)
	db.MustExec(`INSERT INTO docs VALUES (1, NULL, 'old', ROW(NULL, NULL), 'x')`)
	r := newRig(t, db, column("docs", "title", "body", "couple", "code"))
	s, _ := r.start()
	r.settle()
	embedding, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r.embedder.hook(func(_ context.Context, texts []string) error {
		if strings.Contains(texts[0], "new") {
			once.Do(func() { close(embedding) })
			<-goOn
		}
		return nil
	})
	db.MustExec(`UPDATE docs SET body = 'new'`)
	<-embedding
	db.MustExec(`UPDATE docs SET body = 'newest', title = '', code = NULL`)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		return r.count(`SELECT coalesce(max(gen), 0) FROM embedsidecar.task`) == 2, "the second change was not queued"
	})
	close(goOn)
	r.counted() // our own writes have come by now
	stats := s.Stream()
	if got := stats.OwnWrites.Load(); got != 2 { // the vector of the text between was not written
		t.Errorf("%d own writes were known, want 2", got)
	}
	if made, joined, dropped := stats.Made.Load(), stats.Joined.Load(), stats.Dropped.Load(); made != 1 || joined != 1 ||
		dropped != 0 {
		t.Errorf("%d tasks made, %d joined, %d changes dropped; want 1, 1 and 0", made, joined, dropped)
	}
	r.verify()
}

func TestP6_ATriggerInOurWriteBackIsEmbedded(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text, embedding vector(8))`)
	db.MustExec(`CREATE FUNCTION shout() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN IF new.embedding IS DISTINCT FROM old.embedding AND new.body NOT LIKE '%!'
		THEN new.body := new.body || '!'; END IF; RETURN new; END $$`)
	db.MustExec(`CREATE TRIGGER shout BEFORE UPDATE ON docs FOR EACH ROW EXECUTE FUNCTION shout()`)
	db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, 100) AS i`)
	r := newRig(t, db, column("docs", "body"))
	r.start()
	r.settle()
	r.settle()
	if got := r.count(`SELECT count(*) FROM docs WHERE body LIKE '%!'`); got != 100 {
		t.Fatalf("the trigger changed %d rows of 100", got)
	}
	r.verify()
}

func TestP7_ARowEditedWhileItWaitsIsEmbeddedOnce(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text)`)
	r := newRig(t, db, intoTable("docs", "body"))
	db.MustExec(`UPDATE embedsidecar.pipeline SET enabled = false`)
	r.start()
	db.MustExec(`INSERT INTO docs VALUES (1, 'edit 0')`)
	for i := 1; i <= 1000; i++ {
		db.MustExec(`UPDATE docs SET body = 'edit ' || $1::text`, fmt.Sprint(i))
	}
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		gen := testenv.Values[int64](db, `SELECT gen FROM embedsidecar.task`)
		return len(gen) == 1, fmt.Sprintf("tasks with gen %v", gen) // few changes may come one by one, or all in one batch
	})
	r.settle() // until all of them were read
	db.MustExec(`UPDATE embedsidecar.pipeline SET enabled = true`)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		n := r.count(`SELECT count(*) FROM docs_embedding`)
		return n == 1, fmt.Sprintf("%d vectors", n)
	})
	r.settle()
	if n := r.embedder.sent(); n != 1 {
		t.Errorf("1,000 edits sent %d texts to the embedder, want 1", n)
	}
	r.verify()
}

func TestP8_UnrelatedUpdatesCostNothing(t *testing.T) {
	t.Parallel()
	bothDestinations(t, func(t *testing.T, spec func(string, ...string) pipeline.Spec) {
		t.Helper()
		db := testenv.DB(t)
		db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text, hits bigint DEFAULT 0)`)
		// Every other text is so large that it is stored out of line: an update leaves it out of the WAL.
		db.MustExec(`ALTER TABLE docs ALTER body SET STORAGE EXTERNAL`)
		db.MustExec(`INSERT INTO docs SELECT i, CASE i % 2 WHEN 0 THEN repeat('long ', 1000) || i ELSE 'short ' || i END FROM generate_series(1, 1000) AS i`)
		r := newRig(t, db, spec("docs", "body"))
		s, _ := r.start()
		r.counted()
		stats, sent := s.Stream(), r.embedder.sent()
		made := stats.Made.Load() + stats.Joined.Load()
		// The source table is read for leased batches only; the server's own counters come too late to be compared.
		reads := func() int64 { return s.States()[0].Worker.Batches.Load() }
		before := reads()
		for range 100 {
			db.MustExec(`UPDATE docs SET hits = hits + 1`)
		}
		r.counted()
		if now := stats.Made.Load() + stats.Joined.Load(); now != made {
			t.Errorf("100,000 unrelated updates made %d tasks", now-made)
		}
		if now := r.embedder.sent(); now != sent {
			t.Errorf("they sent %d texts", now-sent)
		}
		if now := reads(); now != before {
			t.Errorf("they cost %d reads of the source table", now-before)
		}
		r.verify()
	})
}

func TestP8_ThereAndBackAtTheWorstMoment(t *testing.T) {
	t.Parallel()
	bothDestinations(t, func(t *testing.T, spec func(string, ...string) pipeline.Spec) {
		t.Helper()
		db := testenv.DB(t)
		db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text)`)
		db.MustExec(`INSERT INTO docs VALUES (1, 'A')`)
		r := newRig(t, db, spec("docs", "body"))
		s, _ := r.start()
		r.settle()
		embedding, goOn := make(chan struct{}), make(chan struct{})
		var once sync.Once
		r.embedder.hook(func(_ context.Context, texts []string) error {
			if texts[0] == "B" {
				once.Do(func() { close(embedding) })
				<-goOn
			}
			return nil
		})
		db.MustExec(`UPDATE docs SET body = 'B'`)
		<-embedding
		changes := s.Stream().Changes.Load()
		db.MustExec(`UPDATE docs SET body = 'A'`)
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			return s.Stream().Changes.Load() > changes && r.count(`SELECT gen FROM embedsidecar.task`) > 1,
				"the way back was not queued"
		})
		close(goOn)
		r.settle()
		r.verify()
	})
}
