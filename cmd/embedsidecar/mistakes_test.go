package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/testenv"
)

// mistake is a call that must fail with a status, and words that its error and hints must contain.
type mistake struct {
	status int
	args   string // separated by |
	words  []string
}

func (s *stage) mistakes(list []mistake) {
	s.t.Helper()
	for _, m := range list {
		stdout, stderr := s.run(m.status, strings.Split(m.args, "|")...)
		for _, word := range m.words {
			if !strings.Contains(stdout+stderr, word) {
				s.t.Errorf("%s: %q is missing in:\n%s%s", m.args, word, stdout, stderr)
			}
		}
		if strings.Contains(stderr, "nothing to do") {
			s.t.Errorf("%s: says that there is nothing to do, and fails:\n%s", m.args, stderr)
		}
	}
}

func TestMistakes_TablesAndDestinations(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	s.db.MustExec(`CREATE TABLE nopk (id int, title text); CREATE VIEW v AS SELECT *
		FROM docs; CREATE TABLE "Weird" (id int PRIMARY KEY, "Text" text);
		CREATE UNLOGGED TABLE ul (id int PRIMARY KEY, t text); CREATE TABLE nn (id int PRIMARY KEY, t text,
		e vector(8) NOT NULL);
		CREATE TABLE narrow (id int PRIMARY KEY, t text,
		e vector(3)); CREATE SCHEMA hidden; CREATE TABLE hidden.t (id int PRIMARY KEY, t text)`)
	// All mistakes are reported at once, each with a hint.
	init := []string{"init", "--dry-run"}
	var wanted []string
	for pipeline, words := range map[string][]string{
		"docs: titel -> e":              {`no column "titel"`, "did you mean title?"},
		"docs: b -> f":                  {`no column "b"`, "there are: id, title, body"},
		"dosc: title -> e":              {`no table "public"."dosc"`, "did you mean public.docs?"},
		"nosuch.docs: title -> e":       {`no table "nosuch"."docs"`},
		"weird: Text -> e":              {`did you mean public."Weird"?`},
		`"Weird": text -> e`:            {"did you mean Text?"},
		"nopk: title -> e":              {"no primary key", "ADD PRIMARY KEY"},
		"v: title -> e":                 {"is a view", "the table that the rows are in"},
		"ul: t -> e":                    {"is unlogged", "SET LOGGED"},
		"nn: t -> e":                    {"is NOT NULL", "DROP NOT NULL"},
		"narrow: t -> e":                {"8 wide", "another destination"},
		"docs: title -> id":             {"a column of the key"},
		"docs: title -> table nopk":     {"not an embedding table", "name another table"},
		"docs: title -> table nosuch.e": {`no schema "nosuch"`, `CREATE SCHEMA "nosuch";`},
	} {
		init, wanted = append(init, "--pipeline", pipeline), append(wanted, words...)
	}
	_, stderr := s.run(exitUsage, init...)
	s.has(stderr, wanted...)
	if strings.Contains(stderr, `ALTER COLUMN "id" TYPE`) {
		t.Errorf("somebody is told to alter a table of his that is no embedding table:\n%s", stderr)
	}
	for pipeline, words := range map[string][]string{
		"docs: title -> title":           {"both embedded and the destination"},
		"docs: title -> table docs":      {"its own embedding table"},
		"docs: title, title -> e":        {"named twice"},
		"docs title -> e":                {`expected ":"`},
		"docs: title":                    {`"->" and a destination`},
		"docs: -> e":                     {"expected a column"},
		"":                               {"expected a source table"},
		"docs: title -> table e surplus": {"expected the end of the pipeline"},
		"docs: title -> " + strings.Repeat("x", 64): {"at most 63 bytes"},
	} {
		s.mistakes([]mistake{{exitUsage, "init|--dry-run|--pipeline|" + pipeline, words}})
	}
	unquoted := filepath.Join(t.TempDir(), "unquoted.yaml")
	if err := os.WriteFile(unquoted,
		[]byte("version: 1\npipelines: [{table: docs, columns: [title], where: title = published, into: {column: e}}]\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	s.mistakes([]mistake{
		{exitUsage, "run|--table|docs", []string{"--columns is missing", "--columns title,body"}},
		{exitUsage, "run|--columns|title", []string{"--table is missing"}},
		{exitUsage, "run|--table|docs|--columns|title", []string{"a destination is missing", "--into-table"}},
		{exitUsage, "run|--table|docs|--columns|title|--into|a|--into-table|b", []string{"exclude each other"}},
		{exitUsage, "run|--table|docs|--columns|title|--slto|x|--into|a", []string{
			"unknown flag --slto",
			"did you mean --slot?",
		}},
		{exitUsage, "run|--table|docs|--columns|title|--into|e|--model|nosuch", []string{
			`does not offer model "nosuch"`,
			`"fake"`,
		}},
		{exitUsage, "run|--table|docs|--columns|title|--into|e|--model|fakee", []string{"did you mean fake?"}},
		{exitUsage, "run|--table|docs|--columns|title|--into|e|--plugin|fkae", []string{"did you mean fake?"}},
		{exitUsage, "init|--config|" + unquoted, []string{
			`column "published" does not exist`,
			"a value is written in single quotes", "write 'published'",
		}},
		{
			exitFailed, "check|--table|docs|--columns|titel|--into|e",
			[]string{`error  pipeline "public.docs": table "public"."docs" has no column "titel"`},
		},
	})
}

