package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestTrust_EveryCommandRefusesASchemaOfSomebodyElse: a tenant made the schema, with views in place of tables, and a
// superuser runs commands.
func TestTrust_EveryCommandRefusesASchemaOfSomebodyElse(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	tenant := s.db.Role("")
	s.db.MustExecSuper(fmt.Sprintf(`GRANT CREATE ON DATABASE %q TO %s`, s.db.Name, tenant))
	s.db.MustExecSuper(fmt.Sprintf(`SET ROLE %s;
		CREATE SCHEMA embedsidecar;
		CREATE FUNCTION embedsidecar.trap() RETURNS integer LANGUAGE plpgsql AS $$ BEGIN
			IF (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN
			EXECUTE 'ALTER ROLE %[1]s SUPERUSER'; END IF;
			RETURN 1; END $$;
		CREATE VIEW embedsidecar.schema_version AS SELECT embedsidecar.trap() AS version;
		CREATE VIEW embedsidecar.lsn_checkpoint AS SELECT 'embedsidecar'::name AS slot_name, embedsidecar.trap() AS lsn;
		CREATE VIEW embedsidecar.installation AS SELECT embedsidecar.trap() > 0 AS enabled;
		CREATE VIEW embedsidecar.pipeline AS SELECT embedsidecar.trap() AS pipeline_id;
		RESET ROLE`, tenant))
	s.as(testenv.Superuser)
	for _, command := range [][]string{
		{"status"},
		{"check"},
		{"wait", "--caught-up", "--timeout", "1m"},
		{"verify"},
		{"uninstall", "--yes"},
		{"search", "docs", "x"},
		{"search", "docs", "--like", "1"},
		{"serve", "--http", "127.0.0.1:0", "--no-auth"},
		{"pause"},
		{"resume"},
		{"tasks", "retry"},
		{"init", "--table", "docs", "--columns", "title", "--into", "embedding"},
		{"run", "--once", "--table", "docs", "--columns", "title", "--into", "embedding"},
		{"run", "--once", "--no-init"},
	} {
		_, stderr := s.run(exitPermission, command...)
		s.has(stderr, `belongs to role "`+tenant+`"`, "--trust-owner "+tenant)
		if testenv.Value[bool](s.db, "SELECT rolsuper FROM pg_roles WHERE rolname = $1", tenant) {
			t.Fatalf("%s made %s a superuser", command[0], tenant)
		}
	}
}

