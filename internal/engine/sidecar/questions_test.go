package sidecar_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// searcher is a session of somebody who may search by SQL, and read these tables.
type searcher struct {
	t     *testing.T
	db    *testenv.Database
	conn  *pgx.Conn
	major int
}

func newSearcher(t *testing.T, db *testenv.Database, major int, tables ...string) *searcher {
	t.Helper()
	role := db.SearcherRole()
	for _, table := range tables {
		db.MustExec(`GRANT SELECT ON ` + table + ` TO ` + role)
	}
	conn, err := pgx.Connect(t.Context(), slowly(db.URL(role)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return &searcher{t, db, conn, major}
}

// ask has a text embedded where a function cannot.
func (s *searcher) ask(pipeline, text string) {
	s.t.Helper()
	if s.major >= 17 {
		return
	}
	if _, err := s.conn.Exec(s.t.Context(), `CALL embedsidecar.ask($1, $2, '1 min')`, pipeline, text); err != nil {
		s.t.Fatalf("ask: %v", err)
	}
}

// query returns rows, columns joined by blanks.
func (s *searcher) query(sql string, args ...any) ([]string, error) {
	s.t.Helper()
	rows, err := s.conn.Query(s.t.Context(), sql, append([]any{pgx.QueryResultFormats{pgx.TextFormatCode}}, args...)...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		var words []string
		for _, v := range row.RawValues() {
			words = append(words, string(v))
		}
		return strings.Join(words, " "), nil
	})
}

// finds returns the keys that a search by text finds, best first.
func (s *searcher) finds(pipeline, text string, k int) []string {
	s.t.Helper()
	s.ask(pipeline, text)
	keys, err := s.query(`SELECT row_key FROM embedsidecar.search($1, $2, $3, '1 min')`, pipeline, text, k)
	if err != nil {
		s.t.Fatalf("search %q: %v", pipeline, err)
	}
	return keys
}

// refused fails the test unless a statement is refused with this SQLSTATE, in these words.
func (s *searcher) refused(sql, state, word string) {
	s.t.Helper()
	_, err := s.conn.Exec(s.t.Context(), sql)
	pg, _ := errors.AsType[*pgconn.PgError](err)
	if pg == nil || pg.Code != state || !strings.Contains(pg.Message+" "+pg.Hint+" "+pg.Detail, word) {
		s.t.Errorf("%s: %v, want SQLSTATE %s and %q", sql, err, state, word)
	}
}

// TestP10_AWriteIsFoundByText: commits, each followed by a wait and a search by text that must find the row, as the
// least-privileged role. EMBEDSIDECAR_TEST_COMMITS says how many.
func TestP10_AWriteIsFoundByText(t *testing.T) {
	t.Parallel()
	commits := 50
	if n, err := strconv.Atoi(os.Getenv("EMBEDSIDECAR_TEST_COMMITS")); err == nil {
		commits = n
	}
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		db := testenv.DB(t, testenv.Major(major))
		db.MustExec(docs)
		r := newRig(t, db, intoTable("docs", "body"))
		r.options = func(o *sidecar.Options) { o.NoDirect, o.Heartbeat = false, time.Hour }
		r.start()
		r.settle()
		s := newSearcher(t, db, major, "docs", "docs_embedding")
		reader, _ := db.SQLRoles()
		db.MustExecSuper(`GRANT ` + reader + ` TO ` + db.SearcherRole())
		wait := `SELECT embedsidecar.wait_for(timeout => '5 min')`
		if major < 17 {
			wait = `CALL embedsidecar.wait_until(timeout => '5 min')`
		}
		var waits, searches []time.Duration
		for i := 1001; i <= 1000+commits; i++ {
			text := fmt.Sprintf("written %d", i)
			db.MustExec(`INSERT INTO docs (id, body) VALUES ($1, $2)`, i, text)
			began := time.Now()
			if got, err := s.query(wait); err != nil || !slices.Equal(got, []string{"t"}) {
				t.Fatalf("row %d: %v, %v", i, got, err)
			}
			waits = append(waits, time.Since(began))
			began = time.Now()
			if got := s.finds("docs", text, 1); !slices.Equal(got, []string{fmt.Sprint(i)}) {
				t.Fatalf("row %d: found %v", i, got)
			}
			searches = append(searches, time.Since(began))
		}
		for what, took := range map[string][]time.Duration{"wait": waits, "search": searches} {
			slices.Sort(took)
			t.Logf("PostgreSQL %d, %d commits: %s p50 %s, p99 %s", major, commits, what, took[len(took)/2], took[len(took)*99/100])
		}
	})
}

