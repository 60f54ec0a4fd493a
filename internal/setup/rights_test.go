package setup_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/status/check"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestTrust_DefaultPrivilegesLendNothing: the owner's default privileges on tables and functions must not grant access
// to the queue, its keys and its functions. On embedding tables they grant at most SELECT, and not to roles that may
// not read all columns or rows of the source: the table may hold the texts.
func TestTrust_DefaultPrivilegesLendNothing(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	app, partly, passing := b.Role(""), b.Role(""), b.Role("BYPASSRLS")
	for _, sql := range []string{
		`ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO %[1]s, %[2]s, %[3]s, PUBLIC`,
		`ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO %[1]s`,
		`ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO %[1]s, PUBLIC`,
		`ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO %[1]s`,
		`GRANT SELECT ON docs TO %[1]s, %[3]s`, `GRANT SELECT (id, title) ON docs TO %[2]s`,
	} {
		b.MustExec(fmt.Sprintf(sql, app, partly, passing))
	}
	reads := func(table, want string) {
		t.Helper()
		got := testenv.Value[string](b.Database, `SELECT coalesce(string_agg(CASE a.grantee WHEN 0 THEN 'all'
			WHEN $2::regrole THEN 'app' WHEN $3::regrole THEN 'partly' ELSE 'passing' END || ' ' || a.privilege_type, ', '
			ORDER BY a.grantee), '') FROM pg_class AS c, aclexplode(c.relacl) AS a
			WHERE c.oid = $1::regclass AND a.grantee <> c.relowner`, table, app, partly)
		if got != want {
			t.Errorf("rights on %s: %q, want %q", table, got, want)
		}
	}
	slot := b.SlotName()
	b.init(b.options(slot, side()))
	if got := testenv.Value[string](b.Database, `SELECT coalesce(string_agg(DISTINCT c.relname, ', '), '')
		FROM pg_class AS c, aclexplode(c.relacl) AS a
		WHERE c.relnamespace = 'embedsidecar'::regnamespace AND a.grantee = $1::regrole`, app); got != "" {
		t.Errorf("the application has rights on %s", got)
	}
	if got := testenv.Value[string](b.Database, `SELECT coalesce(string_agg(DISTINCT p.proname, ', '), '')
		FROM pg_proc AS p, aclexplode(p.proacl) AS a
		WHERE p.pronamespace = 'embedsidecar'::regnamespace AND a.grantee IN (0, $1::regrole)`, app); got != "" {
		t.Errorf("the application may run %s", got)
	}
	if testenv.Value[bool](b.Database, "SELECT has_schema_privilege($1, 'embedsidecar', 'USAGE')", app) {
		t.Error("the application may use the schema")
	}
	reads("docs_embedding", "app SELECT, passing SELECT")

	b.MustExec(`CREATE TABLE secret (LIKE docs INCLUDING ALL); ALTER TABLE secret ENABLE ROW LEVEL SECURITY`)
	secret, joined := side(), side()
	secret.Name, secret.Table, secret.IntoTable = "secret", "secret", "secret_embedding"
	joined.Name, joined.IntoTable = "joined", "joined_embedding"
	joined.Joins = pipeline.Joins{{
		Schema: "public", Table: "secret", As: "secret", On: []pipeline.On{{Column: "id", Of: "id"}}, Text: "title",
	}}
	b.init(b.options(slot, side(), secret, joined))
	reads("secret_embedding", "passing SELECT")
	reads("joined_embedding", "passing SELECT")
}

// TestTrust_TextsOfChunksPastPoliciesAreTold: a policy does not revoke earlier grants; check reports them.
func TestTrust_TextsOfChunksPastPoliciesAreTold(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	app, nobody := b.Role(""), b.Role("")
	spec := side()
	spec.Chunking.Strategy, spec.Chunking.Tokens = pipeline.ChunkTokens, 64
	o := b.options(b.SlotName(), spec)
	b.init(o)
	told := func(want ...string) {
		t.Helper()
		got := find(b.check(o), check.Warn, "read the texts of chunks")
		if len(want) == 0 != (len(got) == 0) {
			t.Errorf("check tells %+v", got)
		}
		for _, word := range want {
			if len(got) > 0 && !strings.Contains(got[0].Detail, word) {
				t.Errorf("nothing tells of %s: %+v", word, got)
			}
		}
	}
	b.MustExec(`GRANT SELECT ON docs, docs_embedding TO ` + app)
	told()
	b.MustExec(`GRANT SELECT (chunk_text) ON docs_embedding TO ` + nobody)
	told(nobody)
	b.MustExec(`ALTER TABLE docs ENABLE ROW LEVEL SECURITY`)
	told(app, nobody)
	b.MustExec(`ALTER TABLE docs_embedding ENABLE ROW LEVEL SECURITY`)
	told()
}

// TestTrust_NamesEndNoStatement: every statement that is run or printed for psql stays one statement, whatever a
// table's name is.
func TestTrust_NamesEndNoStatement(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	b.MustExec(`CREATE SCHEMA "s$$; DROP TABLE docs; --"`)
	b.MustExec(`CREATE TABLE "s$$; DROP TABLE docs; --"."d$$" (id bigint PRIMARY KEY, title text, body text)`)
	spec := side()
	spec.Schema, spec.Table, spec.IntoTable = `s$$; DROP TABLE docs; --`, "d$$", `e$$; DROP TABLE docs; --`
	b.init(b.options(b.SlotName(), spec))
	if !testenv.Value[bool](b.Database, "SELECT to_regclass('public.docs') IS NOT NULL") {
		t.Error("a name ended a statement")
	}
}

// TestTrust_AForeignKeyToAnEmbeddingTable: deleting a vector would run the triggers of the referencing table.
func TestTrust_AForeignKeyToAnEmbeddingTable(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	o := b.options(b.SlotName(), side())
	b.init(o)
	name, pool := b.tenant()
	b.MustExec("GRANT SELECT, REFERENCES ON docs_embedding TO " + name)
	b.as(pool, `CREATE TABLE lair.hook (id bigint, chunk_no integer,
		FOREIGN KEY (id, chunk_no) REFERENCES public.docs_embedding (id, chunk_no) ON DELETE CASCADE)`)
	findings := b.check(o)
	if len(find(findings, check.Wrong, "hook")) == 0 {
		t.Errorf("check says nothing of the foreign key: %+v", findings)
	}
}
