package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/named/control"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/testenv"
)

const tenantDocs = `schemas: {match: "tenant_*", except: ["*_template"]}
table: docs
columns: [body]
into: {table: docs_embedding}`

// tenant makes a schema with rows to embed.
func (s *stage) tenant(schema string, rows int) {
	s.t.Helper()
	s.db.MustExec("CREATE SCHEMA " + schema)
	s.db.MustExec("CREATE TABLE " + schema + ".docs (id bigint PRIMARY KEY, body text)")
	s.db.MustExec(fmt.Sprintf("INSERT INTO %s.docs SELECT i, '%s ' || i FROM generate_series(1, %d) AS i", schema, schema,
		rows))
}

// embeds waits until a schema has so many vectors.
func (s *stage) embeds(schema string, want int) {
	s.t.Helper()
	testenv.Eventually(s.t, waitTimeout, func() (bool, string) {
		var n int
		err := s.db.Super().QueryRow(s.t.Context(), "SELECT count(*)::int FROM "+schema+".docs_embedding").Scan(&n)
		return err == nil && n == want, fmt.Sprintf("%s has %d vectors, want %d: %v", schema, n, want, err)
	})
}

// names returns the names of the pipelines that are set up.
func (s *stage) names() string {
	return testenv.Value[string](s.db, "SELECT coalesce(string_agg(name, ' ' ORDER BY name), '') FROM embedsidecar.pipeline")
}

func (s *stage) named(want string) {
	s.t.Helper()
	testenv.Eventually(s.t, waitTimeout, func() (bool, string) {
		got := s.names()
		return got == want, fmt.Sprintf("pipelines %q, want %q", got, want)
	})
}

// One pipeline entry applies to each matching schema. The running program finds new schemas, dropped ones leave
// nothing, and one that does not fit does not affect the others.
func TestP5_EachSchemaHasItsPipeline(t *testing.T) {
	t.Parallel()
	s := newStage(t, 0)
	file := s.configured(tenantDocs + "\nindex: hnsw")
	d := s.start("--config", file)
	d.logged("waiting for a schema to work in", "reason")

	s.tenant("tenant_a", 3)
	s.tenant("tenant_template", 3)
	s.tenant("other", 3)
	s.db.MustExec("CREATE SCHEMA tenant_empty")
	s.stands("tenant_a.docs", health.UpToDate)
	s.embeds("tenant_a", 3)
	// An earlier line may name another schema whose table appears a moment later.
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		for line := range strings.SplitSeq(d.text(), "\n") {
			if strings.Contains(line, "some matching schemas or tables are left out") && strings.Contains(line, "tenant_empty.docs") {
				return true, ""
			}
		}
		return false, d.text()
	})

	// New schemas: one whose table does not fit, and one whose name needs quotes.
	s.tenant(`"tenant_B"`, 2)
	s.db.MustExec("CREATE SCHEMA tenant_odd; CREATE TABLE tenant_odd.docs (id bigint PRIMARY KEY, words text)")
	s.stands(`"tenant_B".docs`, health.UpToDate)
	s.embeds(`"tenant_B"`, 2)
	d.logged("could not set up a pipeline: retrying; the others go on", "error")
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		said := testenv.Value[string](s.db, "SELECT string_agg(name || ' ' || reason, '; ') FROM embedsidecar.configuration"+
			" WHERE subject = 'pipeline'")
		return strings.Contains(said, "tenant_odd.docs") && strings.Contains(said, "body"), said
	})
	s.db.MustExec("INSERT INTO tenant_a.docs VALUES (100, 'more')")
	s.embeds("tenant_a", 4)
	s.db.MustExec("ALTER TABLE tenant_odd.docs RENAME words TO body; INSERT INTO tenant_odd.docs VALUES (1, 'mended')")
	s.embeds("tenant_odd", 1)
	s.db.MustExec("CREATE TABLE tenant_empty.docs (id bigint PRIMARY KEY, body text); INSERT INTO tenant_empty.docs VALUES (1, 'late')")
	s.embeds("tenant_empty", 1)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		got := testenv.Value[string](s.db, `SELECT string_agg(schemaname, ' ' ORDER BY schemaname COLLATE "C") FROM pg_indexes
			WHERE indexdef LIKE '%hnsw%'`)
		return got == "tenant_B tenant_a tenant_empty tenant_odd", "indexes in " + got
	})

	// A schema is dropped while it and its next generation have pending work, and one is renamed.
	s.run(0, "model", "change", "tenant_odd.docs", "--to-plugin", "fake-dims12", "--config", file)
	s.db.MustExec("SELECT embedsidecar.pause('tenant_odd.docs'); INSERT INTO tenant_odd.docs VALUES (2, 'waits')")
	s.db.MustExec("DROP SCHEMA tenant_odd CASCADE; ALTER SCHEMA tenant_empty RENAME TO tenant_new")
	s.named(`"tenant_B".docs tenant_a.docs tenant_new.docs`)
	s.db.MustExec("INSERT INTO tenant_new.docs VALUES (2, 'under its new name')")
	s.embeds("tenant_new", 2)
	s.db.MustExec("ALTER SCHEMA tenant_new RENAME TO archive")
	s.named(`"tenant_B".docs tenant_a.docs`)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		n := testenv.Value[int](s.db, `SELECT (SELECT count(*) FROM embedsidecar.task AS t WHERE NOT EXISTS (SELECT
			FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = t.pipeline_id))::int + (SELECT count(*)::int
			FROM pg_publication_tables WHERE schemaname NOT IN ('tenant_a', 'tenant_B'))`)
		return n == 0, fmt.Sprintf("%d tasks and published tables are left", n)
	})
	if n := testenv.Value[int](s.db, "SELECT count(*)::int FROM archive.docs_embedding"); n != 2 {
		t.Errorf("the renamed schema has %d vectors, want 2", n)
	}

	// The file changes all of them at once; a manual action changes one.
	s.run(0, "pause", "tenant_a.docs")
	s.rewrite(file, tenantDocs+"\nwhere: id > 1")
	s.embeds(`"tenant_B"`, 1)
	s.db.MustExec("DROP SCHEMA tenant_a CASCADE; DROP SCHEMA \"tenant_B\" CASCADE")
	s.named("")
	s.tenant("tenant_a", 5)
	s.embeds("tenant_a", 4)
	d.end(syscall.SIGTERM, 0)
	if said := d.text(); strings.Count(said, "level=ERROR") > 6 {
		t.Errorf("errors again and again:\n%s", said)
	}

	// Changes while no sidecar runs.
	s.db.MustExec("DROP SCHEMA tenant_a CASCADE")
	s.tenant("tenant_c", 2)
	d = s.start("--config", file)
	s.embeds("tenant_c", 1)
	s.named("tenant_c.docs")
	d.end(syscall.SIGTERM, 0)
	s.run(0, "verify", "--deep", "10", "--config", file)
}