// TestSQL_SearchShowsWhatTheCallerMaySee: each shape of table and destination, with the rights and the policies of
// whoever asks.
func TestSQL_SearchShowsWhatTheCallerMaySee(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		db := testenv.DB(t, testenv.Major(major))
		db.MustExec(docs)
		db.MustExec(`CREATE TABLE "we ""ird" ("a b" text, "c'd" int, body text, embedding halfvec(8), PRIMARY KEY ("a b", "c'd"))`)
		db.MustExec(`CREATE TABLE parts (id int PRIMARY KEY, body text) PARTITION BY RANGE (id)`)
		db.MustExec(`CREATE TABLE parts_a PARTITION OF parts FOR VALUES FROM (0) TO (1000)`)
		db.MustExec(`CREATE TABLE bits (id int PRIMARY KEY, body text, embedding bit(8))`)
		db.MustExec(`CREATE TABLE pieces (id int PRIMARY KEY, body text)`)
		weird, pieces := column(`we "ird`, "body"), chunked("pieces", pipeline.Chunking{Strategy: pipeline.ChunkTokens, Tokens: 16})
		r := newRig(t, db, intoTable("docs", "body"), weird, intoTable("parts", "body"), column("bits", "body"), pieces)
		r.start()
		for _, table := range []string{"docs", "parts", "bits"} {
			db.MustExec(`INSERT INTO ` + table + ` (id, body) SELECT i, 'text ' || i FROM generate_series(101, 160) AS i`)
		}
		db.MustExec(`INSERT INTO "we ""ird" SELECT 'x|\' || i, i, 'text ' || i FROM generate_series(1, 20) AS i`)
		db.MustExec(`INSERT INTO pieces VALUES (1, $1), (2, 'another text')`, document(paragraphs(7, 3)))
		r.settle()

		s := newSearcher(t, db, major)
		role := db.SearcherRole()
		s.ask("docs", "text 107")
		s.refused(`SELECT * FROM embedsidecar.search('docs', 'text 107')`, "42501", "GRANT SELECT (id) ON public.docs TO "+role)
		// Nor does it learn what a text or a filter says.
		if got, err := s.query(`SELECT (embedsidecar.search_statement('docs', '{}')).near,
			(embedsidecar.text_statement('docs')).statement`); err != nil || !slices.Equal(got, []string{" "}) {
			t.Errorf("the statements of a table that it may not read: %q, %v", got, err)
		}
		for _, table := range []string{"docs", "docs_embedding", `"we ""ird"`, "parts", "parts_embedding", "bits", "pieces", "pieces_embedding"} {
			db.MustExec(`GRANT SELECT ON ` + table + ` TO ` + role)
		}
		for _, c := range []struct{ pipeline, text, key, columns string }{
			{"docs", "text 107", "107", `{"id": 107}`},
			{"parts", "text 107", "107", `{"id": 107}`},
			{`we "ird`, "text 7", `x\|\\7|7`, `{"a b": "x|\\7", "c'd": 7}`},
			{"pieces", "another text", "2", `{"id": 2}`},
		} {
			s.ask(c.pipeline, c.text)
			got, err := s.query(`SELECT row_key, key, abs(distance) < 0.001 FROM embedsidecar.search($1, $2, 1, '1 min')`, c.pipeline, c.text)
			if want := c.key + " " + c.columns + " t"; err != nil || !slices.Equal(got, []string{want}) {
				t.Errorf("%s: %q, %v, want %q", c.pipeline, got, err, want)
			}
		}
		if got := s.finds("bits", "text 107", 60); len(got) != 60 || !slices.Contains(got[:10], "107") {
			t.Errorf("bits: %v", got)
		}
		// The chunk that is nearest, with its text.
		third := testenv.Value[string](db, `SELECT chunk_text FROM pieces_embedding WHERE id = 1 AND chunk_no = 2`)
		s.ask("pieces", third)
		if got, err := s.query(`SELECT row_key, chunk_no, chunk_text FROM embedsidecar.search('pieces', $1, 5, '1 min')`, third); err != nil || len(got) != 2 ||
			got[0] != "1 2 "+third {
			t.Errorf("chunks: %q, %v", got, err)
		}
		// Neighbours, which need nobody, and a text's vector for a statement of one's own.
		if got, err := s.query(`SELECT row_key FROM embedsidecar.neighbours('docs', (SELECT embedding::text FROM docs_embedding WHERE id = 109), 1)`); err != nil ||
			!slices.Equal(got, []string{"109"}) {
			t.Errorf("neighbours: %v, %v", got, err)
		}
		s.refused(`SELECT * FROM embedsidecar.neighbours('docs', '[1,2]')`, "22000", "dimensions")
		s.refused(`SELECT * FROM embedsidecar.neighbours('docs', $$[1]'); DROP TABLE docs; --$$)`, "22P02", "")
		s.ask("docs", "text 111")
		if got, err := s.query(`SELECT id FROM docs_embedding ORDER BY embedding <=> (SELECT embedsidecar.embed('text 111', 'docs', '1 min')::vector) LIMIT 1`); err != nil ||
			!slices.Equal(got, []string{"111"}) {
			t.Errorf("embed: %v, %v", got, err)
		}
		s.searchesFiltered()
		// Row-level security, also where an index finds hidden rows first; the session's settings are as they were.
		db.MustExec(`CREATE INDEX ON docs_embedding USING hnsw (embedding vector_cosine_ops)`)
		db.MustExec(`ALTER TABLE docs ENABLE ROW LEVEL SECURITY`)
		db.MustExec(`CREATE POLICY few ON docs TO ` + role + ` USING (id IN (150, 151, 152))`)
		got := s.finds("docs", "text 107", 3)
		slices.Sort(got)
		if !slices.Equal(got, []string{"150", "151", "152"}) {
			t.Errorf("with a policy: %v", got)
		}
		s.hidesTasks(role, r.pipelines[0].ID)
		s.ask("docs", "text 150")
		if got, err := s.query(`WITH s AS MATERIALIZED (SELECT count(*) FROM embedsidecar.search('docs', 'text 150', 500, '1 min')) SELECT count, current_setting('hnsw.ef_search') FROM s`); err != nil ||
			!slices.Equal(got, []string{"3 40"}) {
			t.Errorf("settings: %v, %v", got, err)
		}
		// A renamed table is searched by the name of its pipeline; one that is gone is told.
		db.MustExec(`ALTER TABLE parts RENAME TO portions`)
		if got := s.finds("parts", "text 107", 1); !slices.Equal(got, []string{"107"}) {
			t.Errorf("renamed: %v", got)
		}
		s.ask("bits", "text 107")
		db.MustExec(`DROP TABLE bits`)
		s.refused(`SELECT * FROM embedsidecar.search('bits', 'text 107')`, "55000", "cannot be searched now")
	})
}

