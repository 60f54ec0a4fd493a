package sidecar_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP4_ARowIsFoundByItsPartition: what is read or written of a row locks the partition that it is in, and no other,
// however many there are, at any depth.
func TestP4_ARowIsFoundByItsPartition(t *testing.T) {
	t.Parallel()
	for how, parts := range map[string]struct {
		by, one string
		most    int64 // partitions that are locked for one row, with the partitioned tables above it
	}{
		"range": {`RANGE (n)`, `CREATE TABLE docs_$i PARTITION OF docs FOR VALUES FROM ($i) TO ($j)`, 1},
		"list":  {`LIST (n)`, `CREATE TABLE docs_$i PARTITION OF docs FOR VALUES IN ($i)`, 1},
		"two levels": {`RANGE (n)`, `CREATE TABLE docs_$i PARTITION OF docs FOR VALUES FROM ($i) TO ($j) PARTITION BY LIST (word);
			CREATE TABLE docs_$i_a PARTITION OF docs_$i FOR VALUES IN ('a'); CREATE TABLE docs_$i_b PARTITION OF docs_$i DEFAULT`, 2},
	} {
		bothDestinations(t, func(t *testing.T, spec func(string, ...string) pipeline.Spec) {
			t.Helper()
			t.Run(how, func(t *testing.T) {
				t.Parallel()
				db := testenv.DB(t)
				db.MustExec(`CREATE TABLE docs (n int, word text, id int, body text, PRIMARY KEY (id, word, n)) PARTITION BY ` + parts.by)
				if destination := spec("docs", "body"); destination.InSource() {
					db.MustExec(`ALTER TABLE docs ADD embedding vector(8)`)
				}
				for i := range 20 {
					db.MustExec(strings.NewReplacer("$i", strconv.Itoa(i), "$j", strconv.Itoa(i+1)).Replace(parts.one))
				}
				r := newRig(t, db, spec("docs", "body"))
				r.options = func(o *sidecar.Options) { o.NoDirect = false }
				pool := connect(t, r.url, 2)
				tx, err := pool.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				table := rows.New(&r.pipelines[0], tx, rows.Options{})
				const key = "7|a|5"
				if _, err := table.Read(t.Context(), []string{key}, 1<<20); err != nil {
					t.Fatal(err)
				}
				batch := &pgx.Batch{}
				if _, err := table.QueueLock(batch, []string{key}); err != nil {
					t.Fatal(err)
				}
				if batch.Len() > 0 {
					if err := tx.SendBatch(t.Context(), batch).Close(); err != nil {
						t.Fatal(err)
					}
				}
				var n int64
				if err := tx.QueryRow(t.Context(), `SELECT count(DISTINCT l.relation) FROM pg_locks AS l JOIN pg_inherits AS h ON h.inhrelid = l.relation
					JOIN pg_class AS c ON c.oid = l.relation AND c.relkind IN ('r', 'p') WHERE l.pid = pg_backend_pid()`).Scan(&n); err != nil || n != parts.most {
					t.Errorf("%d partitions are locked for one row, want %d: %v", n, parts.most, err)
				}
				if err := tx.Rollback(t.Context()); err != nil {
					t.Fatal(err)
				}
				r.start()
				db.MustExec(`INSERT INTO docs SELECT i % 20, CASE WHEN i % 3 = 0 THEN 'a' ELSE 'b"\' END, i, 'text ' || i FROM generate_series(1, 100) AS i`)
				r.settle()
				for range 3 { // by the direct way, once it is known to be quick
					db.MustExec(`UPDATE docs SET body = body || '!' WHERE id < 5`)
					r.settle()
				}
				db.MustExec(`UPDATE docs SET n = 3, word = 'a' WHERE id = 7`)
				db.MustExec(`DELETE FROM docs WHERE id = 8`)
				r.settle()
				r.verify()
			})
		})
	}
}

