package queue_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// told is a row in each state that there is, by its key.
var told = []struct{ key, state, verdict, ledger, task string }{
	{"1", "embedded", "current", `'x', '\x01', 1`, ""},
	{"2", "stale", "not_at_work", `'x', '\x01', 1`, "todo"},
	{"3", "failed", "dead_letter", `'x', '\x01', 1`, "failed"},
	{"4", "pending", "not_at_work", "", "todo"},
	{"5", "cancelled", "cancelled", "", "cancelled"},
	{"6", "no_text", "no_text", `NULL, '\x0000000000000000', 1`, ""},
	{"7", "no_text", "no_token", `'x', '\x0000000000000000', 1`, ""},
	{"8", "stale", "not_queued", `NULL, '', 1`, ""},
	{"9", "stale", "not_queued", `'x', '\x01', 0`, ""},
	{"10", "failed", "dead_letter", "", "failed"},
	{"11", "pending", "not_at_work", `NULL, '\x0000000000000000', 1`, "retrying"},
	{"12", "", "unknown", "", ""},
	{"13", "skipped", "skipped", `'x', '\x01', 1`, "skip"},
}

// TestP10_SQLTellsOfRows: where each row stands, joined by the table's own key, and each row's story, as the role that
// may read and no more.
func TestP10_SQLTellsOfRows(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.db.RunRole()
	readerRole, _ := f.db.SQLRoles()
	f.db.MustExec(`INSERT INTO docs SELECT i, 'secret text' FROM generate_series(1, 13) AS i`)
	f.db.MustExec(`INSERT INTO embedsidecar.worker (instance, version, slot_name) VALUES ('one', 'v', 'slot')`)
	f.db.MustExec(`GRANT SELECT ON docs TO ` + readerRole)
	var states, verdicts []string
	for _, r := range told {
		if r.ledger != "" {
			f.db.MustExec(`INSERT INTO embedsidecar.ledger (pipeline_id, row_key, source_hash, lsn, text_hash, vector_hash, generation)
				VALUES ($1, $2, '', '0/5', `+r.ledger+`)`, f.id, r.key)
		}
		if r.task == "skip" {
			f.db.MustExec(`UPDATE embedsidecar.ledger SET skipped = 'y' WHERE row_key = $1`, r.key)
		} else if r.task != "" {
			f.db.MustExec(`INSERT INTO embedsidecar.task (pipeline_id, row_key, state, lane, xid, first_lsn, last_lsn, committed_at, due_at, error_class, error_code, error_message)
				VALUES ($1, $2, $3, 1, '3', '0/6', '0/6', now(), now() + interval '1 h', 'data', 'bad', 'it is bad')`, f.id, r.key, r.task)
		}
		states = append(states, strings.TrimSpace(r.key+" "+r.state))
		verdicts = append(verdicts, r.key+" "+r.verdict)
	}
	reader := newPerson(t, f.db, readerRole)
	reader.sees(`SELECT trim(d.id || ' ' || coalesce(s.state, '')) FROM docs AS d
		LEFT JOIN embedsidecar.row_state AS s ON s.pipeline = 'docs' AND s.row_key = d.id::text ORDER BY d.id`, states...)
	story := func(topic, fact string) string {
		return `SELECT d.id || ' ' || coalesce(` + fact + `, '') FROM docs AS d, embedsidecar.explain('docs', d.id::text) AS e WHERE e.topic = '` + topic + `' ORDER BY d.id`
	}
	reader.sees(story("verdict", "e.facts ->> 'verdict'"), verdicts...)
	reader.sees(`SELECT topic FROM embedsidecar.explain('docs', '3')`, "pipeline", "changes", "queue", "ledger", "history", "verdict", "next step", "next step", "next step")
	reader.sees(`SELECT regexp_replace(sentence, '[0-9]+ s ago', '0 s ago', 'g') FROM embedsidecar.explain('docs', '3') WHERE topic IN ('queue', 'verdict', 'next step')`,
		"It has a task because of a change that was committed 0 s ago (LSN 0/6). The task is a dead letter: data bad: it is bad. The task was created 0 s ago.",
		"the row is a dead letter: data bad: it is bad", "fix the cause; any change of the row retries it, and so do these",
		"embedsidecar tasks retry docs 3", "SELECT * FROM embedsidecar.retry_failed('docs', keys => ARRAY['3']);")
	reader.sees(`SELECT count(*) FROM docs AS d, embedsidecar.explain('docs', d.id::text) AS e WHERE e::text LIKE '%secret%' OR sentence IS NULL`, "0")
	reader.sees(`SELECT facts ->> 'state', sentence LIKE '%it is not at work: copied: this server is not%' FROM embedsidecar.explain('docs', '4')
		WHERE topic = 'pipeline'`, "copied t")
	f.lease(t, 1)
	reader.sees(`SELECT facts ->> 'state' FROM embedsidecar.explain('docs', '2') WHERE topic = 'queue'`, "in_progress")
	reader.refused(`SELECT embedsidecar.explain('dosc', '1')`, "42704", "there are: docs")
	reader.refused(`SELECT embedsidecar.explain('docs', NULL)`, "22004", "by its key")
	reader.refused(`SELECT embedsidecar.row_facts(1, '1')`, "42501")
	reader.refused(`SELECT embedsidecar.notify_changes(true)`, "42501")
	reader.sees(`SELECT count(*) FROM embedsidecar.explain('docs', repeat('x', 1000000))`, "7")

	// Who may not read the text himself gets no hash of it, by which a short one is guessed.
	const hash = `SELECT facts ->> 'text_hash' || ' ' || (facts ->> 'source_hash') || ' ' || (sentence LIKE '%text hash hidden%')
		FROM embedsidecar.explain('docs', '1') WHERE topic = 'ledger'`
	const shown, hidden = "78  false", "hidden hidden true"
	reader.sees(hash, shown)
	for _, way := range [][2]string{
		{`REVOKE SELECT ON docs FROM ` + readerRole, hidden},
		{`GRANT SELECT (id) ON docs TO ` + readerRole, hidden},
		{`GRANT SELECT (body) ON docs TO ` + readerRole, shown},
		{`ALTER TABLE docs ENABLE ROW LEVEL SECURITY`, hidden}, // a policy may hide the row
		{`ALTER TABLE docs DISABLE ROW LEVEL SECURITY`, shown},
		{`ALTER TABLE docs ADD COLUMN more text`, hidden}, // what is read of the table is not known
		{`UPDATE embedsidecar.pipeline SET watched_columns = '{body}'`, shown},
		{`CREATE TABLE notes (id int, note text, more text)`, shown},
		{`UPDATE embedsidecar.pipeline SET joins = jsonb_build_array(jsonb_build_object('oid', 'notes'::regclass::oid, 'uses', '{note}'::text[]))`, hidden},
		{`GRANT SELECT (note) ON notes TO ` + readerRole, shown},
		{`ALTER TABLE notes ENABLE ROW LEVEL SECURITY`, hidden},
		{`ALTER TABLE notes DISABLE ROW LEVEL SECURITY`, shown},
		{`UPDATE embedsidecar.pipeline SET joins = jsonb_set(joins, '{0}', joins -> 0 #- '{uses}')`, hidden}, // all of it is read
		{`GRANT SELECT ON notes TO ` + readerRole, shown},
		{`REVOKE SELECT (body) ON docs FROM ` + readerRole, hidden},
	} {
		f.db.MustExec(way[0])
		reader.sees(hash, way[1])
	}
	for _, view := range []string{
		"tasks", "row_state", "dead_letters", "errors", "status", "progress", "audit", "workers", "pipelines", "health",
		"lanes", "slots",
	} {
		reader.sees(`SELECT count(*) FROM embedsidecar.`+view+` AS v WHERE v::text LIKE '%secret%' OR to_jsonb(v) ?| '{text_hash,source_hash,vector_hash}'`, "0")
	}
	reader.refused(`SELECT embedsidecar.may_see_text(1)`, "42501")

	for _, key := range [][]string{{"a"}, {"a|b", `c\`}, {"", ""}, {`\|`, "|", "ü"}} {
		reader.sees(`SELECT embedsidecar.row_key(VARIADIC `+literals(key)+`)`, pipeline.JoinKey(key))
	}
}

// literals writes texts as an array.
func literals(texts []string) string {
	quoted := make([]string, len(texts))
	for i, s := range texts {
		quoted[i] = database.Literal(s)
	}
	return "ARRAY[" + strings.Join(quoted, ", ") + "]::text[]"
}

// What happens is told to those who listen, when somebody has turned that on; until then, and afterwards, there is
// nothing that could cost anything.
func TestSQL_TellsOfChangesToThoseWhoListen(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	run := f.db.RunRole()
	readerRole, operatorRole := f.db.SQLRoles()
	operator, listener := newPerson(t, f.db, operatorRole), newPerson(t, f.db, readerRole).conn
	if _, err := listener.Exec(t.Context(), "LISTEN embedsidecar_changes"); err != nil {
		t.Fatal(err)
	}
	changing := regexp.MustCompile(`"(seconds|audit_id)": [0-9.]+, `)
	heard := func() (list []string) { // until a word of our own
		t.Helper()
		f.db.MustExec(`SELECT pg_notify('embedsidecar_changes', 'end')`)
		for {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			n, err := listener.WaitForNotification(ctx)
			cancel()
			if err != nil {
				t.Fatal(err)
			}
			if n.Payload == "end" {
				return list
			}
			list = append(list, changing.ReplaceAllString(n.Payload, ""))
		}
	}
	const triggers = `SELECT count(*) FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
		WHERE c.relnamespace = 'embedsidecar'::regnamespace AND NOT t.tgisinternal AND t.tgname = 'tell'`
	things := func(want int) {
		t.Helper()
		if n := testenv.Value[int](f.db, triggers); n != want {
			t.Errorf("%d triggers, want %d", n, want)
		}
	}
	happens := func() {
		t.Helper()
		for i := range 3 {
			if _, err := f.enqueue(t.Context(), change(fmt.Sprint(i), 10)); err != nil {
				t.Fatal(err)
			}
		}
		f.finish(t, f.lease(t, 3), "failed")
		for _, sql := range []string{
			`SELECT embedsidecar.pause()`, `SELECT embedsidecar.resume()`, `SELECT embedsidecar.pause('docs')`, `SELECT embedsidecar.pause('docs')`,
			`SELECT embedsidecar.resume('docs')`, `UPDATE embedsidecar.pipeline SET status = 'missing'`, `UPDATE embedsidecar.pipeline SET status = 'active'`,
			`INSERT INTO embedsidecar.scan (pipeline_id, barrier) SELECT pipeline_id, '3' FROM embedsidecar.pipeline`, `UPDATE embedsidecar.scan SET phase = 'rows'`,
			`UPDATE embedsidecar.scan SET phase = 'done', rows_seen = 12, tasks_made = 9`, `INSERT INTO embedsidecar.worker (instance, version) VALUES ('one', 'v')`,
			`UPDATE embedsidecar.worker SET last_seen_at = now()`, `UPDATE embedsidecar.worker SET stream = 'stuck'`,
			`UPDATE embedsidecar.worker SET problems = jsonb_build_object((SELECT pipeline_id::text FROM embedsidecar.pipeline), '{"code": "plugin_down", "detail": "secret"}'::jsonb)`,
			`UPDATE embedsidecar.worker SET problems = '{}'`, `DELETE FROM embedsidecar.worker`, `DELETE FROM embedsidecar.scan`, `DELETE FROM embedsidecar.task`,
		} {
			f.db.MustExec(sql)
		}
	}
	things(0)
	happens()
	if list := heard(); list != nil {
		t.Errorf("nobody asked, and %q is told", list)
	}
	operator.sees(`SELECT embedsidecar.notify_changes(true, dry_run => true), embedsidecar.notify_changes(true), embedsidecar.notify_changes(true)`, "would_be_on on already_on")
	operator.refused(`SELECT embedsidecar.notify_changes(NULL)`, "22004")
	things(5)
	happens()
	want := []string{
		`{"rows": 3, "event": "dead_letters", "pipeline": "docs"}`,
		`{"event": "paused"}`, `{"event": "resumed"}`, `{"event": "paused", "pipeline": "docs"}`, `{"event": "resumed", "pipeline": "docs"}`,
		`{"event": "status", "state": "missing", "pipeline": "docs"}`, `{"event": "status", "state": "active", "pipeline": "docs"}`,
		`{"job": "scan", "open": true, "rows": 0, "event": "job", "stage": "rows", "pipeline": "docs"}`,
		`{"job": "scan", "open": false, "rows": 9, "event": "job", "stage": "done", "pipeline": "docs"}`, `{"event": "stream", "state": "stuck", "instance": "one"}`,
		`{"event": "embedder", "state": "plugin_down", "instance": "one", "pipeline": "docs"}`, `{"event": "embedder", "state": "works", "instance": "one", "pipeline": "docs"}`,
	}
	if list := heard(); !slices.Equal(list, want) {
		t.Errorf("told:\n%s\nwant:\n%s", strings.Join(list, "\n"), strings.Join(want, "\n"))
	}
	// The role that works trusts these triggers.
	conn := newPerson(t, f.db, run).conn
	if found, err := database.Strangers(t.Context(), conn); err != nil || len(found) > 0 {
		t.Errorf("%v, %v", found, err)
	}
	operator.sees(`SELECT embedsidecar.notify_changes(false), embedsidecar.notify_changes(false)`, "off already_off")
	things(0)
	happens()
	if list := heard(); list != nil {
		t.Errorf("it was turned off, and %q is told", list)
	}
	operator.sees(`SELECT string_agg(result, ' ' ORDER BY audit_id) FROM embedsidecar.audit WHERE action = 'notify_changes'`, "on already_on off already_off")
}

// A view beside the embedding table shows rows with their vectors to those who may see the rows. It is made of the
// table as it is, by whoever asks for it.
func TestSQL_AViewOfRowsWithTheirVectors(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		f := newFixture(t, testenv.Major(major))
		f.db.RunRole()
		readerRole, _ := f.db.SQLRoles()
		reader := newPerson(t, f.db, readerRole)
		f.db.MustExec(`ALTER TABLE docs ADD COLUMN embedded_at date, ADD COLUMN "Owner's" text, ADD COLUMN gone int`)
		f.db.MustExec(`ALTER TABLE docs DROP COLUMN gone`)
		f.db.MustExec(`CREATE TABLE docs_embedding (id bigint, chunk_no int, generation int, text_hash bytea, embedded_at timestamptz, embedding vector(3), start_byte int,
			end_byte int, context text, chunk_text text, PRIMARY KEY (id, chunk_no))`)
		f.db.MustExec(`INSERT INTO docs (id, body, "Owner's") VALUES (1, 'a', 'ann'), (2, 'b', 'bob'), (3, 'none yet', 'bob')`)
		f.db.MustExec(`INSERT INTO docs_embedding SELECT i, c, 1, '', now(), '[1,2,3]', 0, 1, '', 'part ' || c FROM generate_series(1, 2) AS i, generate_series(0, 1) AS c`)
		makes := func(args string) {
			t.Helper()
			var sql string
			if err := reader.conn.QueryRow(t.Context(), `SELECT embedsidecar.view_sql(`+args+`)`).Scan(&sql); err != nil {
				t.Fatal(err)
			}
			for statement := range strings.SplitSeq(strings.TrimSuffix(sql, ";"), ";\n") {
				f.db.MustExec(statement)
			}
		}
		makes(`'docs'`)
		f.db.MustExec(`UPDATE embedsidecar.pipeline SET chunking = '{"strategy": "tokens"}'`)
		makes(`'docs', 'Chunks of "docs"'`)
		f.db.MustExec(`GRANT SELECT ON docs, docs_embedding, docs_embedding_view, "Chunks of ""docs""" TO ` + readerRole)
		reader.sees(`SELECT DISTINCT id, body, embedded_at IS NULL, "Owner's", vector_embedded_at IS NULL, embedding FROM docs_embedding_view ORDER BY 1`,
			"1 a t ann f [1,2,3]", "2 b t bob f [1,2,3]")
		reader.sees(`SELECT id, chunk_no, chunk_text FROM "Chunks of ""docs""" ORDER BY embedding <-> '[1,2,4]', id, chunk_no`, "1 0 part 0", "1 1 part 1", "2 0 part 0", "2 1 part 1")
		f.db.MustExec(`ALTER TABLE docs ENABLE ROW LEVEL SECURITY`)
		f.db.MustExec(`CREATE POLICY mine ON docs TO ` + readerRole + ` USING ("Owner's" = 'bob')`)
		if major >= 15 {
			reader.sees(`SELECT DISTINCT id FROM docs_embedding_view`, "2")
		} else {
			reader.refused(`SELECT embedsidecar.view_sql('docs')`, "0A000", "row-level security")
		}
		// The view is in the way of who alters the table, as every view is: it goes, and comes again.
		if _, err := f.db.Pool.Exec(t.Context(), `ALTER TABLE docs DROP COLUMN embedded_at`); err == nil {
			t.Error("a column that the view shows was dropped")
		}
		f.db.MustExec(`DROP VIEW docs_embedding_view, "Chunks of ""docs"""`)
		f.db.MustExec(`ALTER TABLE docs DROP COLUMN embedded_at, DISABLE ROW LEVEL SECURITY`)
		makes(`'docs'`)
		f.db.MustExec(`SELECT embedded_at, chunk_text FROM docs_embedding_view`)
		f.db.MustExec(`UPDATE embedsidecar.pipeline SET destination_table = NULL, destination_schema = NULL, destination_column = 'embedding'`)
		reader.refused(`SELECT embedsidecar.view_sql('docs')`, "42809", "in its table")
		reader.refused(`SELECT embedsidecar.view_sql('nope')`, "42704")
	})
}
