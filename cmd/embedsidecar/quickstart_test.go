package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/testenv"
)

// typing runs a command with input, without a terminal, and a wanted exit status.
func (s *stage) typing(status int, input string, args ...string) (stdout, stderr string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), waitTimeout)
	defer cancel()
	c := exec.CommandContext(ctx, "embedsidecar", args...)
	c.Env = s.environ
	var out, errOut bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader(input), &out, &errOut
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	if got := c.ProcessState.ExitCode(); got != status {
		s.t.Fatalf("embedsidecar %s: status %d, want %d\n%s%s", strings.Join(args, " "), got, status, out.String(),
			errOut.String())
	}
	s.clean(out.String() + errOut.String())
	return out.String(), errOut.String()
}

// untouched fails the test if the database has objects of ours.
func (s *stage) untouched() {
	s.t.Helper()
	if testenv.Value[bool](s.db, `SELECT to_regnamespace('embedsidecar') IS NOT NULL OR to_regclass('docs_embedding') IS NOT NULL
		OR EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $1)`, s.slot) {
		s.t.Error("something was made")
	}
}

// TestQuickstart_FromURLToSearch starts with nothing but the URL of a database.
func TestQuickstart_FromURLToSearch(t *testing.T) {
	t.Parallel()
	s := newStage(t, 40)
	url := s.db.URL(testenv.Owner)
	s.set("EMBEDSIDECAR_DATABASE_URL=")
	s.db.MustExec(`CREATE TABLE people (id int PRIMARY KEY, email text, state text);
		INSERT INTO people SELECT i, i || '@example.com', 'is ' || i % 2 FROM generate_series(1, 300) AS i;
		CREATE TABLE notes (id int PRIMARY KEY, note text, kind text); INSERT INTO notes VALUES (1, 'a note', 'short')`)

	_, stderr := s.typing(0, "", "quickstart", url, "--dry-run")
	s.has(stderr, "wal_level logical", `the most text is in "public"."docs": title, body (40 rows`,
		`or "public"."notes" (1 row): `, "takes     40 rows, about ", `makes     schema embedsidecar`, `embedding table "public"."docs_embedding"`)
	if strings.Contains(stderr, "people") {
		t.Errorf("addresses and categories are taken for text:\n%s", stderr)
	}
	_, plan, _ := strings.Cut(stderr, "  model     ")
	if lines := strings.Count(plan, "\n"); lines > 10 || strings.Contains(stderr, "CREATE TABLE") {
		t.Errorf("a plan of %d lines, or with SQL:\n%s", lines, stderr)
	}
	_, stderr = s.typing(0, "", "quickstart", url, "--dry-run", "--show-sql")
	s.has(stderr, "would make publication", "CREATE TABLE", "  undo: DROP TABLE")
	_, stderr = s.typing(0, "", "quickstart", url, "notes", "--dry-run")
	s.has(stderr, `"public"."notes": note (not kind; 1 row`)
	_, stderr = s.typing(0, "", "quickstart", url, "notes", "--columns", "kind,note", "--dry-run")
	s.has(stderr, `"public"."notes": kind, note`, `embedding table "public"."notes_embedding"`)
	_, stderr = s.typing(2, "", "quickstart", url)
	s.has(stderr, "there is no terminal to confirm", "--yes")
	s.untouched()

	file := filepath.Join(t.TempDir(), "embedsidecar.yaml")
	stdout, stderr := s.typing(0, "title 7 body 7\n\n \ntitle 8\n", "quickstart", url, "--yes", "--save", file)
	s.has(stdout, "DISTANCE", "title ")
	if answers := strings.Count(stdout, "DISTANCE"); answers != 2 {
		t.Errorf("%d answers to two questions:\n%s", answers, stdout)
	}
	s.has(stderr, "pipeline public.docs: 40 of 40 rows embedded", "retains WAL", "embedsidecar run --database-url=",
		"uninstall --yes", "wrote "+file)

	if n := testenv.Value[float32](s.db, "SELECT reltuples FROM pg_class WHERE oid = 'docs'::regclass"); n != 40 {
		t.Errorf("the server knows of %v rows of a table that was just loaded, want 40", n)
	}

	// The printed commands to go on work.
	s.at(url)
	s.run(0, "run", "--once", "--config", file)
	s.run(0, "search", "public.docs", "title 7")
	_, stderr = s.typing(0, "", "quickstart", url, "--yes")
	s.has(stderr, `pipeline "public.docs" is already set up: using it`)
	s.run(0, "init", "--pipeline", "notes: note -> table notes_embedding")
	_, stderr = s.typing(8, "", "quickstart", url, "--yes")
	s.has(stderr, `set up already: pipeline "public.docs"`, "quickstart URL public.docs")
	s.run(0, "uninstall", "public.notes", "--yes", "--drop-embeddings")
	_, stderr = s.typing(8, "", "quickstart", url, "docs", "--yes", "--save", file)
	s.has(stderr, "name another file")
	stdout, stderr = s.typing(0, "title 3\n", "quickstart", "docs") // there is nothing to ask
	s.has(stdout, "title ")
	s.has(stderr, "already set up: using it")
	s.run(0, "uninstall", "--yes", "--drop-embeddings")
	s.untouched()
}

