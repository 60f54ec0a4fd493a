package sidecar_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP2_ChangesOfATimeWhenTheTableWasAnother: while no sidecar ran, the table had another key or replica identity
// for a while. The changes of that time do not name their rows by the key of now.
func TestP2_ChangesOfATimeWhenTheTableWasAnother(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string][]string{
		"identity": {
			`ALTER TABLE docs REPLICA IDENTITY USING INDEX docs_code`, `DELETE FROM docs WHERE id = '1'`,
			`UPDATE docs SET code = 'new ' || id WHERE id = '2'`,
			`ALTER TABLE docs REPLICA IDENTITY DEFAULT`, `UPDATE docs SET body = 'other' WHERE id = '3'`,
		},
		"identity, and a key that moves": {
			`ALTER TABLE docs REPLICA IDENTITY USING INDEX docs_code`, `UPDATE docs SET id = 'moved' WHERE id = '8'`,
			`ALTER TABLE docs REPLICA IDENTITY DEFAULT`,
		},
		"no key": {
			`ALTER TABLE docs REPLICA IDENTITY FULL`, `ALTER TABLE docs DROP CONSTRAINT docs_pkey`,
			`ALTER TABLE docs ALTER id DROP NOT NULL`,
			`INSERT INTO docs VALUES (NULL, 'n', 'nobody')`, `UPDATE docs SET id = NULL, body = 'nobody' WHERE id = '4'`,
			`DELETE FROM docs WHERE id IS NULL`, `INSERT INTO docs VALUES ('99', 'c99', 'new')`,
			`ALTER TABLE docs ADD PRIMARY KEY (id)`, `ALTER TABLE docs REPLICA IDENTITY DEFAULT`,
		},
		"type of the key": {
			`INSERT INTO docs VALUES ('no number', 'c', 'gone')`, `DELETE FROM docs WHERE id IN ('no number', '5')`,
			`UPDATE docs SET id = '06' WHERE id = '6'`,
			`ALTER TABLE docs ALTER id TYPE int USING id::int`, `UPDATE docs SET body = 'other' WHERE id = 7`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bothDestinations(t, func(t *testing.T, spec func(string, ...string) pipeline.Spec) {
				t.Helper()
				db := testenv.DB(t)
				db.MustExec(`CREATE TABLE docs (id text PRIMARY KEY, code text NOT NULL, body text)`)
				db.MustExec(`CREATE UNIQUE INDEX docs_code ON docs (code)`)
				db.MustExec(`INSERT INTO docs SELECT i, 'c' || i, 'body ' || i FROM generate_series(1, 50) AS i`)
				r := newRig(t, db, spec("docs", "body"))
				_, stop := r.start()
				r.settle()
				stop()
				for _, sql := range meanwhile {
					db.MustExec(sql)
				}
				if name == "type of the key" && spec("docs").IntoTable != "" {
					db.MustExec(`ALTER TABLE docs_embedding ALTER id TYPE int USING id::int`)
				}
				r.start()
				r.settle()
				r.verify()
				if n := r.count(`SELECT count(*) FROM embedsidecar.task`); n != 0 {
					t.Errorf("%d tasks left: %v", n, testenv.Values[string](db,
						`SELECT concat_ws(' ', row_key, state, error_code, error_message) FROM embedsidecar.task`))
				}
				if n, want := r.count(vectors(spec("docs"))), r.count(`SELECT count(*) FROM docs`); n != want {
					t.Errorf("%d vectors of %d rows", n, want)
				}
			})
		})
	}
}

