package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestTrust_WhoAsksForAPipelineHasTheRightsOfItsOwner: a role that may request pipelines gets none over tables of
// others, and cannot run code of its own with the rights of the sidecar.
func TestTrust_WhoAsksForAPipelineHasTheRightsOfItsOwner(t *testing.T) {
	t.Parallel()
	s := newStage(t, 2)
	file := s.configured(liveDocs)
	s.run(0, "init", "--config", file)
	tenant := s.db.Role("")
	s.db.MustExecSuper(fmt.Sprintf(`GRANT CREATE, USAGE ON SCHEMA public TO %[1]s; GRANT USAGE ON SCHEMA embedsidecar TO %[1]s;
		GRANT CREATE ON DATABASE %[2]q TO %[1]s`, tenant, s.db.Name))
	pool, err := pgxpool.New(t.Context(), s.db.URL(tenant))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	as := func(sql string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	as(`CREATE TABLE mine (id int PRIMARY KEY, body text);
		INSERT INTO mine VALUES (1, 'one');
		CREATE FUNCTION public.trap(text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
			RAISE EXCEPTION 'the trap has run as %', current_user; END $$;
		CREATE DOMAIN public.dom AS text CHECK (public.trap(VALUE) IS NULL);
		CREATE OPERATOR public.|+| (FUNCTION = public.trap, RIGHTARG = text);
		CREATE TYPE public.pair AS (a public.dom);
		CREATE TYPE public.span AS RANGE (subtype = public.dom);
		CREATE TABLE odd (id int PRIMARY KEY, body text, tags public.dom[], note public.dom, ` + longest + ` public.dom[]);
		CREATE SCHEMA r; CREATE DOMAIN r.body AS public.dom`)
	s.fails(pool, create(askBodies), "permission denied")
	s.db.MustExecSuper("GRANT EXECUTE ON FUNCTION embedsidecar.create_pipeline, embedsidecar.change_pipeline, embedsidecar.drop_pipeline TO " + tenant)
	s.db.MustExec("CREATE TABLE theirs (id int PRIMARY KEY, embedding vector(8)); CREATE SCHEMA closed")
	d := s.start("--config", file, "--trust-owner", "nobody")
	asked := func(call string) (id int64) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), "SELECT request_id FROM embedsidecar."+call).Scan(&id); err != nil {
			t.Fatalf("%s: %v", call, err)
		}
		return id
	}
	for call, words := range refusedOfATenant(s.db.Name) {
		s.has(s.comesTo(asked(call), "refused"), words...)
	}
	text := d.text()
	if strings.Contains(text, "the trap has run") {
		t.Errorf("the trap has run: %s", text)
	}
	// Nor does a table in public take over the name of a table elsewhere.
	s.db.MustExec(`CREATE SCHEMA far; CREATE TABLE far.mine (id int PRIMARY KEY, body text)`)
	s.does(create(`{"table": "far.mine", "columns": ["body"], "into": {"table": "far.mine_embedding"}}`))
	s.has(s.comesTo(asked(create(`{"name": "own", "table": "public.mine", "columns": ["body"], "into": {"table": "mine_embedding"}}`)), "refused"),
		`the name "mine" means pipeline "far.mine"`)
	s.does("drop_pipeline('far.mine')")
	// Harmless expressions pass; the set-up itself may still fail. A role that owns everything may use any expression.
	good := asked(overMine("text", `"concat_ws(' ', lower(body), left(body, 3))"`))
	s.has(s.comesTo(good, "refused"), "mine") // the sidecar does not own the table
	// A pipeline of another owner.
	s.does(create(askBodies))
	s.has(s.comesTo(asked("drop_pipeline('bodies')"), "refused"), "lacks the rights of the owner of")
	s.has(s.comesTo(asked("drop_pipeline('bodies', dry_run => true)"), "refused"), "lacks the rights of the owner of")
	s.has(s.comesTo(asked(`change_pipeline('bodies', '{"where": "true"}')`), "refused"), "lacks the rights of the owner of")
	s.stands("bodies", health.UpToDate)
	d.end(syscall.SIGTERM, 0)

	// A dropped role has no rights, even if another role has its name now.
	gone := tenant + "_gone"
	s.db.MustExecSuper(fmt.Sprintf(`CREATE ROLE %[1]s; GRANT USAGE ON SCHEMA embedsidecar TO %[1]s;
		GRANT EXECUTE ON FUNCTION embedsidecar.drop_pipeline TO %[1]s; SET SESSION AUTHORIZATION %[1]s;
		SELECT embedsidecar.drop_pipeline('bodies'); RESET SESSION AUTHORIZATION;
		DROP OWNED BY %[1]s; DROP ROLE %[1]s; CREATE ROLE %[1]s SUPERUSER`, gone))
	t.Cleanup(func() { s.db.MustExecSuper("DROP ROLE " + gone) })
	d = s.start("--config", file)
	s.has(s.comesTo(testenv.Value[int64](s.db, "SELECT max(request_id) FROM embedsidecar.request"), "refused"), "no longer exists")
	d.end(syscall.SIGTERM, 0)

	// Limits of pending requests.
	_, err = pool.Exec(t.Context(), `SELECT embedsidecar.create_pipeline(jsonb_build_object('name', 'p' || i)) FROM generate_series(1, 200) AS i`)
	if err == nil || !strings.Contains(err.Error(), "100 requests") {
		t.Errorf("200 at once: %v", err)
	}
	s.fails(pool, "next_request('x')", "permission denied")
	s.fails(pool, "finish_request(1, NULL, '{}', NULL)", "permission denied")
	s.fails(pool, "request_pipeline('create', 'x', '{}', NULL, NULL, false)", "permission denied")
}