// TestP1_SchemasAndTablesThatExchangeNames: schemas that swap names keep their own vectors at every moment, and a
// pipeline follows its name to the table that has it now.
func TestP1_SchemasAndTablesThatExchangeNames(t *testing.T) {
	t.Parallel()
	s := newStage(t, 0)
	file := s.configured(tenantDocs, "name: notes\ntable: public.notes\ncolumns: [body]\ninto: {table: notes_embedding}",
		"name: tagged\ntable: public.notes\ntext: concat_ws(' ', body, tag)\ninto: {table: tagged_embedding}\n"+
			"joins: [{table: tags, on: {id: id}, text: name, as: tag}]")
	s.tenant("tenant_blue", 30)
	s.tenant("tenant_green", 20)
	s.db.MustExec(`CREATE TABLE notes (id bigint PRIMARY KEY, body text); INSERT INTO notes VALUES (1, 'old'), (2, 'older');
		CREATE TABLE tags (id bigint PRIMARY KEY, name text); INSERT INTO tags VALUES (1, 'x'), (3, 'y');
		CREATE TABLE tags_new (id bigint PRIMARY KEY, name text); INSERT INTO tags_new VALUES (1, 'z');
		CREATE TABLE notes_new (id bigint PRIMARY KEY, body text); INSERT INTO notes_new VALUES (1, 'new'), (3, 'newer')`)
	d := s.start("--config", file)
	for name, rows := range map[string]int{"tenant_blue": 30, "tenant_green": 20} {
		s.stands(name+".docs", health.UpToDate)
		s.embeds(name, rows)
	}
	s.stands("notes", health.UpToDate)
	s.stands("tagged", health.UpToDate)
	for _, name := range []string{"tenant_blue.docs", "notes"} {
		s.run(0, "model", "change", name, "--to-plugin", "fake-dims12", "--config", file)
	}
	wrong := func(table string) int {
		t.Helper()
		return testenv.Value[int](s.db, fmt.Sprintf(`SELECT count(*)::int FROM %s_embedding AS e LEFT JOIN %[1]s AS s USING (id)
			WHERE s.id IS NULL OR e.text_hash <> sha256(convert_to(s.body, 'UTF8'))`, table))
	}
	s.db.MustExec(`BEGIN; ALTER SCHEMA tenant_blue RENAME TO other; ALTER SCHEMA tenant_green RENAME TO tenant_blue;
		ALTER SCHEMA other RENAME TO tenant_green; COMMIT`)
	s.db.MustExec("INSERT INTO tenant_green.docs VALUES (100, 'into that which was blue')")
	tables := func() string {
		return testenv.Value[string](s.db, `SELECT string_agg(format('%s %s', p.name, p.table_oid::regclass), '; ' ORDER BY p.name)
			FROM embedsidecar.pipeline AS p`)
	}
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		if n := wrong("tenant_green.docs") + wrong("tenant_blue.docs"); n > 0 {
			t.Fatalf("%d vectors are of another tenant's rows", n)
		}
		got := tables()
		return got == "notes notes; notes__next notes; tagged notes; tenant_blue.docs tenant_blue.docs; "+
			"tenant_green.docs tenant_green.docs; tenant_green.docs__next tenant_green.docs", got
	})
	s.db.MustExec("INSERT INTO tenant_blue.docs VALUES (200, 'into that which was green')")
	s.embeds("tenant_green", 31)
	s.embeds("tenant_blue", 21)
	s.db.MustExec("BEGIN; ALTER SCHEMA tenant_blue RENAME TO away; ALTER SCHEMA tenant_green RENAME TO tenant_blue; COMMIT")
	testenv.Eventually(t, waitTimeout, func() (bool, string) { // one name no longer matches: its pipeline is removed
		got := tables()
		return got == "notes notes; notes__next notes; tagged notes; tenant_blue.docs tenant_blue.docs; "+
			"tenant_blue.docs__next tenant_blue.docs", got
	})
	s.db.MustExec("INSERT INTO tenant_blue.docs VALUES (300, 'that which is blue again')")
	s.embeds("tenant_blue", 32)
	if n := wrong("away.docs") + wrong("tenant_blue.docs"); n > 0 {
		t.Errorf("%d vectors are of another tenant's rows", n)
	}

	for _, key := range []string{"3", "2"} { // there, back, and there again
		s.db.MustExec("BEGIN; ALTER TABLE notes RENAME TO other; ALTER TABLE notes_new RENAME TO notes; ALTER TABLE other RENAME TO notes_new; COMMIT")
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			n := testenv.Value[int](s.db, "SELECT count(*)::int FROM notes_embedding AS e JOIN notes_embedding__next AS n USING "+
				"(id, text_hash) WHERE id = "+key)
			return n == 1 && wrong("public.notes") == 0, tables()
		})
	}
	s.db.MustExec("BEGIN; ALTER TABLE notes RENAME TO notes_old; ALTER TABLE notes_new RENAME TO notes; COMMIT")
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		n := testenv.Value[int](s.db, "SELECT count(*)::int FROM notes_embedding WHERE id = 3")
		return n == 1 && wrong("public.notes") == 0, tables()
	})
	s.stands("notes", health.UpToDate)
	s.db.MustExec("BEGIN; ALTER TABLE tags RENAME TO tags_old; ALTER TABLE tags_new RENAME TO tags; COMMIT")
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		n := testenv.Value[int](s.db, `SELECT count(*)::int FROM tagged_embedding AS e JOIN notes AS n USING (id) LEFT JOIN
			tags AS t USING (id) WHERE e.text_hash = sha256(convert_to(concat_ws(' ', n.body, t.name), 'UTF8'))
			AND EXISTS (SELECT FROM embedsidecar.pipeline AS p, embedsidecar.joined_tables(p.joins) AS j
				WHERE p.name = 'tagged' AND j.oid = 'tags'::regclass)`)
		return n == 2, fmt.Sprintf("%d of 2 texts have the tags of the new table, or it is not followed yet", n)
	})
	d.end(syscall.SIGTERM, 0)
	s.run(0, "verify", "--deep", "100", "--config", file)
}

