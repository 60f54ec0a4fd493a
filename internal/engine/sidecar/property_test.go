package sidecar_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// Which test proves which property is in docs/architecture.md.

// nearest asks for rows near to a vector, as an application would, and waits for no lock at all.
func nearest(ctx context.Context, r *rig, name string) error {
	tx, err := r.db.Pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	// One that had to wait for anybody's lock would fail.
	if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '1ms'"); err != nil {
		return err
	}
	var before float64
	rows, err := tx.Query(ctx, `SELECT row_key, distance FROM embedsidecar.neighbours($1, '[1,2,3,4,5,6,7,8]', 5)`, name)
	if err != nil {
		return err
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct {
		Key      string
		Distance float64
	}])
	for _, f := range found {
		if f.Distance < before {
			err = errors.Join(err, fmt.Errorf("%v is in no order", found))
		}
		before = f.Distance
	}
	return err
}

// Whatever the sidecar and others are in the middle of, be it an embedder that does not answer, a write-back that a
// trigger of the user's holds open, a bulk action or a change that is not committed, a search waits for nobody.
func TestProperty_SearchNeverBlocks(t *testing.T) {
	t.Parallel()
	bothDestinations(t, func(t *testing.T, spec func(table string, columns ...string) pipeline.Spec) {
		t.Helper()
		db := testenv.DB(t)
		db.MustExec(docs)
		db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, 20) AS i`)
		r := newRig(t, db, spec("docs", "body"))
		for _, table := range testenv.Values[string](db, `SELECT oid::regclass::text FROM pg_class
			WHERE relkind = 'r' AND (relnamespace = 'embedsidecar'::regnamespace OR relname ~ '^docs')`) {
			db.MustExec(`ALTER TABLE ` + table + ` SET (vacuum_truncate = off)`) // the server locks what it truncates, from all
		}
		// Who holds write-backs in their middle: a trigger of the user's, or somebody who has locked the vectors.
		held := `SELECT count(*) FROM (SELECT FROM docs_embedding FOR UPDATE) AS v`
		if r.pipelines[0].InSource() {
			held = `SELECT pg_advisory_xact_lock(4711)`
			db.MustExec(fmt.Sprintf(`CREATE FUNCTION wait_for_it() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				IF session_user = %s THEN PERFORM pg_advisory_xact_lock_shared(4711); END IF; RETURN NEW; END $$`, "'"+r.role+"'"))
			db.MustExec(`CREATE TRIGGER wait_for_it BEFORE UPDATE ON docs FOR EACH ROW EXECUTE FUNCTION wait_for_it()`)
		}
		answers := make(chan struct{}, 1) // full: the embedder answers
		answers <- struct{}{}
		r.embedder.hook(func(ctx context.Context, _ []string) error {
			select {
			case <-answers:
				answers <- struct{}{}
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		r.options = func(o *sidecar.Options) { o.NoDirect = false }
		r.start()
		r.settle()
		version := 0
		rapid.Check(t, func(rt *rapid.T) {
			var open []pgx.Tx
			hangs := false
			// begin does something in a transaction that stays open; where a lock of another one is in its way it gives up.
			begin := func(sql string, args ...any) {
				tx := r.locking(`SET LOCAL lock_timeout = '5ms'`)
				if _, err := tx.Exec(t.Context(), sql, args...); err != nil {
					r.rollback(tx)
					return
				}
				open = append(open, tx)
			}
			defer func() {
				for _, tx := range open {
					r.rollback(tx)
				}
				if hangs {
					answers <- struct{}{}
				}
			}()
			steps := map[string]func(){
				"change": func() {
					version++
					id := rapid.IntRange(1, 25).Draw(rt, "id")
					tx := r.locking(`SET LOCAL lock_timeout = '5ms'`)
					if _, err := tx.Exec(t.Context(), `INSERT INTO docs VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET body = excluded.body`,
						id, fmt.Sprint("body ", version)); err != nil {
						r.rollback(tx)
						return
					}
					if err := tx.Commit(t.Context()); err != nil {
						rt.Fatal(err)
					}
				},
				"change that stays open": func() {
					version++
					begin(`UPDATE docs SET body = $1 WHERE id <= 10`, fmt.Sprint("never ", version))
				},
				"delete that stays open": func() { begin(`DELETE FROM docs WHERE id > 10`) },
				"held write-backs":       func() { begin(held) },
				"held queue":             func() { begin(`SELECT count(*) FROM (SELECT FROM embedsidecar.task FOR UPDATE) AS t`) },
				"held ledger":            func() { begin(`SELECT count(*) FROM (SELECT FROM embedsidecar.ledger FOR UPDATE) AS l`) },
				"reembed that stays open": func() {
					begin(`SELECT * FROM embedsidecar.reembed('docs', max_rows => 10)`)
				},
				"pause that stays open": func() { begin(`SELECT embedsidecar.pause('docs')`) },
				"embedder hangs": func() {
					if !hangs {
						<-answers
						hangs = true
					}
				},
			}
			names := slices.Sorted(maps.Keys(steps))
			for _, name := range rapid.SliceOfN(rapid.SampledFrom(names), 1, 6).Draw(rt, "steps") {
				steps[name]()
				if err := nearest(t.Context(), r, r.pipelines[0].Name); err != nil {
					rt.Fatalf("after %q a search waits: %v", name, err)
				}
			}
		})
		r.settle()
		r.verify()
	})
}

// Whatever texts come and go: a row that is a dead letter can be read and locked by its owner at once, and written;
// what he writes is embedded, or is a dead letter again. A drain returns when nothing is left to do, and then nothing
// is.
func TestProperty_AFailedRowStaysReadableAndWritableAndDrainEndsEmpty(t *testing.T) {
	t.Parallel()
	bothDestinations(t, func(t *testing.T, spec func(table string, columns ...string) pipeline.Spec) {
		t.Helper()
		db := testenv.DB(t)
		db.MustExec(docs)
		r := newRig(t, db, spec("docs", "body"))
		r.embedder.hook(func(_ context.Context, texts []string) error {
			if slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(s, "bad") }) {
				return &embed.Error{Class: embed.Data, Code: "refused", Err: errors.New("one of them is bad")}
			}
			return nil
		})
		r.options = func(o *sidecar.Options) {
			o.NoDirect, o.Retry.MaxAttempts = false, 1
			o.Retry.Initial, o.Retry.Max = time.Millisecond, 10*time.Millisecond
		}
		r.start()
		r.settle()
		version := 0
		rapid.Check(t, func(rt *rapid.T) {
			bad := map[int]bool{} // of each row there is
			db.MustExec(`DELETE FROM docs`)
			for range rapid.IntRange(1, 3).Draw(rt, "rounds") {
				for range rapid.IntRange(1, 4).Draw(rt, "changes") {
					id := rapid.IntRange(1, 4).Draw(rt, "id")
					version++
					word := rapid.SampledFrom([]string{"good", "bad", ""}).Draw(rt, "text")
					if word == "" {
						delete(bad, id)
						free(t, rt, r, `DELETE FROM docs WHERE id = $1`, id)
						continue
					}
					bad[id] = word == "bad"
					free(t, rt, r, `INSERT INTO docs VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET body = excluded.body`, id,
						fmt.Sprintf("%s %d", word, version))
				}
				r.drained(rt)
				want := []string{}
				for id := range bad {
					if bad[id] {
						want = append(want, fmt.Sprint(id))
					}
				}
				slices.Sort(want)
				if failed := testenv.Values[string](db, `SELECT row_key FROM embedsidecar.dead_letters ORDER BY row_key`); !slices.Equal(failed, want) {
					rt.Fatalf("dead letters %v, want %v", failed, want)
				}
				for _, key := range want { // nobody of ours is in the way
					free(t, rt, r, `SELECT body FROM docs WHERE id = $1::bigint FOR UPDATE NOWAIT`, key)
					free(t, rt, r, `UPDATE docs SET body = body WHERE id = $1::bigint`, key)
				}
			}
		})
		db.MustExec(`DELETE FROM docs WHERE body LIKE 'bad%'`)
		r.settle()
		r.verify()
	})
}

// free does something as the owner of the rows, who waits for a lock as long as a short write-back takes, and no
// longer.
func free(t *testing.T, rt *rapid.T, r *rig, sql string, args ...any) {
	t.Helper()
	tx := r.locking(`SET LOCAL lock_timeout = '30s'`)
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), sql, args...); err != nil {
		rt.Fatalf("%s %v: %v", sql, args, err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		rt.Fatal(err)
	}
}

// drained drains by SQL, and looks whether anything that was committed before is left then. A write-back comes back
// through the slot, and where its row has a task already it joins that: the row is looked at once more.
func (r *rig) drained(rt *rapid.T) {
	r.t.Helper()
	var (
		drained   bool
		remaining int64
	)
	conn, err := r.db.Pool.Acquire(r.t.Context())
	if err != nil {
		rt.Fatal(err)
	}
	defer conn.Release()
	before := testenv.Value[string](r.db, `SELECT pg_current_wal_insert_lsn()::text`)
	if err := conn.QueryRow(r.t.Context(), `CALL embedsidecar.drain(NULL, '5 min', NULL, NULL, NULL)`).
		Scan(&drained, &remaining, nil); err != nil {
		rt.Fatal(err)
	}
	open := testenv.Values[string](r.db, `SELECT row_key || ' ' || state FROM embedsidecar.tasks
		WHERE state NOT IN ('failed', 'cancelled') AND first_lsn <= $1::pg_lsn`, before)
	if !drained || remaining != 0 || len(open) > 0 {
		rt.Fatalf("drained %t, %d remain, open: %v", drained, remaining, open)
	}
}