// longest is a name that the server keeps: it cuts a longer one off.
var longest = strings.Repeat("x", 63)

// overMine requests a pipeline over the table mine.
func overMine(key, value string) string {
	return create(`{"name": "mine", "table": "public.mine", "` + key + `": ` + value + `, "into": {"table": "mine_embedding"}}`)
}

// refusedOfATenant has the requests of a role that owns the tables mine and odd, and words of their refusals.
func refusedOfATenant(database string) map[string][]string {
	odd := func(filter string) string {
		return create(`{"name": "odd", "table": "public.odd", "columns": ["body"], "where": "` + filter +
			`", "into": {"table": "odd_embedding"}}`)
	}
	return map[string][]string{
		// An error about a name that is not in the catalog quotes it.
		overMine("text", `"body::regtype::text"`):                           {"regclass"},
		overMine("text", `"concat(string_to_array(body, ' ')::regrole[])"`): {"regclass"},
		// The server evaluates literals while it parses.
		overMine("text", `"('{1}'::public.dom[])::text"`):                                 {"names"},
		overMine("text", `"CAST('(1)' AS /* of */ \"public\" -- a type\n . pair)::text"`): {"names"},
		overMine("text", `"concat(public.span '[1,2]')"`):                                 {"names"},
		overMine("text", `"concat(E'\\'' , '{1}'::public.dom[], ' \\''')"`):               {"names"},
		overMine("text", `"concat($a$'$a$, '{1}'::public.dom[], $a$'$a$)"`):               {"names"},
		overMine("text", `"body || -- ' \n ('{1}'::public.dom[])::text -- '"`):            {"names"},
		overMine("text", `"('{1}'::U&\"p!0075blic\" UESCAPE '!' . dom[])::text"`):         {"names"},
		overMine("text", `"concat(E''\n'\\', ' || ('{1}'::public.dom[])::text || ')"`):    {"names"},
		overMine("text", `"('{1}'::r.body[])::text"`):                                     {"names"},
		overMine("text", `"('{1}'::`+database+`.public.dom[])::text"`):                    {"names"},
		overMine("columns", `["body"], "ignore": "text || ('{1}'::public.dom[])::text"`):  {"names"},
		odd(`tags = '{1}'`):                             {"tags"},
		odd(longest + `_and_more = '{1}'`):              {"63 bytes"},
		odd(`\"` + longest + `_and_more\" = '{1}'`):     {"63 bytes"},
		odd(`ARRAY[note] = '{1}'`):                      {"note"},
		odd(`width_bucket(note, '{1}') = 1`):            {"note"},
		odd(`coalesce(array_agg(note), '{1}') IS NULL`): {"note"},
		odd(`(SELECT ARRAY[x] = '{1}' FROM unnest(ARRAY[U&\"n!006fte\" UESCAPE '!']) AS x)`): {"names"},
		odd(`coalesce(r, '(1,a,\"{b}\",c)') IS NULL`):                                        {"whole row"},
		odd(`coalesce(U&\"\\0072\", '(1,a,\"{b}\",c)') IS NULL`):                             {"names"},
		create(`{"name": "mine", "table": "public.mine", "columns": ["body"], "joins": [{"table": "public.docs", "as": "d", "on": {"id": "id"}, "text": "title"}], "into": {"table": "mine_embedding"}}`): {"joins"},
		create(askBodies): {"lacks the rights of the owner of", "docs"},
		"create_pipeline('" + askBodies + "', dry_run => true)":                                                                                                                             {"lacks the rights of the owner of", "docs"},
		create(`{"name": "mine", "table": "public.mine", "columns": ["body"], "into": {"table": "closed.mine_embedding"}}`):                                                                 {"lacks the rights of the owner of", "closed.mine_embedding"},
		create(`{"name": "public.docs", "table": "public.mine", "columns": ["body"], "into": {"table": "mine_embedding"}}`):                                                                 {"means pipeline", "docs"},
		overMine("text", `"public.trap(body)"`):                                                                                                                                             {"trap"},
		overMine("text", `"body::public.dom::text"`):                                                                                                                                        {"dom"},
		overMine("text", `"(OPERATOR(public.|+|) body)"`):                                                                                                                                   {"|+|"},
		overMine("text", `"pg_read_file('/etc/passwd')"`):                                                                                                                                   {"pg_read_file"},
		overMine("text", `"table_to_xml('embedsidecar.installation', true, false, '')::text"`):                                                                                              {"installation"},
		overMine("text", `"(SELECT secret::text FROM embedsidecar.installation)"`):                                                                                                          {"names embedsidecar.installation"},
		overMine("text", `"current_setting('data_directory')"`):                                                                                                                             {"current_setting"},
		create(`{"name": "mine", "table": "public.mine", "columns": ["body"], "where": "public.trap(body) IS NULL", "into": {"table": "mine_embedding"}}`):                                  {"trap"},
		create(`{"name": "mine", "table": "public.mine", "columns": ["body"], "priority": "public.trap(body)", "into": {"table": "mine_embedding"}}`):                                       {"trap"},
		create(`{"name": "mine", "table": "public.mine", "columns": ["body"], "ignore": "public.trap(text)", "into": {"table": "mine_embedding"}}`):                                         {"trap"},
		create(`{"name": "mine", "table": "public.mine", "columns": ["body"], "chunking": {"strategy": "sentences", "context": "public.trap(body)"}, "into": {"table": "mine_embedding"}}`): {"trap"},
		create(`{"name": "mine", "table": "public.mine", "columns": ["body"], "overwrite": true, "into": {"table": "public.theirs"}}`):                                                      {"theirs"},
		create(`{"name": "mine", "table": "public.mine", "columns": ["body"], "into": {"table": "embedsidecar.ledger"}}`):                                                                   {"ledger"},
	}
}

