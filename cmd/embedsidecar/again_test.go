package main

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/status/observe"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
	"github.com/embedsidecar/embedsidecar/testenv"
)

func TestUninstall_ThenTheQuickStartAgain(t *testing.T) {
	t.Parallel()
	s := newStage(t, 40)
	start := []string{"run", "--once", "--table", "docs", "--columns", "title,body", "--into-table", "docs_embedding"}
	s.run(0, start...)
	s.run(0, "uninstall", "--yes")
	s.db.MustExec("DELETE FROM docs WHERE id <= 5; UPDATE docs SET title = NULL, body = NULL WHERE id = 6; UPDATE docs SET body = 'other' WHERE id = 7; INSERT INTO docs VALUES (41, 'new', '')")
	_, stderr := s.run(0, start...)
	s.has(stderr, "taken over from an earlier set-up")
	s.run(0, "verify", "--deep", "100")
	// no orphans, and no vector for the row without text
	if n := testenv.Value[int](s.db, "SELECT count(*)::int FROM docs_embedding"); n != 35 {
		t.Errorf("%d vectors, want 35", n)
	}
	for statement := range strings.SplitSeq(testenv.Value[string](s.db, "SELECT embedsidecar.view_sql('docs')"), ";\n") {
		s.db.MustExec(statement)
	}
	s.db.MustExec("SELECT title, embedding FROM docs_embedding_view")
	s.run(0, "uninstall", "--yes")
	s.run(0, "uninstall", "--drop-embeddings", "--yes")
	if testenv.Value[bool](s.db, "SELECT to_regclass('docs_embedding') IS NOT NULL") {
		t.Error("the embedding table is still there")
	}
}

func TestInit_RenamesAPipelineAtWork(t *testing.T) {
	t.Parallel()
	s := newStage(t, 10)
	file := filepath.Join(t.TempDir(), "embedsidecar.yaml")
	if err := os.WriteFile(file, []byte(
		"version: 1\npipelines:\n  - name: articles\n    table: public.docs\n    columns: [title, body]\n    into: {table: docs_embedding}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := s.start("--table", "docs", "--columns", "title,body", "--into-table", "docs_embedding", "--http", "127.0.0.1:0",
		"--no-auth")
	address := d.logged("queries are answered", "address")
	d.answers(address, searches, question, http.StatusOK, `"key":"7"`)
	caughtUp := func() { s.run(0, "wait", "--caught-up", "--timeout", waitTimeout.String()) }
	d.logged("streaming", "slot")
	caughtUp()
	made := func() time.Time { return testenv.Value[time.Time](s.db, "SELECT max(embedded_at) FROM docs_embedding") }
	before := made()

	_, stderr := s.run(exitUsage, "pause", "articles")
	s.has(stderr, `there is no pipeline "articles"`, "there are: public.docs")
	_, stderr = s.run(exitNotSetUp, "run", "--no-init", "--once", "--config", file)
	s.has(stderr, `it is set up as "public.docs": embedsidecar init gives it the new name`)
	_, stderr = s.run(0, "init", "--config", file)
	s.has(stderr, `name (it was "public.docs")`)
	_, stderr = s.run(0, "init", "--config", file)
	s.has(stderr, "nothing to do")
	s.run(0, "verify", "articles", "--deep", "10")
	_, stderr = s.run(exitUsage, "verify", "articels")
	s.has(stderr, "did you mean articles?", "there are: articles")

	// The running sidecar uses the new name, and flags without a name mean the pipeline by its new name.
	d.answers(address, "/v1/pipelines/articles/search", question, http.StatusOK, `"key":"7"`)
	d.answers(address, searches, question, http.StatusOK, `"pipeline":"articles"`) // the table keeps its name
	caughtUp()
	if after := made(); !after.Equal(before) {
		t.Errorf("vectors were made anew: %s, before %s", after, before)
	}
	s.db.MustExec("UPDATE docs SET body = 'other'")
	caughtUp()
	s.run(0, "verify", "articles", "--deep", "10")

	// A new name and a new filter at once: the vectors of filtered rows are removed, and nothing is embedded.
	const paid = "SELECT count(*)::int FROM embedsidecar.history WHERE outcome = 'embedded'"
	embedded := testenv.Value[int](s.db, paid)
	config, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	two := strings.Replace(string(config), "name: articles", "name: posts\n    where: id > 2", 1)
	if err := os.WriteFile(file, []byte(two), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stderr = s.run(0, "init", "--config", file, "--dry-run")
	s.has(stderr, `name (it was "articles")`, "filter")
	_, stderr = s.run(0, "init", "--config", file)
	s.has(stderr, `name (it was "articles")`, "filter")
	caughtUp()
	if p := s.state("posts"); p.ScanReason != "the pipeline was changed" {
		t.Errorf("after a change of name and filter: %+v", p)
	}
	if n, left := testenv.Value[int](s.db, paid),
		testenv.Value[int](s.db, "SELECT count(*)::int FROM docs_embedding"); n != embedded || left != 8 {
		t.Errorf("%d texts were embedded for a change of name and filter, and %d vectors are there, want 8", n-embedded, left)
	}
	s.run(0, "verify", "posts", "--deep", "10")
	d.end(syscall.SIGTERM, 0)
	_, stderr = s.run(0, "run", "--once", "--config", file)
	s.has(stderr, "caught up")
}

// A paused pipeline stays paused under its new name, unless the configuration says otherwise.
func TestInit_ARenameResumesNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t, 0)
	enabled := func() bool { return testenv.Value[bool](s.db, "SELECT enabled FROM embedsidecar.pipeline") }
	configured := func(name, more string) (file string) {
		t.Helper()
		file = filepath.Join(t.TempDir(), name+".yaml")
		content := "version: 1\npipelines:\n  - name: " + name +
			"\n    table: public.docs\n    columns: [title, body]\n    into: {table: docs_embedding}\n" + more
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	s.run(0, "init", "--config", configured("old", ""))
	s.run(0, "pause", "old")
	_, stderr := s.run(0, "init", "--config", configured("new", ""))
	s.has(stderr, `name (it was "old")`)
	if enabled() {
		t.Error("the new name has resumed it")
	}
	s.run(0, "init", "--config", configured("newer", "    enabled: true\n"))
	if !enabled() {
		t.Error("it is paused although the configuration has it enabled")
	}
}

// A set-up that is retried without the failing pipeline does not repeat the warnings about the others.
func TestRun_WarnsOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	s.db.MustExec("CREATE TABLE gone (id int PRIMARY KEY, title text)")
	flags := []string{
		"run", "--once", "--pipeline", "docs: title, body -> table docs_embedding", "--pipeline",
		"gone: title -> table gone_embedding",
	}
	s.run(0, flags...)
	s.db.MustExec("ALTER TABLE docs RENAME body TO content")
	s.db.MustExec("ALTER TABLE gone DROP title")
	_, stderr := s.run(exitFailed, flags...)
	s.has(stderr, "could not set up a pipeline")
	if n := strings.Count(stderr, `is now called "content"`); n != 1 {
		t.Errorf("told %d times:\n%s", n, stderr)
	}
}