// TestTrust_ARowOfTheDatabaseRunsNoProgram: a role that may write into the pipeline table names a program and a model
// folder.
func TestTrust_ARowOfTheDatabaseRunsNoProgram(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	s.once(0)
	dir := t.TempDir()
	evidence, evil := filepath.Join(dir, "evidence"), filepath.Join(dir, "embedsidecar-evil")
	if err := os.WriteFile(evil, []byte("#!/bin/sh\nenv >"+evidence+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	s.db.MustExec("UPDATE embedsidecar.pipeline SET plugin = $1", evil)
	s.db.MustExec("INSERT INTO docs VALUES (4, 'four', 'four')")
	_, stderr := s.run(exitUsage, "search", "public.docs", "x")
	s.has(stderr, evil, "is a path that this configuration does not have", "--plugin")
	for _, command := range [][]string{
		{"check"},
		{"search", "public.docs", "x"},
		{"verify", "--deep", "3"},
		{"run", "--once", "--no-init"},
		{"run", "--once", "--table", "docs", "--columns", "title,body", "--into", "embedding"},
	} {
		c := s.command(append(command, "--timeout", "2s")...)
		out, _ := c.CombinedOutput() // its exit status does not matter: the pipeline cannot work
		if _, err := os.Stat(evidence); err == nil {
			t.Fatalf("%s ran the program:\n%s", command, out)
		}
	}
}

// TestTrust_AnImportRunsNothingOfAStranger: a tenant creates the objects of other programs, and a superuser or the
// owner imports them. Reading a row as JSON looks for casts; functions are called at the end; and a text function
// becomes the pipeline's text.
func TestTrust_AnImportRunsNothingOfAStranger(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	s.db.MustExec("CREATE EXTENSION IF NOT EXISTS vector")
	tenant := s.db.Role("")
	s.db.MustExecSuper(fmt.Sprintf(`GRANT CREATE ON DATABASE %q TO %s; GRANT TRIGGER ON docs TO %[2]s;
		CREATE SCHEMA loot; CREATE SEQUENCE loot.taken; GRANT USAGE ON SCHEMA loot TO PUBLIC;
		GRANT USAGE, SELECT ON SEQUENCE loot.taken TO PUBLIC; CREATE SCHEMA util;
		CREATE FUNCTION util.queue_embeddings() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
		GRANT USAGE ON SCHEMA util TO PUBLIC`, s.db.Name, tenant))
	s.db.MustExecSuper(fmt.Sprintf(`SET ROLE %s;
		CREATE SCHEMA ai; GRANT USAGE ON SCHEMA ai TO PUBLIC; CREATE TYPE ai.trap AS ENUM ('a');
		CREATE FUNCTION ai.spring(ai.trap) RETURNS json LANGUAGE plpgsql AS $$ BEGIN
			PERFORM nextval('loot.taken'); RETURN 'null'::json; END $$;
		CREATE CAST (ai.trap AS json) WITH FUNCTION ai.spring(ai.trap);
		CREATE TABLE ai.vectorizer (id int, trap ai.trap); INSERT INTO ai.vectorizer VALUES (1, 'a');
		GRANT SELECT ON ai.vectorizer TO PUBLIC;
		CREATE SCHEMA pgedge_vectorizer; GRANT USAGE ON SCHEMA pgedge_vectorizer TO PUBLIC;
		CREATE TABLE pgedge_vectorizer.vectorizers (id int); CREATE TABLE pgedge_vectorizer.queue (status text);
		CREATE SCHEMA mine; GRANT USAGE ON SCHEMA mine TO PUBLIC;
		CREATE TABLE mine.langchain_pg_embedding (id int); CREATE TABLE mine.langchain_pg_collection (id int);
		CREATE FUNCTION mine.words(d docs) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN d.title; END $$;
		CREATE TRIGGER t AFTER INSERT ON docs FOR EACH ROW
			EXECUTE FUNCTION util.queue_embeddings('words', 'embedding');
		RESET ROLE`, tenant))
	for _, role := range []string{testenv.Superuser, testenv.Owner} {
		s.as(role)
		for _, source := range []string{"pgai", "pgedge", "langchain", "supabase"} {
			_, stderr := s.run(exitUsage, "import", source, "--model", "fake", "--dry-run")
			s.has(stderr, `belongs to role "`+tenant+`"`, "--trust-owner "+tenant)
		}
	}
	// The owner owns the table, but not the function.
	s.db.MustExecSuper(fmt.Sprintf(`DROP TABLE ai.vectorizer; ALTER SCHEMA ai OWNER TO %s;
		CREATE TABLE ai.vectorizer (id int); ALTER TABLE ai.vectorizer OWNER TO %[1]s;
		CREATE FUNCTION ai.drop_vectorizer(int) RETURNS void LANGUAGE sql AS '';
		ALTER FUNCTION ai.drop_vectorizer(int) OWNER TO %[2]s`, testenv.Owner, tenant))
	_, stderr := s.run(exitUsage, "import", "pgai", "--model", "fake", "--dry-run")
	s.has(stderr, "function ai.drop_vectorizer", tenant)
	// The database owner owns schema public, and may replace tables of others there.
	s.db.MustExecSuper(fmt.Sprintf(`ALTER SCHEMA public OWNER TO pg_database_owner; ALTER DATABASE %q OWNER TO %s;
		CREATE TABLE public.langchain_pg_embedding (id int); CREATE TABLE public.langchain_pg_collection (id int)`,
		s.db.Name, tenant))
	_, stderr = s.run(exitUsage, "import", "langchain", "--model", "fake", "--dry-run")
	s.has(stderr, "schema public", `belongs to role "`+tenant+`"`)
	if testenv.Value[bool](s.db, "SELECT is_called FROM loot.taken") {
		t.Error("an import ran the tenant's code")
	}
}

// TestTrust_AnImportLooksNothingUpWhereStrangersCreate: pgEdge's own function finds a table by the search_path. Where a
// tenant may create functions in the table's schema, one of his with better arguments would be called in it.
func TestTrust_AnImportLooksNothingUpWhereStrangersCreate(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	s.db.MustExec(pgedgeSchema)
	tenant := s.db.Role("")
	s.db.MustExecSuper(fmt.Sprintf(`REVOKE CREATE ON SCHEMA public FROM PUBLIC; GRANT CREATE ON SCHEMA public TO %s, %s;
		CREATE SCHEMA loot; CREATE SEQUENCE loot.taken; GRANT USAGE ON SCHEMA loot TO PUBLIC;
		GRANT USAGE, SELECT ON SEQUENCE loot.taken TO PUBLIC`, testenv.Owner, tenant))
	s.db.MustExecSuper(fmt.Sprintf(`SET ROLE %s;
		CREATE FUNCTION public.format(text, text, text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
			PERFORM nextval('loot.taken'); RETURN pg_catalog.format($1, $2, $3); END $$;
		GRANT EXECUTE ON FUNCTION public.format(text, text, text) TO PUBLIC; RESET ROLE`, tenant))
	for id := range 3 {
		body := fmt.Sprintf("body %d", id+1)
		s.db.MustExec(`INSERT INTO docs_body_chunks (source_id, chunk_index, content, embedding)
			VALUES ($1, 1, $2, $3::text::vector)`, id+1, body, vectorOf(body))
	}
	run := []string{"import", "pgedge", "--model", "fake", "--save", filepath.Join(t.TempDir(), "pgedge.yaml")}
	_, stderr := s.run(exitUsage, run...)
	s.has(stderr, `functions in schema public may be made by role "`+tenant+`"`, "REVOKE CREATE ON SCHEMA",
		"--trust-owner "+tenant)
	if testenv.Value[bool](s.db, "SELECT is_called FROM loot.taken") {
		t.Error("the import ran the tenant's code")
	}
	s.db.MustExecSuper("REVOKE CREATE ON SCHEMA public FROM " + tenant + "; DROP FUNCTION public.format(text, text, text)")
	s.run(0, run...)
}

// TestTrust_NamesStayWithinTheirLine: a script given to psql runs its own statements, and nothing contained in a name.
func TestTrust_NamesStayWithinTheirLine(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	const name = "docs\n\\! touch /tmp/evidence\nDROP TABLE docs; --"
	s.db.MustExec(`CREATE TABLE "a
DROP TABLE docs; --" (id bigint PRIMARY KEY, title text)`)
	file := filepath.Join(t.TempDir(), "c.yaml")
	content := fmt.Sprintf("pipelines:\n- {name: %q, table: docs, columns: [title], into: {column: embedding}}\n- {table: %q, columns: [title], into: {column: embedding}}\n",
		name, "public.\"a\nDROP TABLE docs; --\"")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	script, _ := s.run(0, "init", "--config", file, "--show-sql")
	s.run(0, "init", "--config", file)
	grants, _ := s.run(0, "roles", "--grants", "--config", file)
	for what, text := range map[string]string{"init --show-sql": script, "roles": grants} {
		if outside := outsideQuotes(text); strings.Contains(outside, "DROP TABLE") || strings.Contains(outside, `\!`) {
			t.Errorf("%s:\n%s", what, outside)
		}
	}
}

// outsideQuotes returns a script without line comments, quoted names and constants.
func outsideQuotes(script string) string {
	return regexp.MustCompile(`(?s)--[^\n]*|"(?:[^"]|"")*"|'(?:[^']|'')*'`).ReplaceAllString(script, "")
}

// TestTrust_WhatAStrangerHangsOnVectorsIsNamed: a role that may read vectors makes a view of them, which an uninstall
// does not drop. It names the view, and continues once the view is gone.
func TestTrust_WhatAStrangerHangsOnVectorsIsNamed(t *testing.T) {
	t.Parallel()
	s := newStage(t, 2)
	file := s.configured(liveDocs)
	s.run(0, "init", "--config", file)
	tenant := s.db.Role("")
	s.db.MustExecSuper(`CREATE SCHEMA lair AUTHORIZATION ` + tenant + `; GRANT SELECT ON docs_embedding TO ` + tenant + `;
		SET ROLE ` + tenant + `; CREATE VIEW lair.mine AS SELECT * FROM docs_embedding; RESET ROLE`)
	uninstall := []string{"uninstall", "--yes", "--drop-embeddings", "--config", file}
	_, said := s.run(1, uninstall...)
	s.has(said, "docs_embedding", "view lair.mine depends on")
	s.db.MustExecSuper(`DROP VIEW lair.mine`)
	s.run(0, uninstall...)
	if testenv.Value[bool](s.db, "SELECT to_regclass('docs_embedding') IS NOT NULL OR to_regnamespace('embedsidecar') IS NOT NULL") {
		t.Error("something is left")
	}
}

// TestTrust_WhoTakesTheNameOfASidecarIsNone: any login may give its session the application name of a sidecar. It gets
// no rights by that, and does not keep the leftovers of an ended sidecar alive.
func TestTrust_WhoTakesTheNameOfASidecarIsNone(t *testing.T) {
	t.Parallel()
	s := newStage(t, 2)
	file := s.configured(liveDocs)
	s.run(0, "init", "--config", file)
	d := s.start("--config", file)
	s.becomes("docs", health.UpToDate)
	stranger := s.db.Role("")
	called := func(name string) {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), s.db.URL(stranger)+"&application_name="+url.QueryEscape(name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
	}
	called(testenv.Value[string](s.db, "SELECT session_name FROM embedsidecar.worker"))
	grants, _ := s.run(0, "roles", "--grants", "--config", file)
	if s.has(grants, "GRANT SELECT"); strings.Contains(grants, stranger) {
		t.Errorf("grants for a stranger:\n%s", grants)
	}
	d.end(syscall.SIGTERM, 0)

	// From PostgreSQL 16 on, a membership alone gives no rights of a role.
	if testenv.Value[int](s.db, `SELECT current_setting('server_version_num')::int`) >= 160000 {
		member, reader := s.db.Role(""), s.db.Role("")
		s.db.MustExecSuper(fmt.Sprintf(`GRANT %s, %s TO %s WITH INHERIT FALSE, SET FALSE; GRANT SELECT ON docs TO %[2]s;
			GRANT USAGE ON SCHEMA embedsidecar TO %[3]s; GRANT EXECUTE ON FUNCTION embedsidecar.reads, embedsidecar.may_work,
			embedsidecar.acts_as TO %[3]s`, testenv.Owner, reader, member))
		conn, err := pgx.Connect(t.Context(), s.db.URL(member))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close(context.Background()) }()
		var works, reads bool
		if err := conn.QueryRow(t.Context(), `SELECT embedsidecar.may_work(quote_ident(current_user)::regrole),
			embedsidecar.reads('docs'::regclass)`).Scan(&works, &reads); err != nil || works || reads {
			t.Errorf("a member that may not act as the role: works %t, reads %t: %v", works, reads, err)
		}
	}

	// A sidecar that was killed during a request, with a pipeline in its file.
	called("embedsidecar/gone")
	id, _, _ := s.asks(create(askBodies))
	s.db.MustExecSuper("UPDATE embedsidecar.request SET taken_by = 'embedsidecar/gone' WHERE request_id = $1", id)
	s.db.MustExecSuper(`INSERT INTO embedsidecar.configured (slot_name, instance, session_name, file, digests)
		VALUES ($1, 'gone', 'embedsidecar/gone', 'gone.yaml', '{"titles": ""}')`, s.slot)
	d = s.start("--config", file)
	s.comesTo(id, "done")
	s.does(create(askTitles))
	d.end(syscall.SIGTERM, 0)
}
