package queue_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/testenv"
)

// Searching by SQL: who may, and that what is given wrongly is refused clearly, before anybody is asked.
func TestSQL_Searcher(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		f := newFixture(t, testenv.Major(major))
		f.db.RunRole()
		readerRole, operatorRole := f.db.SQLRoles()
		for _, role := range []string{readerRole, operatorRole, f.db.Role("")} {
			who := newPerson(t, f.db, role)
			for _, sql := range []string{
				`SELECT embedsidecar.embed('x')`, `SELECT * FROM embedsidecar.search('docs', 'x')`, `CALL embedsidecar.ask('docs', 'x')`,
				`SELECT * FROM embedsidecar.neighbours('docs', '[1,2,3]')`, `SELECT * FROM embedsidecar.answer`,
			} {
				who.refused(sql, "42501")
			}
		}
		searcher := newPerson(t, f.db, f.db.SearcherRole())
		for _, sql := range []string{
			`SELECT * FROM embedsidecar.answer`, `SELECT * FROM embedsidecar.status`, `SELECT secret FROM embedsidecar.installation`,
			`SELECT embedsidecar.sign('x', 'x')`, `SELECT embedsidecar.put('x', '1 s', false)`,
			`SELECT embedsidecar.answered('x', 'slot', 'x', 'x', '1 s', true)`, `SELECT * FROM embedsidecar.texts_question('x', 'docs', 'x', '{x}', '1 s')`,
			`SELECT * FROM embedsidecar.question('x', 'docs', 'x', '1 s')`,
			`SELECT embedsidecar.answer_to('x', 'x', 'x', now())`, `SELECT embedsidecar.nobody_answers('x', 'slot', NULL)`,
			`SELECT embedsidecar.not_in_time('x', 'slot', 'x', '1 s')`,
		} {
			searcher.refused(sql, "42501")
		}
		nobody, within := "55000", "no sidecar runs"
		if major < 17 {
			nobody, within = "0A000", "CALL embedsidecar.ask"
		}
		for _, c := range []struct{ sql, state, word string }{
			{`SELECT embedsidecar.embed('x')`, nobody, within},
			{`SELECT * FROM embedsidecar.search('docs', 'x')`, nobody, within},
			{`CALL embedsidecar.ask('docs', 'x')`, "55000", "no sidecar runs"},
			{`SELECT embedsidecar.embed(NULL)`, "22004", "expected a text"},
			{`SELECT embedsidecar.embed(repeat('x', 32769))`, "54000", "32769 bytes"},
			{`SELECT embedsidecar.embed(repeat('x', 100000000))`, "54000", "the maximum is 32768"},
			{`SELECT embedsidecar.embed('x', 'dosc')`, "42704", "may not read the table of any pipeline"},
			{`SELECT embedsidecar.embed('x', 'docs', '0')`, "22023", "1 minute"},
			{`SELECT embedsidecar.embed('x', 'docs', '-1 s')`, "22023", "1 minute"},
			{`SELECT embedsidecar.embed('x', 'docs', '61 s')`, "22023", "1 minute"},
			{`SELECT embedsidecar.embed('x', 'docs', NULL)`, "22023", "1 minute"},
			{`SELECT * FROM embedsidecar.search('docs', 'x', 0)`, "22023", "1 to 10000"},
			{`SELECT * FROM embedsidecar.search('docs', 'x', -1)`, "22023", "1 to 10000"},
			{`SELECT * FROM embedsidecar.search('docs', 'x', 2147483647)`, "22023", "1 to 10000"},
			{`SELECT * FROM embedsidecar.search('docs', 'x', NULL)`, "22023", "1 to 10000"},
			{`SELECT * FROM embedsidecar.search('docs', NULL)`, "22004", "expected a text"},
			{`SELECT * FROM embedsidecar.search(NULL, 'x')`, "22004", "name a pipeline"},
			{`SELECT * FROM embedsidecar.search($$'; DROP TABLE docs; --$$, 'x')`, "42704", "there is no pipeline"},
			{`SELECT * FROM embedsidecar.neighbours('docs', NULL)`, "22004", "a vector"},
			{`SELECT * FROM embedsidecar.neighbours('docs', '[1,2,3]', 10001)`, "22023", "1 to 10000"},
			{`SELECT * FROM embedsidecar.neighbours('docs', '[1,2,3]')`, "55000", "its destination has changed"},
			{`CALL embedsidecar.ask('docs', 'x', '0')`, "22023", "1 minute"},
			{`BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT embedsidecar.embed('x')`, "55000", "READ COMMITTED"},
			{`ROLLBACK; BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT * FROM embedsidecar.search('docs', 'x')`, "55000", "READ COMMITTED"},
			{`ROLLBACK; BEGIN; CALL embedsidecar.ask('docs', 'x')`, "55000", "no sidecar runs"},
		} {
			searcher.refused(c.sql, c.state, c.word)
		}
		if _, err := searcher.conn.Exec(t.Context(), "ROLLBACK"); err != nil {
			t.Fatal(err)
		}
		// A wrong name is answered with those of tables that he may read, and no others.
		// To wait for his own write, too, he must be able to read the table.
		searcher.refused(`SELECT embedsidecar.wait_for(pipeline => 'docs')`, "42501", `may not read the table of pipeline "docs"`)
		searcher.refused(`SELECT embedsidecar.wait_for()`, "42501", "may not read the table of any pipeline")
		searcher.refused(`CALL embedsidecar.wait_until()`, "42501")
		f.db.MustExec("GRANT SELECT (body) ON docs TO " + f.db.SearcherRole())
		searcher.sees(`SELECT embedsidecar.wait_for(timeout => '0'), embedsidecar.wait_for(timeout => '0', pipeline => 'docs')`, "f f")
		searcher.refused(`SELECT embedsidecar.embed('x', 'dosc')`, "42704", "there are: docs")
		f.db.MustExec(`UPDATE embedsidecar.pipeline SET status = 'misconfigured', status_detail = 'a column is gone'`)
		searcher.refused(`SELECT embedsidecar.embed('x', 'docs')`, "55000", "misconfigured: a column is gone")
		// What is wrong may quote an expression: without a right on the table he learns only that something is.
		f.db.MustExec("REVOKE SELECT (body) ON docs FROM " + f.db.SearcherRole())
		for _, sql := range []string{
			`SELECT embedsidecar.embed('x', 'docs')`, `SELECT * FROM embedsidecar.search_statement('docs', NULL)`,
			`SELECT * FROM embedsidecar.neighbours('docs', '[1,2,3]')`, `SELECT * FROM embedsidecar.search_across('{docs}', 'x')`,
		} {
			_, err := searcher.conn.Exec(t.Context(), sql)
			if err == nil || !strings.Contains(err.Error(), "misconfigured") || strings.Contains(err.Error(), "a column") {
				t.Errorf("%s: who may not read the table is told %v", sql, err)
			}
		}
		// An answer that is there is taken wherever it is asked for, and no other's.
		f.db.MustExec(`UPDATE embedsidecar.pipeline SET status = 'active'`)
		f.db.MustExecSuper(`INSERT INTO embedsidecar.answer (question, vector) SELECT sha256(int4send(p.pipeline_id) || oidsend(r.oid) || convert_to('x', 'UTF8')), '[1,2,3]'
			FROM embedsidecar.pipeline AS p, pg_roles AS r WHERE r.rolname = $1`, f.db.SearcherRole())
		for _, level := range []string{"READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE READ ONLY"} {
			if _, err := searcher.conn.Exec(t.Context(), `BEGIN ISOLATION LEVEL `+level); err != nil {
				t.Fatal(err)
			}
			searcher.sees(`SELECT embedsidecar.embed('x'), embedsidecar.embed('x', 'docs')`, "[1,2,3] [1,2,3]")
			if _, err := searcher.conn.Exec(t.Context(), `COMMIT`); err != nil {
				t.Fatal(err)
			}
		}
		f.db.MustExecSuper(`UPDATE embedsidecar.answer SET made_at = now() - interval '61 s'`)
		searcher.refused(`SELECT embedsidecar.embed('x')`, nobody, within)
		readersAreTold(t, f.db, searcher, readerRole)
	})
}