// A pipeline follows its table. If another table gets the old name, status says so.
func TestStatus_OfATableWhoseNameAnotherHas(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	s.once(0)
	s.db.MustExec("ALTER TABLE docs RENAME TO docs_before")
	stdout, _ := s.run(0, "status")
	if strings.Contains(stdout, "another table") {
		t.Errorf("a table that was renamed and nothing else:\n%s", stdout)
	}
	s.db.MustExec("CREATE TABLE docs (LIKE docs_before INCLUDING ALL)")
	s.db.MustExec("INSERT INTO docs (id, title) SELECT generate_series(1, 7), 'new'")
	stdout, _ = s.run(0, "status")
	s.has(stdout, `its table is now called public.docs_before, and public.docs is now another table`)
	stdout, _ = s.run(0, "status", "-o", "json")
	if p := decoded[observe.Database](t, stdout).Pipelines[0]; p.Table != "docs_before" || p.ReplacedBy != "public.docs" ||
		p.Rows != 3 {
		t.Errorf("%+v", p.Pipeline)
	}
	_, stderr := s.once(0)
	s.has(stderr, "table recreated")
	stdout, _ = s.run(0, "status", "-o", "json")
	if p := decoded[observe.Database](t, stdout).Pipelines[0]; p.Table != "docs" || p.ReplacedBy != "" || p.Known != 7 {
		t.Errorf("after the next run: %+v", p.Pipeline)
	}
	s.run(0, "verify", "--deep", "10")
}

func TestWait_TellsWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	s.once(0)
	s.db.MustExec("UPDATE docs SET title = 'x'")
	w := s.background("wait", "--caught-up")
	quiet := s.background("wait", "--caught-up", "--quiet")
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		return strings.Contains(w.text(), "waiting: the latest changes are not read yet; no sidecar runs for slot "+
			s.slot), w.text()
	})
	s.once(0)
	w.ends(0)
	quiet.ends(0)
	s.has(w.text(), "caught up with")
	if quiet.text() != "" {
		t.Errorf("--quiet says %s", quiet.text())
	}
}