// TestTrust_ANameThatBecameAnothersIsJudgedAgain: a request for a role's own table does not apply to a table of another
// owner that gets the name later: neither in a running sidecar, nor at a start, nor by init. It applies to a new table
// of the same role.
func TestTrust_ANameThatBecameAnothersIsJudgedAgain(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	file := s.configured(liveDocs)
	s.run(0, "init", "--config", file)
	asker, other := s.db.Role(""), s.db.Role("")
	s.db.MustExecSuper(fmt.Sprintf(`GRANT CREATE, USAGE ON SCHEMA public TO %[1]s, %[2]s; GRANT %[1]s, %[2]s TO %[3]s;
		GRANT USAGE ON SCHEMA embedsidecar TO %[1]s; GRANT EXECUTE ON FUNCTION embedsidecar.create_pipeline TO %[1]s`,
		asker, other, testenv.Owner))
	as := func(role, sql string) {
		t.Helper()
		s.db.MustExecSuper("SET SESSION AUTHORIZATION " + role + "; " + sql + "; RESET SESSION AUTHORIZATION")
	}
	table := func(name, body string) string {
		return "CREATE TABLE " + name + " (id int PRIMARY KEY, body text); INSERT INTO " + name + " VALUES (1, '" + body + "')"
	}
	d := s.start("--config", file)
	for _, name := range []string{"gone", "renamed"} {
		as(asker, table(name, "own")+`; SELECT embedsidecar.create_pipeline('{"name": "`+name+`", "table": "public.`+name+
			`", "columns": ["body"], "into": {"table": "`+name+`_embedding"}}')`)
		s.stands(name, health.UpToDate)
	}
	as(asker, "DROP TABLE gone; ALTER TABLE renamed RENAME TO renamed_old")
	before := testenv.Value[string](s.db, "SELECT string_agg(e::text, ' ') FROM renamed_embedding AS e")
	as(other, table("gone", "secret")+"; "+table("renamed", "secret"))
	words := []string{"role \"" + asker + "\", who requested it, lacks the rights of the owner of public."}
	stay := func() {
		t.Helper()
		if n := testenv.Value[int](s.db, `SELECT count(*)::int FROM embedsidecar.pipeline AS p JOIN pg_class AS c
			ON c.oid = p.table_oid WHERE c.relowner = $1::regrole`, other); n != 0 {
			t.Errorf("%d pipelines read the tables of another", n)
		}
		if now := testenv.Value[string](s.db, "SELECT string_agg(e::text, ' ') FROM renamed_embedding AS e"); now != before {
			t.Errorf("the vectors are %s, and were %s", now, before)
		}
	}
	refused := func() {
		t.Helper()
		s.becomes("gone", health.Missing, words...)
		s.becomes("renamed", health.Otherwise, words...)
		stay()
	}
	refused()
	d.end(syscall.SIGTERM, 0)
	_, stderr := s.run(0, "init", "--config", file)
	s.has(stderr, words...)
	d = s.start("--config", file)
	refused()
	as(other, "DROP TABLE gone")
	as(asker, table("gone", "own again"))
	s.stands("gone", health.UpToDate)
	d.end(syscall.SIGTERM, 0)
}