// TestQuickstart_Refuses what cannot become a search, before anything is done, with a hint.
func TestQuickstart_Refuses(t *testing.T) {
	t.Parallel()
	s := newStage(t, 0)
	refused := func(status int, args []string, words ...string) {
		t.Helper()
		_, stderr := s.typing(status, "", append([]string{"quickstart", "--yes"}, args...)...)
		s.has(stderr, words...)
		s.untouched()
	}
	refused(6, []string{"postgres://app@" + testenv.Nowhere(t) + "/mydb"}, "error ES0401")
	refused(2, []string{"postgres://app@:x/mydb"}, "ES0102")
	refused(2, nil, "error ES0215", `no rows yet: "public"."docs"`)
	refused(2, []string{"--table", "docs", "--columns", "title", "--into-table", "docs_embedding"}, "ES0215", "no rows")
	s.db.MustExec("INSERT INTO docs VALUES (1, 'word', NULL)")
	refused(2, nil, "error ES0215", `no column with sentences in it that this role may read: "public"."docs"`)
	refused(2, []string{"dogs"}, "ES0204", "docs")
	s.db.MustExec(`CREATE VIEW seen AS SELECT * FROM docs; CREATE TABLE heap (note text); INSERT INTO heap VALUES ('no key here')`)
	refused(2, []string{s.db.URL(testenv.Owner), "seen"}, "ES0205", "is a view")
	refused(2, nil, "ES0206", "no primary key", `ALTER TABLE "public"."heap" ADD COLUMN id bigint GENERATED`)
	s.db.MustExec(`CREATE TABLE parts (id int PRIMARY KEY, body text) PARTITION BY RANGE (id);
		CREATE TABLE parts_1 PARTITION OF parts DEFAULT; INSERT INTO parts VALUES (1, 'part of a whole')`)
	_, stderr := s.typing(0, "", "quickstart", "--dry-run")
	s.has(stderr, `the most text is in "public"."parts": body (1 row`)

	stranger := s.db.Role("")
	s.db.MustExec("GRANT SELECT ON parts TO " + stranger)
	s.as(stranger)
	refused(7, nil, "ES0501", "REPLICATION")
}