// hidesTasks: whether a row that it does not see has a task a role learns neither by a search nor by the key.
func (s *searcher) hidesTasks(role string, pipelineID int32) {
	s.t.Helper()
	s.db.MustExecSuper(`INSERT INTO embedsidecar.task (pipeline_id, row_key, lane, xid, first_lsn, last_lsn, committed_at, state)
		SELECT pipeline_id, '107', 1, pg_current_xact_id(), '0/1', '0/1', now(), 'cancelled' FROM embedsidecar.pipeline WHERE name = 'docs'`)
	hidden := fmt.Sprintf(`SELECT embedsidecar.rows_with_tasks(%d, '{107}')::text`, pipelineID)
	fresh := `SELECT row_key FROM embedsidecar.neighbours('docs', (SELECT embedding::text FROM docs_embedding WHERE id = 150), 1, fresh_only => true)`
	for _, sql := range []string{hidden, fresh} {
		s.refused(sql, "42501", "GRANT embedsidecar_reader TO "+role)
	}
	s.db.MustExecSuper(`GRANT SELECT ON embedsidecar.tasks TO ` + role)
	for sql, want := range map[string]string{hidden: "{107}", fresh: "150"} {
		if got, err := s.query(sql); err != nil || !slices.Equal(got, []string{want}) {
			s.t.Errorf("%s: %v, %v", sql, got, err)
		}
	}
}