// TestP1_SchemasExchangeNamesDuringASetUp: schemas swap names again after a set-up has seen the first swap and before
// it has stored it. They keep their own pipelines, with their next generations.
func TestP1_SchemasExchangeNamesDuringASetUp(t *testing.T) {
	t.Parallel()
	const exchange = `BEGIN; ALTER SCHEMA tenant_blue RENAME TO other; ALTER SCHEMA tenant_green RENAME TO tenant_blue;
		ALTER SCHEMA other RENAME TO tenant_green; COMMIT`
	held := map[string]string{ // locks that hold the set-up while they swap names again
		"before it looks":   asInit,
		"before it writes":  "SELECT FROM embedsidecar.pipeline WHERE name = 'tenant_blue.docs' FOR UPDATE",
		"between two of it": "SELECT FROM embedsidecar.pipeline WHERE name = 'tenant_green.docs' FOR UPDATE",
	}
	for name, lock := range held {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, 0)
			file := s.configured(tenantDocs)
			s.tenant("tenant_blue", 3)
			s.tenant("tenant_green", 2)
			d := s.start("--config", file)
			s.stands("tenant_blue.docs", health.UpToDate)
			s.stands("tenant_green.docs", health.UpToDate)
			s.run(0, "model", "change", "tenant_blue.docs", "--to-plugin", "fake-dims12", "--config", file)
			const pipelines = `SELECT string_agg(format('%s %s %s', p.name, p.table_oid::regclass, p.generation), '; '
					ORDER BY p.name) FROM embedsidecar.pipeline AS p`
			before := testenv.Value[string](s.db, pipelines)

			letGo := s.open(asInit)
			s.db.MustExec(exchange)
			d.logged("schemas have exchanged their names, and so do their pipelines", "names")
			if lock != asInit {
				write := s.open(lock)
				letGo()
				letGo = write
				testenv.Eventually(t, waitTimeout, func() (bool, string) {
					n := testenv.Value[int](s.db, `SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database()
							AND wait_event_type = 'Lock' AND query LIKE '-- update_pipeline%'`)
					return n > 0, "no set-up waits"
				})
			}
			s.db.MustExec(exchange)
			letGo()
			testenv.Eventually(t, waitTimeout, func() (bool, string) {
				got := testenv.Value[string](s.db, pipelines)
				return got == before, fmt.Sprintf("pipelines %s, want %s\n%s", got, before, d.text())
			})
			testenv.Eventually(t, waitTimeout, func() (bool, string) {
				n := testenv.Value[int](s.db, `SELECT ((SELECT count(*) FROM embedsidecar.task)
					+ (SELECT count(*) FROM embedsidecar.scan WHERE finished_at IS NULL))::int`)
				return n == 0, fmt.Sprintf("%d tasks and scans are left", n)
			})
			s.run(0, "model", "switch", "tenant_blue.docs", "--config", file)
			d.end(syscall.SIGTERM, 0)
			s.run(0, "verify", "--deep", "100", "--config", file)
		})
	}
}