// TestTrust_QuickstartReadsNoTableOfAStranger: an index of the table has a function of the table's owner, which runs as
// the role that reads the table. A superuser reads none of it before trusting the owner.
func TestTrust_QuickstartReadsNoTableOfAStranger(t *testing.T) {
	t.Parallel()
	s := newStage(t, 0)
	stranger := s.db.Role("")
	s.db.MustExecSuper(`CREATE SCHEMA lair AUTHORIZATION ` + stranger + `; SET ROLE ` + stranger + `;
		CREATE TABLE lair.notes (id int PRIMARY KEY, note text); INSERT INTO lair.notes VALUES (1, 'a note of many words');
		CREATE FUNCTION lair.ran() RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN
			IF current_user <> '` + stranger + `' THEN RAISE EXCEPTION 'it has run as %', current_user; END IF; RETURN true; END $$;
		CREATE INDEX ON lair.notes (id) WHERE lair.ran(); RESET ROLE`)
	s.as(testenv.Superuser)
	_, stderr := s.typing(2, "", "quickstart", "--dry-run", "--trust-owner", testenv.Owner)
	s.has(stderr, "ES0502", "would run as superuser", stranger)
	s.db.MustExecSuper(`CREATE TABLE texts (id int PRIMARY KEY, body text); INSERT INTO texts VALUES (1, 'some words')`)
	_, stderr = s.typing(0, "", "quickstart", "--dry-run", "--trust-owner", testenv.Owner)
	s.has(stderr, "left out:", stranger, `the most text is in "public"."texts"`)
	if strings.Contains(stderr, "it has run") {
		t.Error(stderr)
	}
}

// TestQuickstart_AServerThatIsNotReady is refused before the user is asked: a server with default settings, for a role
// without rights, with everything that is missing and the plan; and a server whose slots are all taken.
func TestQuickstart_AServerThatIsNotReady(t *testing.T) {
	t.Parallel()
	server := testenv.Own(t, testenv.Options{Config: map[string]string{
		"wal_level": "replica", "max_replication_slots": "1",
	}})
	s := newStage(t, 3, testenv.On(server))
	_, stderr := s.typing(2, "", "quickstart", "--yes")
	s.has(stderr, "wal_level: it is replica, want logical", "error ES0202", "ALTER SYSTEM SET wal_level",
		"then restart the server")
	if strings.Contains(stderr, "  takes ") {
		t.Errorf("a plan for a server that is not ready:\n%s", stderr)
	}
	s.untouched()

	stranger := s.db.Role("")
	s.db.MustExecSuper("DROP EXTENSION vector; SELECT pg_create_physical_replication_slot('taken'); GRANT SELECT ON docs TO " + stranger)
	s.as(stranger)
	_, stderr = s.typing(2, "", "quickstart", "--yes")
	s.has(stderr, "found: server PostgreSQL", "max_wal_senders", // what is right
		`the most text is in "public"."docs": title, body (3 rows`, // the suggestion
		"7 things are not ready", "nothing was done", "pg_replication_slots", "ES0202",
		`may not create in schema "public"`, `table "public"."docs" belongs to "`+testenv.Owner+`"`) // why
	s.untouched()

	// The statements for an administrator come once, as one block.
	_, end, _ := strings.Cut(stderr, "error ES0202")
	_, block, _ := strings.Cut(end, `paste this into psql in database "`+s.db.Name+"\", as a superuser:\n")
	block, _, _ = strings.Cut(block, "embedsidecar: hint: then restart the server")
	for _, statement := range []string{"ALTER SYSTEM SET wal_level", "ALTER SYSTEM SET max_replication_slots", "CREATE EXTENSION vector", `ALTER ROLE "`, "GRANT CREATE ON DATABASE", "GRANT CREATE ON SCHEMA", "CREATE PUBLICATION"} {
		if strings.Count("\n"+block, "\n"+statement) != 1 || strings.Count(end, "\n"+statement) != 1 {
			t.Errorf("%s is not there once, in the block:\n%s", statement, end)
		}
	}
	for line := range strings.Lines(block) {
		if !strings.HasSuffix(strings.TrimSpace(line), ";") && !strings.HasPrefix(line, "-- ") {
			t.Errorf("%q is no statement, and no comment", line)
		}
	}

	// A superuser is also told of untrusted objects: of each owner, and of an existing schema.
	s.as(testenv.Superuser)
	s.db.MustExecSuper("CREATE TABLE letters (id int PRIMARY KEY, body text); ALTER TABLE letters OWNER TO " + stranger)
	_, stderr = s.typing(2, "", "quickstart", "--yes")
	s.has(stderr, "found: server PostgreSQL", "4 things are not ready", "ALTER SYSTEM SET wal_level",
		"pg_replication_slots", "--trust-owner "+testenv.Owner+" ", "--trust-owner "+stranger+" ",
		`REPLICATION, and connect as `+stranger) // a choice that has no statement in the block
	if _, block, _ := strings.Cut(stderr, "paste this into psql"); strings.Contains(block, "connect as") {
		t.Errorf("words of a choice within the statements:\n%s", block)
	}
	s.db.MustExecSuper("CREATE SCHEMA embedsidecar AUTHORIZATION " + stranger)
	_, stderr = s.typing(7, "", "quickstart", "--yes")
	s.has(stderr, "found: server PostgreSQL", "3 things are not ready", "ALTER SYSTEM SET wal_level",
		"pg_replication_slots", "schema embedsidecar belongs to", "--trust-owner "+stranger+" ")
	s.db.MustExecSuper("DROP SCHEMA embedsidecar; DROP TABLE letters")
	s.untouched()

	s.as(testenv.Owner)
	if err := server.Configure(map[string]string{"wal_level": "logical"}); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(t.Context(), testenv.Fast); err != nil {
		t.Fatal(err)
	}
	s.db.Pool.Reset()
	_, stderr = s.typing(8, "", "quickstart", "--yes")
	s.has(stderr, "all 1 are in use", "error ES0303", "pg_replication_slots")
	s.untouched()
}