// TestP2_AScanBegunWithKeysOfAnotherType goes on although the place where it stopped is no key any more.
func TestP2_AScanBegunWithKeysOfAnotherType(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, 50) AS i`)
	r := newRig(t, db, column("docs", "body"))
	_, stop := r.start()
	r.settle()
	stop()
	db.MustExec(`UPDATE docs SET embedding = NULL`)
	db.MustExec(`UPDATE embedsidecar.scan SET phase = 'rows', after_key = 'no number', requested = requested + 1`)
	r.start()
	r.settle()
	r.verify()
}

// TestP2_AValueThatTheServerCannotSend: the slot does not get past it, however often it is tried.
func TestP2_AValueThatTheServerCannotSend(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t, testenv.Encoding("WIN1252"))
	db.MustExec(docs)
	db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, 50) AS i`)
	r := newRig(t, db, intoTable("docs", "body"))
	r.options = quick
	s, _ := r.start()
	r.settle()
	db.MustExec(`INSERT INTO docs VALUES (99, 'x' || chr(129))`) // no character at all in UTF-8
	db.MustExec(`UPDATE docs SET body = 'after it ' || id WHERE id < 5`)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		return s.Stream().Gaps.Load() > 0, fmt.Sprintf("%d reconnects and no new slot", s.Stream().Reconnects.Load())
	})
	r.settle()
	if got := testenv.Values[string](db,
		`SELECT row_key || ' ' || state || ' ' || error_code FROM embedsidecar.task`); fmt.Sprint(
		got) != "[99 failed unreadable]" {
		t.Errorf("tasks %v, want the one row to be named", got)
	}
	db.MustExec(`DELETE FROM docs WHERE id = 99`)
	r.settle()
	r.verify()
}

// TestP5_AMessageThatTheDatabaseCannotHold: a provider answers in its language, and the encoding of the database lacks
// its letters. The rows are retried all the same, and the state says why.
func TestP5_AMessageThatTheDatabaseCannotHold(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t, testenv.Encoding("LATIN1"))
	db.MustExec(docs)
	r := newRig(t, db, column("docs", "body"))
	r.options = quick
	r.start()
	r.settle()
	for _, class := range []embed.Class{embed.Transient, embed.Data} {
		r.embedder.hook(func(context.Context, []string) error {
			return &embed.Error{Class: class, Code: "foreign", Err: errors.New("d\u00e9sol\u00e9 \u2192 \u6b20\u8cbb")}
		})
		db.MustExec(`INSERT INTO docs SELECT i, $1 || i FROM generate_series(1, 3) AS i
			ON CONFLICT (id) DO UPDATE SET body = excluded.body`, string(class))
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			said := testenv.Values[string](db, `SELECT coalesce(error_code || ': ' || error_message, '') FROM embedsidecar.task`)
			return len(said) == 3 && !slices.Contains(said, ""), fmt.Sprint(said)
		})
		if class == embed.Transient {
			testenv.Eventually(t, waitTimeout, func() (bool, string) {
				said := testenv.Value[string](db, `SELECT problems::text FROM embedsidecar.worker`)
				return strings.Contains(said, "the embedder gives no answer; last error: "), said
			})
		}
	}
	r.embedder.hook(nil)
	db.MustExec(`SELECT embedsidecar.retry_failed('docs')`)
	r.settle()
	r.verify()
	if n := r.count(`SELECT count(embedding) FROM docs`); n != 3 {
		t.Errorf("%d rows have a vector, want 3", n)
	}
}

// TestP2_APublicationOfAnyName: names are quoted twice on their way to the output plugin.
func TestP2_APublicationOfAnyName(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	r := newRig(t, db, intoTable("docs", "body"))
	const name = `it's, "a" %s \ pub`
	db.MustExec(`ALTER PUBLICATION ` + db.Name + `_pub RENAME TO "it's, ""a"" %s \ pub"`)
	db.MustExec(`UPDATE embedsidecar.lsn_checkpoint SET publication = $1`, name)
	r.start()
	db.MustExec(`INSERT INTO docs VALUES (1, 'text')`)
	r.settle()
	r.verify()
	if n := r.count(`SELECT count(*) FROM docs_embedding`); n != 1 {
		t.Errorf("%d vectors, want 1", n)
	}
}