// TestTrust_WhoMayNotReadKeysIsNotToldOfTheirTasks: a role that reads another column of the table cannot guess keys.
func TestTrust_WhoMayNotReadKeysIsNotToldOfTheirTasks(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id text PRIMARY KEY, body text)`)
	id := newRig(t, db, intoTable("docs", "body")).pipelines[0].ID
	db.MustExecSuper(`INSERT INTO embedsidecar.task (pipeline_id, row_key, lane, xid, first_lsn, last_lsn, committed_at)
		VALUES ($1, 'secret', 1, pg_current_xact_id(), '0/1', '0/1', now())`, id)
	role := db.Role("")
	conn, err := pgx.Connect(t.Context(), db.URL(role))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	db.MustExecSuper(`GRANT USAGE ON SCHEMA embedsidecar TO ` + role)
	db.MustExecSuper(`GRANT EXECUTE ON FUNCTION embedsidecar.rows_with_tasks TO ` + role)
	for column, want := range map[string]string{"body": "", "id": "{secret}"} {
		db.MustExecSuper(`GRANT SELECT (` + column + `) ON docs TO ` + role)
		var got string
		err := conn.QueryRow(t.Context(), `SELECT embedsidecar.rows_with_tasks($1, '{secret}')::text`, id).Scan(&got)
		if (err != nil) != (want == "") || got != want {
			t.Errorf("with a grant on %s: %q, %v, want %q", column, got, err, want)
		}
		db.MustExecSuper(`REVOKE ALL (` + column + `) ON docs FROM ` + role)
	}
}

// TestTrust_ARefusalTellsNoPathToWhoMayNotSeeTheConfiguration: of a pipeline of that name that comes from a file.
func TestTrust_ARefusalTellsNoPathToWhoMayNotSeeTheConfiguration(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id text PRIMARY KEY, body text)`)
	name := newRig(t, db, intoTable("docs", "body")).pipelines[0].Name
	db.MustExecSuper(`UPDATE embedsidecar.pipeline SET origin = '/srv/secret.yaml'`)
	role := db.Role("")
	conn, err := pgx.Connect(t.Context(), db.URL(role))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	db.MustExecSuper(`GRANT USAGE ON SCHEMA embedsidecar TO ` + role)
	db.MustExecSuper(`GRANT EXECUTE ON FUNCTION embedsidecar.create_pipeline TO ` + role)
	for _, sees := range []bool{false, true} {
		_, err := conn.Exec(t.Context(), `SELECT embedsidecar.create_pipeline(jsonb_build_object('name', $1::text))`, name)
		if err == nil || !strings.Contains(err.Error(), "file") || strings.Contains(err.Error(), "secret.yaml") != sees {
			t.Errorf("it may see the configuration: %t: %v", sees, err)
		}
		db.MustExecSuper(`GRANT SELECT ON embedsidecar.configuration TO ` + role)
	}
}