// TestQuickstart_OnePasteAndOneRerun: a role without rights, and a table of another role without a primary key. An
// administrator runs what is printed, unchanged, and then the same command works.
func TestQuickstart_OnePasteAndOneRerun(t *testing.T) {
	t.Parallel()
	s := newStage(t, 0)
	s.db.MustExec("CREATE TABLE heap (id int, note text); INSERT INTO heap SELECT i, 'a note of words ' || i FROM generate_series(1, 5) AS i")
	stranger := s.db.Role("")
	s.as(stranger)
	_, stderr := s.typing(7, "", "quickstart", "heap", "--yes")
	var script strings.Builder
	for line := range strings.Lines(stderr) {
		if !strings.HasPrefix(line, "embedsidecar: ") && (strings.HasPrefix(line, "-- ") || strings.HasSuffix(line, ";\n")) {
			script.WriteString(line)
		}
	}
	s.has(script.String(), `GRANT SELECT ON "public"."heap"`, `ALTER TABLE "public"."heap" ADD PRIMARY KEY ("id");`,
		`belongs to "`+testenv.Owner+`"`, "GRANT CREATE ON SCHEMA", "CREATE PUBLICATION", "REPLICATION;")
	s.db.MustExecSuper(script.String())
	stdout, stderr := s.typing(0, "note of words\n", "quickstart", "heap", "--yes", "--trust-owner", testenv.Owner)
	s.has(stdout, "DISTANCE", "a note")
	s.has(stderr, "5 of 5 rows embedded")
}

// TestQuickstart_NamesAVulnerablePgvector.
func TestQuickstart_NamesAVulnerablePgvector(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	s.db.MustExecSuper("UPDATE pg_extension SET extversion = '0.8.1' WHERE extname = 'vector'")
	_, stderr := s.typing(0, "", "quickstart", "--dry-run")
	s.has(stderr, "warning: extension vector 0.8.1 has the vulnerability CVE-2026-3172")
}

// TestQuickstart_ASlotOfAnotherDatabase is reported together with everything else that is missing.
func TestQuickstart_ASlotOfAnotherDatabase(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	other := testenv.DB(t)
	other.MustExec("SELECT pg_create_logical_replication_slot($1, 'pgoutput')", s.slot)
	t.Cleanup(func() { other.MustExec("SELECT pg_drop_replication_slot($1)", s.slot) })
	_, stderr := s.typing(8, "", "quickstart", "--yes")
	s.has(stderr, "slot names are unique per server", "--slot")
	stranger := s.db.Role("REPLICATION")
	s.db.MustExec("GRANT SELECT ON docs TO " + stranger)
	s.as(stranger)
	_, stderr = s.typing(8, "", "quickstart", "--yes")
	s.has(stderr, "4 things are not ready", "slot names are unique per server", "--slot",
		"GRANT CREATE ON DATABASE", "GRANT CREATE ON SCHEMA", "CREATE PUBLICATION")
}

