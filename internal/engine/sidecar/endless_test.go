package sidecar_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// endless is a loop that goes on when it is cancelled, for rows with this text, until the test ends it.
const endless = `WHILE %s = 'endless' AND NOT pg_try_advisory_xact_lock_shared(1) LOOP
	BEGIN PERFORM pg_sleep(0.01); EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP;`

// goesOn keeps endless going until its transaction ends.
const goesOn = `SELECT pg_advisory_xact_lock(1)`

// besideEndless starts a sidecar with the pipelines docs and notes. While the code of docs does not end, the stream
// brings a change of notes.
func (r *rig) besideEndless() {
	r.t.Helper()
	r.options = func(o *sidecar.Options) { o.NoDirect, o.Quick = false, 200*time.Millisecond }
	s, _ := r.start()
	r.db.MustExec(`INSERT INTO docs VALUES (1, 'one')`)
	r.settle()
	r.straight(s)
	holder := r.locking(goesOn)
	r.db.MustExec(`INSERT INTO docs VALUES (2, 'endless')`)
	r.db.MustExec(`INSERT INTO notes VALUES (1, 'one')`)
	testenv.Eventually(r.t, 2*time.Minute, func() (bool, string) {
		return r.count(`SELECT count(*) FROM notes_embedding`) == 1, "the stream waits for code of another pipeline"
	})
	r.rollback(holder)
	r.settle()
	r.verify()
}

// endlessForTheStream: the stream waits for a trigger or a priority as long as for any other, though it goes on when it
// is cancelled.
func endlessForTheStream(t *testing.T) {
	t.Helper()
	t.Parallel()
	for name, c := range map[string]struct {
		spec pipeline.Spec
		sql  string
	}{
		"a trigger": {column("docs", "body"), `CREATE FUNCTION loops() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN ` +
			fmt.Sprintf(endless, "new.body") + ` RETURN new; END $$;
			CREATE TRIGGER loops BEFORE UPDATE ON docs FOR EACH ROW EXECUTE FUNCTION loops()`},
		"a priority": {
			func() pipeline.Spec {
				spec := intoTable("docs", "body")
				spec.PriorityBy = `public.loops(body)`
				return spec
			}(), `CREATE FUNCTION loops(t text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN ` +
				fmt.Sprintf(endless, "t") + ` RETURN 'high'; END $$`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testenv.DB(t)
			db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text, embedding vector(8))`)
			db.MustExec(c.sql)
			db.MustExec(notes)
			newRig(t, db, c.spec, intoTable("notes", "body")).besideEndless()
		})
	}
}

// endlessTexts: more pipelines than the pool has connections have rows whose text never ends. They share a part of the
// pool.
func endlessTexts(t *testing.T) {
	t.Helper()
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE FUNCTION looked(t text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN ` +
		fmt.Sprintf(endless, "t") + ` RETURN t; END $$`)
	db.MustExec(notes)
	specs := []pipeline.Spec{intoTable("notes", "body")}
	const others = 9 // the pool has 8 connections
	for i := range others {
		table := fmt.Sprintf("docs_%d", i)
		db.MustExec(`CREATE TABLE ` + table + ` (id bigint PRIMARY KEY, body text)`)
		spec := intoTable(table)
		spec.Text = `public.looked(body)`
		specs = append(specs, spec)
	}
	r := newRig(t, db, specs...)
	r.start()
	r.settle()
	holder := r.locking(goesOn)
	for i := range others {
		db.MustExec(fmt.Sprintf(`INSERT INTO docs_%d VALUES (1, 'endless'), (2, 'endless'), (3, 'endless')`, i))
	}
	for i := range 5 {
		db.MustExec(`INSERT INTO notes VALUES ($1, 'one')`, i)
		testenv.Eventually(t, 4*time.Minute, func() (bool, string) {
			return r.count(`SELECT count(*) FROM notes_embedding`) == int64(i)+1, "others have all connections"
		})
	}
	r.rollback(holder)
	r.settle()
	r.verify()
}