// TestP10_ASearchKnowsTasksWhateverItsSessionPrints: a row that has a task is left out, though the session writes its
// key in another time zone and style than tasks are written in.
func TestP10_ASearchKnowsTasksWhateverItsSessionPrints(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id bigint, at timestamptz, body text, PRIMARY KEY (id, at))`)
	db.MustExec(`INSERT INTO docs SELECT i, '2024-05-06 07:08:09+00', 'text ' || i FROM generate_series(1, 5) AS i`)
	r := newRig(t, db, intoTable("docs", "body"))
	_, stop := r.start()
	r.settle()
	stop()
	const waiting = "3|2024-05-06 07:08:09+00"
	db.MustExecSuper(`INSERT INTO embedsidecar.task (pipeline_id, row_key, lane, xid, first_lsn, last_lsn, committed_at, state)
		SELECT pipeline_id, $1, 1, pg_current_xact_id(), '0/1', '0/1', now(), 'cancelled' FROM embedsidecar.pipeline`, waiting)
	conn, err := pgx.Connect(t.Context(), db.URL(testenv.Owner))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	if _, err := conn.Exec(t.Context(), `SET timezone = 'Asia/Tokyo'; SET datestyle = 'German'`); err != nil {
		t.Fatal(err)
	}
	for fresh, want := range map[bool]int{false: 5, true: 4} {
		rows, _ := conn.Query(t.Context(),
			`SELECT row_key FROM embedsidecar.neighbours('docs', '[1,2,3,4,5,6,7,8]', 10, fresh_only => $1)`, fresh)
		keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil || len(keys) != want || slices.Contains(keys, waiting) == fresh {
			t.Errorf("fresh only: %t: %q, %v", fresh, keys, err)
		}
	}
}

// searchesFiltered has conditions, pages and bounds of a search by SQL of docs, which has rows 101 to 160.
func (s *searcher) searchesFiltered() {
	s.t.Helper()
	s.ask("docs", "text 107")
	found := func(k int, more string) []string {
		s.t.Helper()
		got, err := s.query(fmt.Sprintf(`SELECT row_key FROM embedsidecar.search('docs', 'text 107', %d, %s)`, k, more))
		if err != nil {
			s.t.Errorf("%s: %v", more, err)
		}
		return got
	}
	all := found(60, `filter => '{"id": {"$gte": 101}}'`)
	if len(all) != 60 || all[0] != "107" {
		s.t.Errorf("all rows: %v", all)
	}
	if got := found(10, `"offset" => 20`); !slices.Equal(got, all[20:30]) {
		s.t.Errorf("the third page is %v of %v", got, all)
	}
	if got := found(60, `max_distance => 0.001`); !slices.Equal(got, []string{"107"}) {
		s.t.Errorf("near ones: %v", got)
	}
	for filter, where := range map[string]string{
		`{"id": 109}`:                               `id = 109`,
		`{"id": [109, "110"]}`:                      `id IN (109, 110)`,
		`{"id": {"$gt": 109, "$lte": 112}}`:         `id > 109 AND id <= 112`,
		`{"id": {"$nin": [101, 102], "$lt": 105}}`:  `id IN (103, 104)`,
		`{"body": {"$ne": null}, "id": {"$lt": 3}}`: `id < 3`,
		`{"body": null}`:                            `body IS NULL`,
		`{"body": "x' OR true --"}`:                 `false`,
		`{"body": {"$in": ["text 120", "none"]}}`:   `body = 'text 120'`,
	} {
		got := found(60, `filter => `+literal(filter))
		want, err := s.query(`SELECT id::text FROM docs WHERE id > 100 AND ` + where)
		slices.Sort(got)
		slices.Sort(want)
		if err != nil || !slices.Equal(got, want) {
			s.t.Errorf("%s: %v, want %v, %v", filter, got, want, err)
		}
	}
	for filter, word := range map[string]string{
		`{"nosuch": 1}`: "no column", `{"id": "x"}`: "does not fit", `{"id": {"$or": [1]}}`: "no operator",
		`{"id": {"$gt": [1]}}`: "take a list", `{"id": [1, null]}`: "null", `{"id": {"$lt": null}}`: "null",
		`[1]`: "an object", `{"id": []}`: "expected 1 to 1000 values", `{"ctid": "(0,1)"}`: "no column",
		`{"id": {"$in": [{}]}}`: "values are strings",
	} {
		state := "22023"
		if word == "no column" {
			state = "42703"
		}
		s.refused(`SELECT * FROM embedsidecar.search('docs', 'text 107', filter => `+literal(filter)+`)`, state, word)
	}
	for _, more := range []string{`10, "offset" => -1`, `10, "offset" => 9991`, `10, max_distance => 'NaN'`, `10001`} {
		s.refused(`SELECT * FROM embedsidecar.search('docs', 'text 107', `+more+`)`, "22023", "")
	}
	s.db.MustExecSuper(`INSERT INTO embedsidecar.task (pipeline_id, row_key, lane, xid, first_lsn, last_lsn, committed_at, state)
		SELECT pipeline_id, '107', 1, pg_current_xact_id(), '0/1', '0/1', now(), 'cancelled' FROM embedsidecar.pipeline WHERE name = 'docs'`)
	if got := found(5, `fresh_only => true`); !slices.Equal(got, all[1:6]) {
		s.t.Errorf("fresh ones: %v, want %v", got, all[1:6])
	}
	s.db.MustExecSuper(`DELETE FROM embedsidecar.task WHERE row_key = '107'`)
}

func literal(text string) string { return `'` + strings.ReplaceAll(text, `'`, `''`) + `'` }