// TestQuickstart_ASecondDatabaseOfAServer gets its own slot if none is named.
func TestQuickstart_ASecondDatabaseOfAServer(t *testing.T) {
	t.Parallel()
	server := testenv.Own(t, testenv.Options{})
	s := newStage(t, 3, testenv.On(server))
	s.set("EMBEDSIDECAR_SLOT=")
	testenv.DB(t, testenv.On(server)).MustExec("SELECT pg_create_logical_replication_slot('embedsidecar', 'pgoutput')")
	slot := "--slot=embedsidecar_" + s.db.Name
	for range 2 { // the second time it finds the pipeline again
		stdout, stderr := s.typing(0, "title 1\n", "quickstart", "docs", "--yes")
		s.has(stdout, "title 1")
		s.has(stderr, `The slot "embedsidecar" is that of database`, " run "+slot, " uninstall --yes --drop-embeddings "+slot)
	}
	stdout, _ := s.run(0, "status", slot)
	s.has(stdout, "public.docs")
}

// TestQuickstart_SuggestsWhereMostTextIs: not the table with most rows, nor the one with the longest first rows.
func TestQuickstart_SuggestsWhereMostTextIs(t *testing.T) {
	t.Parallel()
	s := newStage(t, 0)
	s.db.MustExec(`CREATE SCHEMA kb;
		CREATE TABLE kb.articles (id int PRIMARY KEY, body text);
		INSERT INTO kb.articles SELECT i, 'article ' || i || repeat(' many words about it', 1500 + i)
			FROM generate_series(1, 300) AS i;
		CREATE TABLE tickets (id int PRIMARY KEY, subject text, problem text);
		INSERT INTO tickets SELECT i, CASE WHEN i < 500 THEN repeat('at first they were long ', 25) ELSE 'short ' || i END,
			'it does not work any more ' || i FROM generate_series(1, 60000) AS i`)
	_, stderr := s.typing(0, "", "quickstart", "--dry-run")
	s.has(stderr, `the most text is in "kb"."articles": body (300 rows`, `or "public"."tickets" (`)
	var rows int
	_, rest, _ := strings.Cut(stderr, `or "public"."tickets" (`)
	if _, err := fmt.Sscanf(rest, "%d rows", &rows); err != nil || rows < 40000 || rows > 90000 {
		t.Errorf("about %d rows are told, want 60000: %v", rows, err)
	}
}

// TestQuickstart_TextsThatAreLongerThanTheModelReads are counted, and become chunks unless someone says no.
func TestQuickstart_TextsThatAreLongerThanTheModelReads(t *testing.T) {
	t.Parallel()
	s := newStage(t, 10)
	s.set("EMBEDSIDECAR_PLUGIN_FAULTS=never-truncates") // the plugin reports a limit of 8 tokens
	s.db.MustExec("UPDATE docs SET body = repeat('some words of one sentence. ', 20)")
	_, stderr := s.typing(0, "", "quickstart", "docs", "--dry-run")
	s.has(stderr, "10 of 10 texts are longer than the model reads (8 tokens)", "--chunks no", "using chunks")
	_, stderr = s.typing(0, "", "quickstart", "docs", "--dry-run", "--show-sql")
	s.has(stderr, `"chunk_text"`)
	_, stderr = s.typing(0, "", "quickstart", "docs", "--dry-run", "--chunks", "no")
	s.has(stderr, "10 of 10 texts are longer than the model reads (8 tokens)")
	if strings.Contains(stderr, `"chunk_text"`) {
		t.Errorf("chunks, though someone said no:\n%s", stderr)
	}
	s.typing(2, "", "quickstart", "docs", "--dry-run", "--chunks", "perhaps")
	file := filepath.Join(t.TempDir(), "embedsidecar.yaml")
	stdout, stderr := s.typing(0, "sentence\n", "quickstart", "docs", "--yes", "--save", file)
	s.has(stdout, "DISTANCE", "some words")
	s.has(stderr, "s.chunk_text", "10 of 10 rows embedded")
	if n := testenv.Value[int](s.db, "SELECT count(*) FROM docs_embedding"); n <= 10 {
		t.Errorf("%d chunks of 10 texts", n)
	}
	_, stderr = s.run(0, "init", "--dry-run", "--config", file) // the file has the chunks, too
	s.has(stderr, "nothing to do")
}