// readersAreTold checks that details of what is wrong are for those who may read the table, or see the sidecars.
func readersAreTold(t *testing.T, db *testenv.Database, searcher *person, readerRole string) {
	t.Helper()
	// An embedder's words may name files and addresses.
	db.MustExecSuper(`UPDATE embedsidecar.answer SET vector = NULL, problem = 'the embedder fails: /of/others', made_at = now()`)
	fails := func() string {
		_, err := searcher.conn.Exec(t.Context(), `SELECT embedsidecar.asked('docs', 'x', now() - interval '1 h', NULL, NULL)`)
		return fmt.Sprint(err)
	}
	if got := fails(); !strings.Contains(got, "the embedder fails") || strings.Contains(got, "/of/others") {
		t.Errorf("who may not read the table is told: %s", got)
	}
	db.MustExec("GRANT SELECT (body) ON docs TO " + db.SearcherRole())
	if got := fails(); !strings.Contains(got, "/of/others") {
		t.Errorf("who may read the table is told: %s", got)
	}
	// Why a sidecar does not stream may be about tables of others.
	db.MustExec(`INSERT INTO embedsidecar.worker (instance, version, slot_name, stream, stream_detail)
		SELECT 'one', 'v', p.slot_name, 'stuck', 'over others' FROM embedsidecar.pipeline AS p LIMIT 1`)
	told := func() string {
		_, err := searcher.conn.Exec(t.Context(), `SELECT embedsidecar.asked('docs', 'y', now(), '1 s', NULL)`)
		if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
			return pg.Detail
		}
		return fmt.Sprint(err)
	}
	if got := told(); !strings.Contains(got, "one stuck") || strings.Contains(got, "over others") {
		t.Errorf("who may not see the sidecars is told: %s", got)
	}
	db.MustExecSuper("GRANT " + readerRole + " TO " + db.SearcherRole())
	if got := told(); !strings.Contains(got, "one stuck over others") {
		t.Errorf("who may see them is told: %s", got)
	}
}