// TestSQL_QuestionsAreAnsweredTogetherAndOnce: within a transaction, one that only reads, for many at once, and for
// strangers not at all; what fails is told, and who waits too long is told why.
func TestSQL_QuestionsAreAnsweredTogetherAndOnce(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	db.MustExec(`INSERT INTO docs (id, body) VALUES (1001, 'a text')`)
	r := newRig(t, db, intoTable("docs", "body"))
	running, stop := r.start()
	r.settle()
	s := newSearcher(t, db, 18, "docs", "docs_embedding")
	for _, begin := range []string{`BEGIN`, `BEGIN READ ONLY`} {
		if _, err := s.conn.Exec(t.Context(), begin); err != nil {
			t.Fatal(err)
		}
		if got := s.finds("docs", "a text", 1); !slices.Equal(got, []string{"1001"}) {
			t.Errorf("%s: %v", begin, got)
		}
		s.refused(`COMMIT; SELECT embedsidecar.embed('   ', 'docs')`, "38000", "holds nothing to embed")
	}
	if n := r.embedder.sent("a text"); n != 2 { // as a document and as a question
		t.Errorf("it was embedded %d times", n)
	}

	forge(t, db)
	r.answersTogether(running)

	// An embedder that has ended is asked again.
	var down atomic.Int32
	r.embedder.hook(func(context.Context, []string) error {
		if down.Add(1) > 2 {
			return nil
		}
		return &embed.Error{Class: embed.Transient, Code: "unavailable", RetryAfter: 70 * time.Millisecond, Err: errors.New("it has ended")}
	})
	if _, err := s.conn.Exec(t.Context(), `SELECT embedsidecar.embed('meanwhile', 'docs', '1 min')`); err != nil {
		t.Errorf("while the embedder starts again: %v", err)
	}

	// What fails is told at once; what takes too long, when the time is over.
	r.embedder.hook(func(context.Context, []string) error {
		return &embed.Error{Class: embed.Transient, Code: "down", Err: errors.New("it is broken")}
	})
	s.refused(`SELECT embedsidecar.embed('fails', 'docs', '1 min')`, "38000", "it is broken")
	hang, end := context.WithCancel(t.Context())
	r.embedder.hook(func(ctx context.Context, _ []string) error {
		select {
		case <-hang.Done():
		case <-ctx.Done():
		}
		return ctx.Err()
	})
	s.refused(`SELECT embedsidecar.embed('hangs', 'docs', '200 ms')`, "55000", "no answer within")
	end()
	r.embedder.hook(nil)

	// After a restart the stream begins before these messages again: nothing is embedded twice.
	if n := running.Asked().Forged.Load(); n < 2 {
		t.Errorf("%d messages were found to be no questions of ours", n)
	}
	recent := func() {
		t.Helper()
		if _, err := s.conn.Exec(t.Context(), `SELECT embedsidecar.embed('a recent text', 'docs', '1 min')`); err != nil {
			t.Errorf("what was answered a moment ago: %v", err)
		}
	}
	recent()
	for _, table := range testenv.Values[string](db, `SELECT oid::regclass::text FROM pg_class
		WHERE relnamespace = 'embedsidecar'::regnamespace AND relkind = 'r'`) {
		if testenv.Value[bool](db, `SELECT EXISTS (SELECT FROM `+table+` AS x WHERE x::text LIKE '%a recent text%'
			OR x::text LIKE '%' || encode('a recent text', 'hex') || '%')`) {
			t.Errorf("the text of a question is in %s", table)
		}
	}
	counts := r.embedder.counts()
	stop()
	recent()
	s.refused(`SELECT embedsidecar.embed('nobody', 'docs')`, "55000", "no sidecar runs")
	again, _ := r.start()
	r.settle()
	if got := s.finds("docs", "after a restart", 1); len(got) != 1 {
		t.Errorf("after a restart: %v", got)
	}
	told := map[string]bool{"meanwhile": true, "hangs": true, "fails": true, "   ": true} // errors, which nobody keeps
	for text, n := range r.embedder.counts() {
		if n != counts[text] && text != "after a restart" && !told[text] {
			t.Errorf("%q was embedded %d times, then %d", text, counts[text], n)
		}
	}
	if again.Asked().Answered.Load() == 0 {
		t.Error("nobody counts")
	}
}