// TestQuickstart_AnswersFromTheFirstRowsOn, and says how much of the table is searched while the backfill runs.
func TestQuickstart_AnswersFromTheFirstRowsOn(t *testing.T) {
	t.Parallel()
	s := newStage(t, 300)
	s.set("EMBEDSIDECAR_PLUGIN_FAULTS=hang-on=title 299")
	s.set("EMBEDSIDECAR_WORKERS_DRAIN_TIMEOUT=100ms")
	input, typist := io.Pipe()
	d := s.prepared(func(c *exec.Cmd) { c.Stdin = input }, "quickstart", "docs", "--yes")
	t.Cleanup(func() { _ = typist.Close() })
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		return strings.Contains(d.text(), "Ask something"), d.text()
	})
	if _, err := io.WriteString(typist, "title 7 body 7\n"); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, waitTimeout, func() (bool, string) { return strings.Contains(d.text(), "DISTANCE"), d.text() })
	s.has(d.text(), " of 300 rows can be found", " of 300 rows that are embedded so far (")
	embedded := regexp.MustCompile(`\bembedded \[.*\] .* of 300 rows`)
	testenv.Eventually(t, waitTimeout, func() (bool, string) { return embedded.MatchString(d.text()), d.text() })
	if err := typist.Close(); err != nil {
		t.Fatal(err)
	}
	d.end(os.Interrupt, 130)
	s.has(d.text(), "interrupted: what was set up stays", " of 300 rows embedded", "continue", "remove")
	if strings.Contains(d.text(), "ES0003") || strings.Contains(d.text(), "waiting: ") {
		t.Errorf("an orderly end is told as an error, or what is waited for means nothing:\n%s", d.text())
	}
	// The next run tells how many rows are left, and a search tells how many of all rows it covers.
	s.set("EMBEDSIDECAR_PLUGIN_FAULTS=")
	known := testenv.Value[int](s.db, "SELECT count(*) FROM docs_embedding")
	_, stderr := s.typing(0, "", "quickstart", "docs", "--dry-run")
	s.has(stderr, fmt.Sprintf("300 rows, %d texts to embed", 300-known))
	_, stderr = s.run(0, "search", "public.docs", "title 7")
	s.has(stderr, fmt.Sprintf("among the %d of 300 rows that are embedded so far (", known))
}

// TestQuickstart_ASuperuserIsToldWhoSearches: the printed statements fail for a superuser, so the role for them is
// printed before.
func TestQuickstart_ASuperuserIsToldWhoSearches(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	_, stderr := s.typing(0, "", "quickstart", "docs", "--yes")
	if strings.Contains(stderr, "A superuser cannot search") {
		t.Errorf("the owner is taken for one:\n%s", stderr)
	}
	s.as(testenv.Superuser)
	_, stderr = s.typing(0, "", "quickstart", "docs", "--yes", "--trust-owner", testenv.Owner)
	s.has(stderr, "A superuser cannot search", "roles --yes", `GRANT embedsidecar_searcher TO "`+testenv.Owner+`"`)
}

