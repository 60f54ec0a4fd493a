package sidecar_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// direct works changes straight from the stream where that is quick.
func direct(o *sidecar.Options) { o.NoDirect = false }

// unhurried does so, and takes whatever a slow machine does for quick.
func unhurried(o *sidecar.Options) { o.NoDirect, o.Quick = false, time.Hour }

// alone changes rows one at a time, and waits for each.
func (r *rig) alone(changes int, sql string) {
	r.t.Helper()
	for i := range changes {
		r.db.MustExec(sql, i%5+1, fmt.Sprintf("text %d", i))
		r.settle()
	}
}

// A change that comes alone is worked without a task, whatever its destination; what the queue has, it keeps.
func TestDirect_ALoneChangeNeedsNoTask(t *testing.T) {
	t.Parallel()
	bothDestinations(t, func(t *testing.T, spec func(table string, columns ...string) pipeline.Spec) {
		t.Helper()
		db := testenv.DB(t)
		db.MustExec(docs)
		db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, 5) AS i`)
		r := newRig(t, db, spec("docs", "body"))
		var pool *pgxpool.Pool
		r.options = func(o *sidecar.Options) { unhurried(o); pool = o.StreamPool }
		s, _ := r.start()
		r.settle()
		made, direct := s.Stream().Made.Load(), s.Stream().Direct.Load()
		const changes = 12
		r.alone(1, `UPDATE docs SET body = $2 WHERE id = $1`)
		taken := pool.Stat().AcquireCount()
		for i := range changes { // who asks whether they are worked has the heartbeat look, which takes a connection
			text := fmt.Sprintf("line %d", i)
			r.db.MustExec(`UPDATE docs SET body = $2 WHERE id = $1`, i%5+1, text)
			testenv.Eventually(t, waitTimeout, func() (bool, string) {
				return r.embedder.sent(text) == 1, text
			})
		}
		if taken := pool.Stat().AcquireCount() - taken; taken >= changes {
			t.Errorf("%d connections were taken beside that of the lone changes: their position goes over it, too", taken)
		}
		r.settle()
		r.alone(3, `DELETE FROM docs WHERE id = $1 AND $2 <> ''`)
		r.alone(3, `INSERT INTO docs (id, body) VALUES (10 + $1, $2)`)
		r.db.MustExec(`UPDATE docs SET id = id + 100`) // a key of before and one of after, for each row
		r.counted()
		r.verify()
		if made := s.Stream().Made.Load() - made; made != 0 {
			t.Errorf("%d tasks were made", made)
		}
		if direct := s.Stream().Direct.Load() - direct; direct < changes+6 {
			t.Errorf("%d changes were worked at once, want all", direct)
		}
	})
}

// P1: what the queue holds of a row is not overtaken. While a worker has an older text of it in hand, its next changes
// are the queue's, too.
func TestP1_ARowInTheQueueStaysThere(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, 600) AS i`)
	r := newRig(t, db, intoTable("docs", "body"))
	r.options = direct
	s, _ := r.start()
	r.settle()
	held, release, once := make(chan struct{}), make(chan struct{}), sync.Once{}
	r.embedder.hook(func(ctx context.Context, texts []string) error {
		for _, text := range texts {
			if text == "held 1" {
				once.Do(func() { close(held) })
				select {
				case <-release:
				case <-ctx.Done():
				}
			}
		}
		return nil
	})
	db.MustExec(`UPDATE docs SET body = 'held ' || id`) // more than are worked at once
	<-held
	db.MustExec(`DELETE FROM docs WHERE id = 1`)
	db.MustExec(`UPDATE docs SET body = 'newer' WHERE id = 2`)
	joined := func() (bool, string) {
		n := s.Stream().Joined.Load()
		return n >= 2, fmt.Sprint(n, " changes joined a task")
	}
	testenv.Eventually(t, waitTimeout, joined)
	close(release)
	r.settle()
	r.verify()
}

// P5: a pipeline whose write-backs are slow, for a trigger of its table, holds up the changes of others once, and not
// each time.
func TestP5_SlowWriteBacksAreLeftToTheQueue(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	db.MustExec(`CREATE TABLE notes (id bigint PRIMARY KEY, body text)`)
	db.MustExec(`INSERT INTO docs VALUES (1, 'a')`)
	db.MustExec(`INSERT INTO notes VALUES (1, 'a')`)
	r := newRig(t, db, column("docs", "body"), intoTable("notes", "body"))
	r.options = direct
	s, _ := r.start()
	r.settle()
	db.MustExec(`CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.3); RETURN NEW; END'`)
	db.MustExec(`CREATE TRIGGER slow BEFORE UPDATE OF embedding ON docs FOR EACH ROW EXECUTE FUNCTION slow()`)
	const rounds = 20
	for i := range rounds {
		batch := &pgx.Batch{}
		batch.Queue(`UPDATE docs SET body = $1`, fmt.Sprint("docs ", i))
		batch.Queue(`UPDATE notes SET body = $1`, fmt.Sprint("notes ", i))
		if err := db.Pool.SendBatch(t.Context(), batch).Close(); err != nil {
			t.Fatal(err)
		}
		r.settle()
	}
	r.verify()
	if made := s.Stream().Made.Load(); made < rounds/2 {
		t.Errorf("%d of %d slow changes went through the queue", made, rounds)
	}
}

// Statements of changes that are worked at once are planned once for a session, perhaps while the tables are empty:
// rows are found by an index all the same.
func TestDirect_FindsRowsByAnIndex(t *testing.T) {
	t.Parallel()
	bothDestinations(t, func(t *testing.T, spec func(table string, columns ...string) pipeline.Spec) {
		t.Helper()
		db := testenv.DB(t)
		db.MustExec(docs)
		r := newRig(t, db, spec("docs", "body"))
		r.options = unhurried
		r.start()
		r.settle()
		for id := range 3 {
			db.MustExec(`INSERT INTO docs (id, body) VALUES ($1, 'first')`, id+1)
			r.settle()
			db.MustExec(`DELETE FROM docs`)
			r.settle()
		}
		db.MustExec(`INSERT INTO docs (id, body) SELECT i, 'body ' || i FROM generate_series(1, 3000) AS i`)
		r.settle()
		scans := func(what string) int64 {
			return r.count(`SELECT coalesce(sum(` + what + `), 0) FROM pg_stat_user_tables
				WHERE relname LIKE 'docs%'`) // who waits reads ours as it likes
		}
		testenv.Eventually(t, waitTimeout, func() (bool, string) { // servers tell of themselves with some delay
			n := r.count(`SELECT n_tup_ins FROM pg_stat_user_tables WHERE relname = 'ledger'`)
			return n >= 3003, fmt.Sprint(n, " entries")
		})
		// What sessions did before may be told meanwhile, once.
		const changes, rounds = 10, 5
		for round := 1; ; round++ {
			found, walked := scans("idx_scan"), scans("seq_scan")
			for i := range changes {
				db.MustExec(`UPDATE docs SET body = $2 WHERE id = $1`, i+1, fmt.Sprint("new ", round, " ", i))
				r.settle()
			}
			testenv.Eventually(t, waitTimeout, func() (bool, string) { // by us, and by the sidecar
				n := scans("idx_scan") - found
				return n >= 2*changes, fmt.Sprint(n, " rows were found by an index")
			})
			n := scans("seq_scan") - walked
			if n == 0 {
				break
			}
			if round == rounds {
				t.Errorf("tables were read %d times", n)
				break
			}
		}
		r.verify()
	})
}