func TestMistakes_OfThoseWhoOperate(t *testing.T) {
	t.Parallel()
	s := newStage(t, 2)
	s.once(0)
	missing := filepath.Join(t.TempDir(), "missing")
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var list []mistake
	for _, command := range []string{
		"pause|public.dosc", "resume|public.dosc", "tasks|retry|public.dosc", "verify|public.dosc",
		"search|public.dosc|x", "search|public.dosc|--like|1", "uninstall|public.dosc",
	} {
		list = append(list, mistake{exitUsage, command, []string{
			`there is no pipeline "public.dosc"`,
			"did you mean public.docs?", "there are: public.docs",
		}})
		short := strings.Replace(command, "public.", "", 1)
		list = append(list, mistake{exitUsage, short, []string{
			`there is no pipeline "dosc"`, "did you mean public.docs?",
			"there are: public.docs",
		}})
	}
	// The bare table name finds it, but does not remove it.
	for _, command := range []string{
		"verify|docs", "search|docs|title", "search|docs|--like|1", "tasks|list|docs",
		"backfill|docs|--dry-run", "uninstall|public.docs|--dry-run",
	} {
		s.run(0, strings.Split(command, "|")...)
	}
	list = append(list, mistake{exitUsage, "uninstall|docs|--dry-run", []string{"did you mean public.docs?"}})
	list = append(list, mistake{0, "check", []string{"FOR UPDATE NOWAIT", "SKIP LOCKED skips it"}})
	s.mistakes(append(list, []mistake{
		{exitUsage, "search|public.docs|x|--filter|nosuch=1", []string{`no column "nosuch"`, "there are: id, title, body"}},
		{exitUsage, "search|public.docs|x|--filter|id", []string{"expected COLUMN=VALUE"}},
		{exitUsage, "search|public.docs|x|-k|many", []string{"-k: expected a whole number"}},
		{
			exitUsage, "search|public.docs|x|--hybrid|--language|klingon",
			[]string{`"klingon"`, "SELECT cfgname FROM pg_ts_config"},
		},
		{exitNoMatch, "search|public.docs|--like|99", []string{`key "99"`, "no such row"}},
		{exitUsage, "search|public.docs|--like|abc", []string{"does not fit"}},
		{exitUsage, "wait", []string{"--caught-up", "--lsn LSN"}},
		{exitUsage, "wait|--lsn|zz", []string{"such as 0/16B3748"}},
		{exitUsage, "wait|--caught-up|--timeout|soon", []string{"a duration such as"}},
		{exitUsage, "verify|--deep|-1", []string{"--deep", "not negative"}},
		{exitUsage, "status|-o|xml", []string{"table, json, yaml or csv"}},
		{exitUsage, "pause|--yes|--dry-run", []string{"exclude each other"}},
		{exitUsage, "init|--slot|Bad", []string{"a-z, 0-9 and _"}},
		{exitUsage, "run|--ops-listen|nonsense", []string{"HOST:PORT"}},
		{exitUsage, "run|--http|127.0.0.1:0", []string{"--tokens-file", "--no-auth"}},
		{exitUsage, "run|--admin-listen|127.0.0.1:0", []string{"would reject every request", "--role admin --tokens-file"}},
		{exitUsage, "run|--set|http.admin.cert=x", []string{"http.admin.cert", "belong together"}},
		{exitUsage, "run|--http|127.0.0.1:0|--tokens-file|" + missing, []string{missing}},
		{exitUsage, "run|--http|127.0.0.1:0|--tokens-file|" + empty, []string{empty, "no token"}},
		{exitUsage, "run|--config|" + missing, []string{missing, "no such file"}},
		{exitUsage, "run|--config|" + filepath.Dir(missing), []string{"is a directory"}},
		{exitUsage, "plugins|info|" + empty, []string{"not executable", "chmod +x"}},
		{exitUsage, "plugins|register|" + missing, []string{missing}},
		{exitUsage, "models|import|" + missing, []string{missing, "config.json"}},
		{exitUsage, "models|show|" + missing, []string{missing, "a model is a folder with"}},
		{exitUsage, "embed|x|--kind|doc", []string{"document or query"}},
		{exitUsage, "embed", []string{"embed requires TEXT"}},
	}...))
}