// TestQuickstart_WhatItPrintsSearchesThisTable: the printed statement and request work when pasted.
func TestQuickstart_WhatItPrintsSearchesThisTable(t *testing.T) {
	t.Parallel()
	s := newStage(t, 0)
	s.db.MustExec(`CREATE SCHEMA "Odd one"; CREATE TABLE "Odd one"."it's 100% ""odd""" ("the id" int, part text,
		"Text: a" text, PRIMARY KEY ("the id", part)); INSERT INTO "Odd one"."it's 100% ""odd""" SELECT i, 'p' || i % 3,
		'a text of some words ' || i FROM generate_series(1, 20) AS i`)
	at := testenv.Nowhere(t)
	s.set("EMBEDSIDECAR_HTTP=" + at)
	s.set("EMBEDSIDECAR_NO_AUTH=true")
	_, stderr := s.typing(0, "it's a text of words 7\n", "quickstart", "--yes")
	printed := func(title string) string {
		t.Helper()
		_, after, found := strings.Cut(stderr, "-- "+title+" --\n")
		text, _, _ := strings.Cut(after, "\n\n--")
		text, _, _ = strings.Cut(text, "\n\npipeline ") // the summary comes last
		if !found {
			t.Fatalf("%s is not printed:\n%s", title, stderr)
		}
		return strings.TrimSpace(text)
	}
	d := s.background("run")
	d.logged("queries are answered", "address")
	statements := printed("SQL")
	search := statements[strings.LastIndex(statements, "SELECT s.distance"):]
	testenv.Eventually(t, waitTimeout, func() (bool, string) { // a new sidecar may not know the pipeline yet
		if ask, _, older := strings.Cut(statements, ";\nSELECT s.distance"); older { // CALL has a transaction of its own
			if _, err := s.db.Pool.Exec(t.Context(), ask); err != nil {
				return false, err.Error()
			}
		}
		found, err := s.db.Pool.Exec(t.Context(), search)
		return err == nil && found.RowsAffected() == 5, fmt.Sprintf("%v, %s:\n%s", err, found, statements)
	})
	c := exec.CommandContext(t.Context(), "bash", "-c", printed("curl"))
	c.Env = append(os.Environ(), "NO_PROXY=*", "no_proxy=*")
	answer, err := c.CombinedOutput()
	if n := strings.Count(string(answer), `"distance"`); err != nil || n != 5 {
		t.Errorf("%v, %d rows:\n%s\n%s", err, n, printed("curl"), answer)
	}
	for _, title := range []string{"Python, psycopg", "Python, SQLAlchemy", "Python, Django"} {
		program := exec.CommandContext(t.Context(), "python3", "-c", "import ast, sys; ast.parse(sys.stdin.read())")
		program.Stdin = strings.NewReader(printed(title))
		if out, err := program.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s\n%s", title, err, out, printed(title))
		}
	}
	d.end(os.Interrupt, 0)
}

// TestQuickstart_Interrupted during the backfill: the set-up stays, and it prints how to go on.
func TestQuickstart_Interrupted(t *testing.T) {
	t.Parallel()
	s := newStage(t, 30)
	s.set("EMBEDSIDECAR_PLUGIN_FAULTS=hang-on=title 29") // beyond the first few, which the estimate embeds
	s.set("EMBEDSIDECAR_WORKERS_DRAIN_TIMEOUT=100ms")
	d := s.background("quickstart", "docs", "--yes")
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		made := testenv.Value[bool](s.db, "SELECT to_regclass('embedsidecar.lease') IS NOT NULL")
		return made && testenv.Value[bool](s.db, "SELECT EXISTS (SELECT FROM embedsidecar.lease)") &&
			strings.Contains(d.text(), "embedding the first rows: "), d.text()
	})
	d.end(os.Interrupt, 130)
	if strings.Contains(d.text(), "ES0003") {
		t.Errorf("an orderly end is told as an error:\n%s", d.text())
	}
	s.has(d.text(), "interrupted: what was set up stays", " of 30 rows embedded", "continue", "remove")
	s.set("EMBEDSIDECAR_PLUGIN_FAULTS=")
	stdout, _ := s.typing(0, "title 5\n", "quickstart", "docs")
	s.has(stdout, "title ")
	if n := testenv.Value[int](s.db, "SELECT count(*) FROM docs_embedding"); n != 30 {
		t.Errorf("%d rows have vectors, want 30", n)
	}
	d = s.background("quickstart", "docs") // its standard input is /dev/null: it ends by itself
	d.ends(0)
}