// viaVariables runs a command with the database named only by the PG* variables, and returns its output.
func (s *stage) viaVariables(args ...string) (stdout string) {
	s.t.Helper()
	u, err := url.Parse(s.db.URL(testenv.Owner))
	if err != nil {
		s.t.Fatal(err)
	}
	password, _ := u.User.Password()
	other := *s
	other.set("EMBEDSIDECAR_DATABASE_URL=")
	for name, value := range map[string]string{
		"PGHOST": u.Hostname(), "PGPORT": u.Port(), "PGUSER": u.User.Username(), "PGPASSWORD": password,
		"PGDATABASE": strings.TrimPrefix(u.Path, "/"),
	} {
		other.set(name + "=" + value)
	}
	stdout, stderr := other.run(0, args...)
	if stderr != "" {
		s.t.Error(stderr)
	}
	return stdout
}

func TestRoles_LetARoleRunWhatIsSetUp(t *testing.T) {
	t.Parallel()
	s := newStage(t, 10)
	s.run(0, "init", "--pipeline", "docs: title -> embedding", "--pipeline", "docs: title, body -> table docs_embedding")
	role, stream := s.db.Role(""), s.db.Role("REPLICATION") // with passwords; the script accepts existing roles
	reader, operator := s.db.Role(""), s.db.Role("")
	flags := []string{
		"--role", role, "--stream-role", stream, "--reader-role", reader, "--operator-role", operator,
		"--searcher-role", s.db.Role(""),
	}
	script, stderr := s.run(0, append([]string{"roles"}, flags...)...)
	s.has(script, `-- Pipeline "public.docs":`,
		`GRANT SELECT ("id", "title", "embedding"), UPDATE ("embedding") ON "public"."docs" TO "`+role+`";`)
	if stderr != "" || strings.Contains(script, sqlfiles.RunRole) || strings.Contains(script, sqlfiles.StreamRole) {
		t.Errorf("%s%s", stderr, script)
	}
	if viaVariables := s.viaVariables(append([]string{"roles"}, flags...)...); viaVariables != script {
		t.Errorf("with the database in PG* variables: %s", viaVariables)
	}
	for range 2 { // again after another pipeline is set up
		s.db.MustExecSuper(script)
	}
	grants, _ := s.run(0, append([]string{"roles", "--grants"}, flags...)...)
	if !strings.HasSuffix(script, grants) || !strings.HasPrefix(grants, `-- Pipeline "public.docs":`) {
		t.Errorf("the grants alone:\n%s", grants)
	}
	s.as(role)
	s.set("EMBEDSIDECAR_STREAM_URL=" + s.db.URL(stream) + "&connect_timeout=300")
	s.run(0, "run", "--once", "--no-init")
	s.run(0, "verify", "--deep", "10")
	stdout, _ := s.run(0, "check")
	if strings.Contains(stdout, stream) {
		t.Errorf("check warns of the role that roles made:\n%s", stdout)
	}

	s.set("EMBEDSIDECAR_STREAM_URL=")
	s.as(s.db.Role(""))
	script, stderr = s.run(0, "roles")
	s.has(script, "CREATE ROLE "+sqlfiles.RunRole+" LOGIN;", "CREATE ROLE "+sqlfiles.StreamRole+" LOGIN REPLICATION;")
	s.has(stderr, "the grants for each pipeline are left out: ", "may not")
	s.run(exitPermission, "roles", "--grants")
	s.run(exitUsage, "roles", "--role", "a\nb")
}

// If a grant is missing, roles --grants prints it, for the role of the running sidecar.
func TestRoles_GrantsMendWhatIsMissing(t *testing.T) {
	t.Parallel()
	s := newStage(t, 10)
	s.run(0, "init", "--pipeline", "docs: title -> table docs_embedding")
	role := s.db.Role("")
	script, _ := s.run(0, "roles", "--role", role, "--stream-role", s.db.Role("REPLICATION"), "--reader-role",
		s.db.Role(""), "--operator-role", s.db.Role(""), "--searcher-role", s.db.Role(""))
	s.db.MustExecSuper(script)
	s.db.MustExec(`REVOKE SELECT ON docs FROM "` + role + `"; REVOKE SELECT (id, title) ON docs FROM "` + role + `"`)
	s.as(role)
	stdout, _ := s.run(0, "status")
	s.has(stdout, `role "`+role+`" may not run pipeline "public.docs"; an owner`)
	grants, _ := s.run(0, "roles", "--grants", "--role", role)
	s.has(grants, `GRANT SELECT ("id", "title") ON "public"."docs" TO "`+role+`";`)
	s.db.MustExecSuper(grants)
	stdout, _ = s.run(0, "status")
	if strings.Contains(stdout, "may not") {
		t.Errorf("status after the grants:\n%s", stdout)
	}

	d := s.start("--role", "work", "--no-init")
	d.logged("plugin started", "pid")
	s.as(testenv.Owner)
	grants, _ = s.run(0, "roles", "--grants")
	s.has(grants, `TO "`+role+`";`)
}