func TestMistakes_OfConnections(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	const nobody = "127.0.0.1:1"
	good, server := s.db.URL(testenv.Owner), s.db.Server.Addr()
	from := "the connection string comes from EMBEDSIDECAR_DATABASE_URL"
	for dsn, m := range map[string]mistake{
		"postgres://u@" + nobody + "/d": {
			exitConnect, "status",
			[]string{"is the server running at " + nobody, from},
		},
		"postgres://u:wrong@" + server + "/" + s.db.Name: {exitConnect, "status", []string{
			"password authentication failed",
			"check role and password", from,
		}},
		strings.Replace(good, "/"+s.db.Name, "/nosuch", 1): {
			exitConnect, "status",
			[]string{`database "nosuch" does not exist`, "SELECT datname", from},
		},
		"postgres://u@" + server + "/d?sslmode=require": {exitConnect, "status", []string{"sslmode=disable", from}},
		"mydb":                          {exitUsage, "status", []string{"neither a URL"}},
		"postgresql+psycopg://u@h/d":    {exitUsage, "status", []string{"drop +psycopg"}},
		"postgres://u@localhost:port/d": {exitUsage, "status", []string{"EMBEDSIDECAR_DATABASE_URL"}},
		"postgres://u@" + server + "/d?sslmode=verify-full&sslrootcert=/nonexistent": {
			exitUsage, "status",
			[]string{"/nonexistent"},
		},
	} {
		s.at(dsn)
		s.mistakes([]mistake{m})
	}
}