// TestP4_ASuperusersWriteWaitsForItsPartitionAlone: what makes sure that no trigger and no owner has come locks what is
// written, and not the partition in which somebody builds an index, or which he moves.
func TestP4_ASuperusersWriteWaitsForItsPartitionAlone(t *testing.T) {
	t.Parallel()
	for name, lock := range map[string]string{
		"index": `CREATE INDEX ON high (body)`, "exclusive": `LOCK TABLE high IN ACCESS EXCLUSIVE MODE`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testenv.DB(t)
			db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text, embedding vector(8)) PARTITION BY RANGE (id);
				CREATE TABLE low PARTITION OF docs FOR VALUES FROM (0) TO (100);
				CREATE TABLE high PARTITION OF docs FOR VALUES FROM (100) TO (200);
				INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(90, 109) AS i`)
			r := newRig(t, db, column("docs", "body"))
			guarded := r.pipelines[0]
			guarded.TriggerMark = "others"
			tx, batch := r.locking(), &pgx.Batch{}
			if err := rows.New(&guarded, tx, rows.Options{}).QueueGuard(batch, []string{"95"}); err != nil {
				t.Fatal(err)
			}
			if err := tx.SendBatch(t.Context(), batch).Close(); !errors.Is(err, rows.ErrOtherTriggers) {
				t.Errorf("got %v, want %v", err, rows.ErrOtherTriggers)
			}
			var held string
			if err := tx.QueryRow(t.Context(), `SELECT string_agg(c.relname, ' ' ORDER BY c.relname) FROM pg_locks AS l
				JOIN pg_class AS c ON c.oid = l.relation AND c.relkind IN ('r', 'p') AND c.relnamespace = 'public'::regnamespace
				WHERE l.pid = pg_backend_pid() AND l.mode = 'RowExclusiveLock'`).Scan(&held); err != nil || held != "docs low" {
				t.Errorf("held against triggers: %q, %v", held, err)
			}
			r.rollback(tx)
			db.MustExecSuper(`ALTER TABLE docs OWNER TO ` + testenv.Superuser)
			r.url, r.trusted = db.URL(testenv.Superuser), []string{testenv.Owner}
			r.known()
			r.start()
			r.settle()
			locked := r.locking(lock)
			db.MustExecSuper(`UPDATE low SET body = 'another ' || id`)
			r.settle()
			r.rollback(locked)
			r.verify()
		})
	}
}

// TestP2_APartitionIsComparedAlone: when partitions come, go or are emptied, the rows of the others are not looked at.
func TestP2_APartitionIsComparedAlone(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text) PARTITION BY RANGE (id)`)
	for i := range 4 {
		db.MustExec(fmt.Sprintf(`CREATE TABLE docs_%d PARTITION OF docs FOR VALUES FROM (%d) TO (%d)`, i, 100*i, 100*i+100))
	}
	db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(0, 399) AS i`)
	r := newRig(t, db, intoTable("docs", "body"))
	s, _ := r.start()
	r.settle()
	scan := func(what string, want int64, statements ...string) {
		t.Helper()
		asked, noticed := r.count(`SELECT requested FROM embedsidecar.scan`), s.Stream().CatalogueScans.Load()
		for _, sql := range statements {
			db.MustExec(sql)
		}
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			return s.Stream().CatalogueScans.Load() > noticed && r.count(`SELECT count(*) FROM embedsidecar.scan WHERE requested > $1 AND phase = 'done'`, asked) == 1, what
		})
		r.settle()
		r.verify()
		if n := r.count(`SELECT rows_seen FROM embedsidecar.scan`); n != want {
			t.Errorf("%s: %d rows were compared, want %d", what, n, want)
		}
		if n := r.count(`SELECT count(*) FROM embedsidecar.scan WHERE partitions IS NOT NULL OR NOT lost`); n > 0 {
			t.Errorf("%s: what the scan was of is still stored", what)
		}
	}
	scan("a new partition", 0, `CREATE TABLE docs_4 PARTITION OF docs FOR VALUES FROM (400) TO (500)`)
	scan("one that has rows", 7, `CREATE TABLE docs_5 (LIKE docs INCLUDING ALL)`, `INSERT INTO docs_5 SELECT i, 'body ' || i FROM generate_series(500, 506) AS i`,
		`ALTER TABLE docs ATTACH PARTITION docs_5 FOR VALUES FROM (500) TO (600)`)
	scan("one that was changed while it was away", 99, `BEGIN; ALTER TABLE docs DETACH PARTITION docs_1; UPDATE docs_1 SET body = body || '!';
		DELETE FROM docs_1 WHERE id = 107; ALTER TABLE docs ATTACH PARTITION docs_1 FOR VALUES FROM (100) TO (200); COMMIT`)
	scan("one that goes", 0, `ALTER TABLE docs DETACH PARTITION docs_2`)
	scan("one that is emptied", 3, `BEGIN; TRUNCATE docs_3; INSERT INTO docs VALUES (301, 'a'), (302, 'b'), (303, 'c'); COMMIT`)
}

// TestP5_ATextThatIsNeverReadHoldsUpNoOther: the stream waits for a text as long as for any other, though its function
// goes on when it is cancelled, and though rows of a table that is partitioned by its key are read in another session.
func TestP5_ATextThatIsNeverReadHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	for by, table := range map[string]string{
		"one table": `CREATE TABLE docs (id bigint PRIMARY KEY, body text)`,
		"partitions": `CREATE TABLE docs (id bigint PRIMARY KEY, body text) PARTITION BY RANGE (id);
			CREATE TABLE docs_1 PARTITION OF docs FOR VALUES FROM (0) TO (100)`,
	} {
		for how, caught := range map[string]string{"is cancelled": "", "goes on": "EXCEPTION WHEN query_canceled THEN NULL;"} {
			t.Run(by+" "+how, func(t *testing.T) {
				t.Parallel()
				db := testenv.DB(t)
				db.MustExec(table + `; CREATE FUNCTION looked(t text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN
					WHILE t = 'endless' AND NOT pg_try_advisory_xact_lock_shared(1) LOOP
						BEGIN PERFORM pg_sleep(0.01); ` + caught + ` END;
					END LOOP; RETURN t; END $$`)
				db.MustExec(notes)
				spec := intoTable("docs")
				spec.Text = `public.looked(body)`
				newRig(t, db, spec, intoTable("notes", "body")).besideEndless()
			})
		}
	}
}