// TestTrust_ARoleThatAStrangerGivesGetsNothing: the role names are public, so anyone who may create roles could have
// created one of them before.
func TestTrust_ARoleThatAStrangerGivesGetsNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	s.run(0, "init", "--pipeline", "docs: title -> table docs_embedding")
	stranger, role := s.db.Role(""), s.db.Role("")
	flags := []string{
		"roles", "--role", role, "--stream-role", s.db.Role("REPLICATION"), "--reader-role", s.db.Role(""),
		"--operator-role", s.db.Role(""), "--searcher-role", s.db.Role(""),
	}
	s.as(testenv.Superuser)
	s.set("EMBEDSIDECAR_TRUST_OWNER=" + testenv.Owner)
	s.db.MustExecSuper("GRANT " + role + " TO " + stranger + " WITH ADMIN OPTION")
	words := []string{`role "` + stranger + `" has its ADMIN OPTION`, "REVOKE ADMIN OPTION FOR"}
	_, stderr := s.run(exitUsage, append(flags, "--yes")...)
	s.has(stderr, words...)
	_, stderr = s.run(exitUsage, append(flags, "--grants")...)
	s.has(stderr, words...)
	script, stderr := s.run(0, flags...)
	s.has(stderr, words[0])
	if strings.Contains(script, "Pipeline") {
		t.Errorf("grants for it are offered:\n%s", script)
	}
	s.set("EMBEDSIDECAR_TRUST_OWNER=" + testenv.Owner + "," + stranger)
	s.run(0, append(flags, "--yes")...)
	s.set("EMBEDSIDECAR_TRUST_OWNER=" + testenv.Owner)
	s.db.MustExecSuper("GRANT " + testenv.Owner + " TO " + stranger) // who may act as the owner needs no such way
	s.run(0, append(flags, "--yes")...)
	s.db.MustExecSuper("REVOKE " + testenv.Owner + " FROM " + stranger)
}

// After roles --yes a container needs neither psql nor a shell. The role also works behind a pooler; the application's
// role does not, and stays as it is.
func TestRoles_Yes(t *testing.T) {
	t.Parallel()
	s := newStage(t, 10)
	s.run(0, "init", "--pipeline", "docs: title -> embedding", "--pipeline", "docs: title, body -> table docs_embedding")
	role, stream := s.db.Role(""), s.db.Role("REPLICATION")
	flags := []string{
		"roles", "--yes", "--role", role, "--stream-role", stream, "--reader-role", s.db.Role(""), "--operator-role",
		s.db.Role(""), "--searcher-role", s.db.Role(""),
	}
	granted := func() bool {
		return testenv.Value[bool](s.db,
			"SELECT has_schema_privilege($1::name, 'embedsidecar', 'USAGE') OR has_column_privilege($1::name, 'docs', 'embedding', 'UPDATE')", role)
	}
	_, stderr := s.run(exitPermission, flags...)
	s.has(stderr, `run the SQL for roles "`+role+`" and "`+stream+`"`)
	if granted() {
		t.Errorf("a part of what could not be run is there:\n%s", stderr)
	}
	owner := s.environ
	const sessions = 12
	s.at(testenv.StartPooler(t, s.db.URL(testenv.Owner), 1))
	for _, command := range []string{"status", "check", "run"} {
		_, stderr := s.run(exitConnect, command)
		s.has(stderr, "a connection pooler drops the settings",
			"a role of its own that has them: embedsidecar roles")
		if strings.Contains(stderr, "ALTER ROLE") {
			t.Errorf("%s would have an application's role changed:\n%s", command, stderr)
		}
	}
	s.as(testenv.Superuser)
	s.set("EMBEDSIDECAR_TRUST_OWNER=" + testenv.Owner)
	for range 2 {
		stdout, stderr := s.run(0, flags...)
		s.has(stderr, "have what they need")
		if stdout != "" {
			t.Errorf("it prints %s", stdout)
		}
	}
	s.environ = owner
	s.at(testenv.StartPooler(t, s.db.URL(role), sessions))
	s.set("EMBEDSIDECAR_STREAM_URL=" + s.db.URL(stream) + "&connect_timeout=300")
	s.run(0, "run", "--once", "--no-init")
	s.run(0, "verify", "--deep", "10")
	if n := testenv.Value[int](s.db, "SELECT count(*)::int FROM pg_db_role_setting WHERE setrole = $1::regrole",
		testenv.Owner); n != 0 {
		t.Error("the application's role has other settings now")
	}
	s.set("EMBEDSIDECAR_DATABASE_URL=")
	_, stderr = s.run(exitConnect, "roles", "--yes")
	s.has(stderr, "no database was named")
}