// Set-up commands see the schemas, too.
func TestInit_SetsUpEachSchema(t *testing.T) {
	t.Parallel()
	s := newStage(t, 0)
	file := s.configured(tenantDocs)
	s.tenant("tenant_a", 3)
	s.tenant("tenant_b", 3)
	s.db.MustExec("CREATE SCHEMA tenant_odd; CREATE TABLE tenant_odd.docs (id bigint PRIMARY KEY, words text)")
	s.db.MustExec("CREATE SCHEMA tenant_none")
	stdout, _ := s.run(0, "plan", "-o", "json", "--config", file)
	told := decoded[control.Configured](t, stdout)
	s.has(strings.Join(told.Steps, "; "), `pipeline "tenant_a.docs"`, `pipeline "tenant_b.docs"`)
	s.has(strings.Join(told.Warnings, "; "), "tenant_odd", "tenant_none.docs")
	_, stderr := s.run(0, "init", "--config", file)
	s.has(stderr, "tenant_odd", "tenant_none.docs")
	if got := s.names(); got != "tenant_a.docs tenant_b.docs" {
		t.Errorf("set up: %s", got)
	}
	stdout, _ = s.run(0, "config", "show", "--config", file)
	s.has(stdout, "pipelines[0].schemas.match", "tenant_*")
	s.once(0, "--config", file)
	s.embeds("tenant_b", 3)
	stdout, _ = s.run(0, "status")
	s.has(stdout, "tenant_a.docs", "tenant_b.docs")
	for _, command := range [][]string{{"status"}, {"tasks", "list"}, {"audit"}, {"pause"}} {
		s.run(0, append(command, "tenant_a.*")...)
		if command[0] != "audit" { // audit knows removed pipelines
			s.run(2, append(command, "tenant_x.*")...)
		}
	}
	stdout, _ = s.run(0, "status", "tenant_a.*")
	if strings.Contains(stdout, "tenant_b") || !strings.Contains(stdout, "paused") {
		t.Errorf("status of one schema:\n%s", stdout)
	}
	if stdout, _ = s.run(0, "audit", "tenant_a.*"); !strings.Contains(stdout, "pause") {
		t.Errorf("audit of one schema:\n%s", stdout)
	}
	s.run(0, "resume", "tenant_*")

	// A pattern without a matching schema is a mistake.
	if err := os.WriteFile(file, []byte("pipelines: [{schemas: {match: 'tenant_*'}, table: docs, columns: [wrong], "+
		"into: {table: docs_embedding}}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stderr = s.run(2, "apply", "--config", file)
	s.has(stderr, "wrong")
}