// TestTrust_ANameGoesOnMeaningWhatItMeant: a name without a schema keeps its meaning when a table of that name in
// another schema gets a pipeline.
func TestTrust_ANameGoesOnMeaningWhatItMeant(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	file := s.configured(liveDocs)
	s.run(0, "init", "--config", file)
	s.db.MustExec(`CREATE TABLE notes (id int PRIMARY KEY, body text)`)
	s.db.MustExec(`CREATE SCHEMA lair`)
	s.db.MustExec(`CREATE TABLE lair.notes (id int PRIMARY KEY, body text)`)
	d := s.start("--config", file)
	s.does(create(`{"table": "public.notes", "columns": ["body"], "into": {"table": "notes_embedding"}}`))
	s.isRefused(create(`{"name": "notes", "table": "lair.notes", "columns": ["body"], "into": {"table": "lair.notes_embedding"}}`), "means pipeline", "public.notes")
	s.does(create(`{"table": "lair.notes", "columns": ["body"], "into": {"table": "lair.notes_embedding"}}`))
	// Nor does a name that a user types or pastes mean several pipelines, or none.
	for _, name := range []string{"*", "not?s", "--yes", "label:team=a", " docs", "docs ", "do\u202ecs", ".."} {
		s.isRefused(create(fmt.Sprintf(`{"name": %q, "table": "lair.notes", "columns": ["body"], "into": {"table": "lair.notes_embedding"}}`, name)),
			"could be taken for")
	}
	if got := testenv.Value[string](s.db, `SELECT name FROM embedsidecar.pipeline WHERE pipeline_id = embedsidecar.pipeline_meant('notes')`); got != "public.notes" {
		t.Errorf("by SQL notes is %q", got)
	}
	stdout, _ := s.run(0, "pause", "notes", "-o", "json")
	s.has(stdout, "public.notes")

	// A pipeline whose name differs from its table's is also meant by the table's name. A table named after the pipeline,
	// or after its schema and name, does not take its place.
	s.db.MustExec(`CREATE TABLE news (id int PRIMARY KEY, body text)`)
	for _, other := range []string{"lair.news", `lair."public.news"`} {
		s.db.MustExec(`CREATE TABLE ` + other + ` (id int PRIMARY KEY, body text)`)
	}
	s.does(create(`{"name": "articles", "table": "public.news", "columns": ["body"], "into": {"table": "news_embedding"}}`))
	s.does(create(`{"table": "lair.news", "columns": ["body"], "into": {"table": "lair.news_embedding"}}`))
	s.does(create(`{"name": "x", "table": "lair.\"public.news\"", "columns": ["body"], "into": {"table": "lair.x_embedding"}}`))
	for _, name := range []string{"news", "public.news"} {
		if got := testenv.Value[string](s.db, `SELECT name FROM embedsidecar.pipeline WHERE pipeline_id = embedsidecar.pipeline_meant($1)`, name); got != "articles" {
			t.Errorf("by SQL %s is %q", name, got)
		}
		stdout, _ := s.run(0, "pause", name, "-o", "json")
		s.has(stdout, `"articles"`)
	}
	s.db.MustExec(`CREATE TABLE lair."n*" (id int PRIMARY KEY, body text)`)
	s.does(create(`{"name": "star", "table": "lair.\"n*\"", "columns": ["body"], "into": {"table": "lair.star_embedding"}}`))
	stdout, _ = s.run(0, "pause", "lair.n*", "-o", "json")
	s.has(stdout, "lair.notes", "lair.news")
	d.end(syscall.SIGTERM, 0)
}