// Who has just set a pipeline up may ask at once.
func TestSQL_APipelineThatIsNewIsAskedAtOnce(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	db.MustExec(notes)
	first, second := intoTable("docs", "body"), intoTable("notes", "body")
	r := newRig(t, db, first)
	r.options = func(o *sidecar.Options) { o.Heartbeat = time.Hour } // it looks for none by itself
	r.start()
	r.settle()
	r.again(first, second)
	s := newSearcher(t, db, 18, "notes", "notes_embedding")
	if _, err := s.query(`SELECT embedsidecar.embed('a text', 'notes', '1 min')`); err != nil {
		t.Error(err)
	}
}

// forge sends what a stranger may send, who has no right to anything of ours.
func forge(t *testing.T, db *testenv.Database) {
	t.Helper()
	stranger, err := pgx.Connect(t.Context(), slowly(db.URL(db.Role(""))))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stranger.Close(context.WithoutCancel(t.Context())) }()
	for _, content := range []string{`''`, `repeat('x', 60)`, `repeat('x', 200000)`, `'\x01' || sha256('a') || int4send(1) || oidsend(10) || int8send(9000000000000000) || 'stolen'`} {
		if _, err := stranger.Exec(t.Context(), `SELECT pg_logical_emit_message(false, 'embedsidecar.ask', (`+content+`)::text::bytea, true)`); err != nil {
			t.Logf("%s: %v", content, err)
		}
	}
}

// answersTogether has many ask while the embedder is busy: its next call answers them.
func (r *rig) answersTogether(running *sidecar.Sidecar) {
	r.t.Helper()
	t, db := r.t, r.db
	held, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r.embedder.hook(func(context.Context, []string) error {
		once.Do(func() { close(held); <-release })
		return nil
	})
	calls := func() int {
		r.embedder.mu.Lock()
		defer r.embedder.mu.Unlock()
		return r.embedder.calls
	}
	before, read := calls(), running.Asked().Read.Load()
	const together = 12
	var works sync.WaitGroup
	asking := func(text string) {
		other := newSearcher(t, db, 18)
		works.Go(func() {
			if _, err := other.conn.Exec(context.WithoutCancel(t.Context()), `SELECT embedsidecar.embed($1, 'docs', '1 min')`, text); err != nil {
				t.Errorf("%s: %v", text, err)
			}
		})
	}
	asking("the first")
	<-held
	for i := range together {
		asking(fmt.Sprint("question ", i))
	}
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		n := running.Asked().Read.Load() - read
		return n >= together+1, fmt.Sprintf("%d questions were read", n)
	})
	close(release)
	works.Wait()
	if n := calls() - before; n > 3 {
		t.Errorf("%d questions took %d calls", together+1, n)
	}
}