// TestMistakes_OfFiles: what a file names and is not there is reported at once, and what would be ignored is refused.
func TestMistakes_OfFiles(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	for text, want := range map[string][]string{
		`auth: {tokens_file: /nowhere/tokens}
pipelines:
  - {table: a, columns: [b], into: {table: e}, plugin: nosuch}
  - {table: a, columns: [b], into: {table: f}, plugin: remote, model: anything}
`: {`plugin "nosuch" not found`, "auth.tokens_file:", "token create", "anything"},
		`pipelines: [{table: a, columns: [b], text: "b || 'c'", into: {table: e}}]`: {
			"pipelines[0].columns", "exclude each other",
		},
	} {
		file := filepath.Join(t.TempDir(), "embedsidecar.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, stderr := s.run(exitUsage, "config", "validate", "--config", file)
		s.has(stderr, want...)
	}
	// Nothing is in order where nothing was looked at.
	none := s.file("databases: [{match: 'nosuch_*'}]\npipelines: [{table: a, columns: [b], into: {table: e}}]\n")
	for _, command := range []string{"status", "check", "init", "verify", "wait --caught-up", "run --once"} {
		_, stderr := s.run(exitNoMatch, append(strings.Fields(command), "--config", none)...)
		s.has(stderr, "no database matches databases[].match")
	}
}

// TestMistakes_OfRolesThatLackAGrant: check reports beforehand why init would be refused, with statements that can be
// run as printed. Each lack is reported, fixed by the printed statements, and no longer reported.
func TestMistakes_OfRolesThatLackAGrant(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	s.db.MustExec("ALTER TABLE docs ADD secret boolean; CREATE SCHEMA vectors")
	role := s.db.Role("REPLICATION")
	s.db.MustExecSuper(`GRANT USAGE ON SCHEMA public, vectors TO "` + role + `"; GRANT SELECT (id, title, body) ON docs TO "` +
		role + `"`)
	file := filepath.Join(t.TempDir(), "embedsidecar.yaml")
	config := `version: 1
pipelines: [{table: docs, columns: [title], where: NOT secret, into: {table: vectors.docs_embedding}}]
`
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	s.as(role)
	told := func() string {
		stdout, stderr := s.run(exitFailed, "check", "--config", file)
		return stdout + stderr
	}
	for _, lack := range []struct{ words, way string }{
		{"may not create in the database", `GRANT CREATE ON DATABASE "` + s.db.Name + `" TO "` + role + `";`},
		{"may not create in the schema", `GRANT CREATE ON SCHEMA "vectors" TO "` + role + `";`},
		{
			`read column "secret" of "public"."docs": role "` + role + `" may not`,
			`GRANT SELECT ("id", "title", "secret") ON "public"."docs" TO "` + role + `";`,
		},
	} {
		s.has(told(), lack.words, lack.way)
		s.db.MustExecSuper(lack.way)
		if now := told(); strings.Contains(now, lack.words) {
			t.Errorf("told though it was done: %s\n%s", lack.way, now)
		}
	}
	// What is left is the publication, for which the owner of the table is needed.
	s.db.MustExecSuper(`ALTER TABLE docs OWNER TO "` + role + `"`)
	s.run(0, "init", "--config", file)
}

func TestMistakes_OfRolesAndDatabases(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	s.once(0)

	// A role without rights is told what to grant, whatever it tries.
	s.as(s.db.Role(""))
	var list []mistake
	for _, command := range []string{
		"status", "verify", "wait|--caught-up", "search|public.docs|x", "pause", "tasks|retry",
		"uninstall|--yes", "run|--no-init",
	} {
		group := "embedsidecar_reader"
		if strings.HasPrefix(command, "search") {
			group = "embedsidecar_searcher"
		}
		list = append(list, mistake{exitPermission, command, []string{"GRANT " + group + " TO", "embedsidecar roles"}})
	}
	s.mistakes(append(list, mistake{exitFailed, "check", []string{
		"error  replication connection", "REPLICATION",
		"error  schema embedsidecar",
	}}))

	// Another database of the same server: slot names are global.
	other := testenv.DB(t, testenv.Empty(), testenv.On(s.db.Server))
	other.MustExec("CREATE TABLE docs (id bigint PRIMARY KEY, title text, body text)")
	s.at(other.URL(testenv.Owner))
	_, stderr := s.once(exitConflict)
	s.has(stderr, fmt.Sprintf("slot %q is of database %q", s.slot, s.db.Name), "--slot embedsidecar_"+other.Name)
	if strings.Contains(stderr, "pg_drop_replication_slot") {
		t.Errorf("the slot at work is offered to be dropped: %s", stderr)
	}
	stdout, _ := s.run(exitFailed, "check")
	s.has(stdout, fmt.Sprintf("error  slot: slot %q is of database", s.slot))

	// One without pgvector, and a role that may not install it.
	other.MustExecSuper("DROP EXTENSION vector CASCADE")
	stdout, _ = s.run(exitFailed, "check")
	s.has(stdout, "error  extension vector: not installed", "CREATE EXTENSION vector")
	const hides = 18 // from this major on a database can be made to see no extensions
	if major := other.Server.Major(); major >= hides {
		other.MustExecSuper("ALTER DATABASE " + other.Name + " SET extension_control_path = '/nowhere'")
		stdout, _ = s.run(exitFailed, "check")
		s.has(stdout, "error  extension vector: the server does not have pgvector", fmt.Sprintf("such as postgresql-%d-pgvector",
			major))
	}
}