// TestTrust_WhoAskedForAPipelineStopsNobody: if the owner drops or alters the table of a requested pipeline, other
// set-ups still work, those of the file and of other requests.
func TestTrust_WhoAskedForAPipelineStopsNobody(t *testing.T) {
	t.Parallel()
	t.Run("locked", whoLocksATableRefusesNobody)
	s := newStage(t, 2)
	file := s.configured(liveDocs)
	written := func(plugin string, pipelines ...string) {
		t.Helper()
		s.rewrite(file, pipelines...)
		text, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(file, append([]byte("models: [{name: fake, plugin: "+plugin+"}]\n"), text...), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	written("fake", liveDocs)
	s.run(0, "init", "--config", file)
	d := s.start("--config", file)
	s.does(create(strings.Replace(strings.ReplaceAll(askTitles, "titles", "dumb"), "{", `{"model": "fake", `, 1)))
	for _, name := range []string{"gone", "other", "viewed"} {
		s.db.MustExec("CREATE TABLE " + name + " (id int PRIMARY KEY, body text)")
		s.does(create(`{"name": "` + name + `", "table": "public.` + name + `", "columns": ["body"], "into": {"table": "` + name + `_embedding"}}`))
	}
	s.db.MustExec(`DROP TABLE gone; ALTER TABLE other DROP COLUMN body; ALTER TABLE viewed RENAME TO kept;
		CREATE VIEW viewed AS SELECT * FROM kept`)
	s.does(create(askBodies))
	s.vectorsOf("bodies_embedding", 2)
	s.does("drop_pipeline('bodies')")
	d.end(syscall.SIGTERM, 0)

	written("nowhere", liveDocs)
	_, stderr := s.run(0, "init", "--config", file)
	s.has(stderr, "gone", "other", "viewed", "nowhere")
	if strings.Contains(stderr, "not configured") {
		t.Errorf("they are taken for left over:\n%s", stderr)
	}
	written("nowhere", liveDocs, liveBodies)
	id, _, _ := s.asks(create(askTitles))
	s.run(0, "apply", "--yes", "--config", file)
	s.comesTo(id, "done")
	written("fake", liveDocs, liveBodies)
	d = s.start("--config", file)
	s.vectorsOf("bodies_embedding", 2)
	s.vectorsOf("titles_embedding", 2)
	for _, name := range []string{"gone", "other", "viewed", "dumb"} {
		s.does("drop_pipeline('" + name + "')")
	}
	d.end(syscall.SIGTERM, 0)
}

// whoLocksATableRefusesNobody: while a table is locked whose pipeline has an expression, which the server has to parse,
// requests and reloads for other pipelines succeed.
func whoLocksATableRefusesNobody(t *testing.T) {
	t.Parallel()
	s := newStage(t, 2, testenv.On(testenv.Own(t, testenv.Options{}))) // slots of others would wait for it
	s.db.MustExec("CREATE TABLE other (id int PRIMARY KEY, body text)")
	const locked = "name: docs\ntable: public.docs\ntext: lower(title)\ninto: {table: docs_embedding}"
	const other = "name: other\ntable: public.other\ncolumns: [body]\ninto: {table: other_embedding}"
	file := s.configured(locked)
	s.run(0, "init", "--config", file)
	d := s.start("--config", file)
	s.vectorsOf("docs_embedding", 2)
	tx, _ := s.db.Open()
	if _, err := tx.Exec(t.Context(), "LOCK TABLE docs IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	s.does(create(`{"name": "asked", "table": "public.other", "columns": ["body"], "into": {"table": "asked_embedding"}}`))
	works := func(table string) { // rows that were there before wait for their scan, which waits for the transaction
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			s.db.MustExec("INSERT INTO other SELECT count(*), 'text ' || count(*) FROM other")
			return testenv.Value[int](s.db, "SELECT count(*)::int FROM "+table) > 0, table + " is empty"
		})
	}
	works("asked_embedding")
	s.rewrite(file, locked, other)
	s.run(0, "reload", "--config", file)
	works("other_embedding")
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.end(syscall.SIGTERM, 0)
}

// TestTrust_WhoAsksForAPipelineAsksHimself: maintenance of a table and foreign keys run the code of its owner in
// sessions of other roles. A request made there is not a request of these roles.
func TestTrust_WhoAsksForAPipelineAsksHimself(t *testing.T) {
	t.Parallel()
	s := newStage(t, 2)
	s.run(0, "init", "--config", s.configured(liveDocs))
	tenant := s.db.Role("")
	s.db.MustExecSuper(fmt.Sprintf(`GRANT CREATE, USAGE ON SCHEMA public TO %[1]s; GRANT USAGE ON SCHEMA embedsidecar TO %[1]s;
		GRANT EXECUTE ON FUNCTION embedsidecar.create_pipeline, embedsidecar.pause, embedsidecar.explain TO %[1]s;
		CREATE TABLE others (id int PRIMARY KEY); INSERT INTO others VALUES (1); GRANT REFERENCES, SELECT ON others TO %[1]s`, tenant))
	pool, err := pgxpool.New(t.Context(), s.db.URL(tenant))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(t.Context(), `
		CREATE TABLE mine (id int REFERENCES others ON DELETE CASCADE, body text);
		CREATE TABLE told (what text); GRANT SELECT ON told TO public;
		CREATE FUNCTION asks() RETURNS void LANGUAGE plpgsql AS $$ DECLARE call text; BEGIN
			FOREACH call IN ARRAY ARRAY['create_pipeline(''`+askBodies+`'')', 'pause(''docs'')', 'explain(''docs'', ''1'')'] LOOP
				BEGIN
					EXECUTE 'SELECT embedsidecar.' || call;
					INSERT INTO public.told VALUES (call || ' is done for ' || session_user);
				EXCEPTION WHEN insufficient_privilege THEN
					INSERT INTO public.told VALUES (SQLERRM);
				END;
			END LOOP; END $$;
		CREATE FUNCTION steady(t text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN
			IF session_user <> current_user THEN PERFORM public.asks(); END IF; RETURN t; END $$;
		CREATE INDEX ON mine (steady(body));
		CREATE FUNCTION fires() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF session_user <> current_user THEN PERFORM public.asks(); END IF; RETURN OLD; END $$;
		CREATE TRIGGER fires BEFORE DELETE ON mine FOR EACH ROW EXECUTE FUNCTION fires();
		INSERT INTO mine VALUES (1, 'one')`); err != nil {
		t.Fatal(err)
	}
	told := func(prefix string) int {
		return testenv.Value[int](s.db, "SELECT count(*)::int FROM told WHERE what LIKE '"+prefix+"%'")
	}
	for _, sql := range []string{"ANALYZE mine", "REINDEX TABLE mine", "VACUUM FULL mine"} {
		s.db.MustExecSuper(sql)
	}
	if n := told("code of a table calls this"); n < 3 {
		t.Errorf("%d were refused in the sessions of others", n)
	}
	s.db.MustExecSuper("DELETE FROM others")
	if n := told("create_pipeline: a trigger may not call this"); n != 1 {
		t.Errorf("%d were refused in a trigger of a foreign key", n)
	}
	// Nor at the end of the transaction, when the trigger has ended.
	if _, err := pool.Exec(t.Context(), `
		CREATE FUNCTION holds() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			EXECUTE 'DECLARE later CURSOR WITH HOLD FOR SELECT public.asks()'; RETURN NEW; END $$;
		CREATE TABLE holding (id int);
		CREATE TRIGGER holds BEFORE INSERT ON holding FOR EACH ROW EXECUTE FUNCTION holds()`); err != nil {
		t.Fatal(err)
	}
	s.db.MustExecSuper("INSERT INTO holding VALUES (1)")
	if n := told("create_pipeline: a trigger may not call this"); n != 2 {
		t.Errorf("%d were refused in a trigger and in a cursor that another has opened", n)
	}
	if n := told("create_pipeline("); n > 0 {
		t.Error("what code of a table asked for was taken for a request of its caller")
	}
	if n := testenv.Value[int](s.db, "SELECT count(*)::int FROM embedsidecar.request"); n != 0 {
		t.Errorf("there are %d requests", n)
	}
	// Requests in their own statements are their own.
	if _, err := pool.Exec(t.Context(), `
		CREATE FUNCTION checked() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM public.asks(); RETURN true; END $$;
		CREATE TABLE checks (body text CHECK (public.checked()))`); err != nil {
		t.Fatal(err)
	}
	s.db.MustExecSuper("INSERT INTO checks VALUES ('one')")
	if n := told("create_pipeline("); n != 1 {
		t.Errorf("a CHECK has asked %d times: docs/security.md says that it can", n)
	}
}
