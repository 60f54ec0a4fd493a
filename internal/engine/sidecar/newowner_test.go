package sidecar_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// sneak is a function that an index may call, and that writes evidence nevertheless.
const sneak = `CREATE FUNCTION sneak(vector) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN
	RETURN public.peek('x'); END $$`

// TestTrust_AnOwnerWhoComesWithinAHeartbeat: a write notices that a table has another owner than the one that was
// judged.
func TestTrust_AnOwnerWhoComesWithinAHeartbeat(t *testing.T) {
	t.Parallel()
	const parts = `CREATE TABLE docs_embedding (id bigint, chunk_no integer NOT NULL DEFAULT 0,
		generation integer NOT NULL, text_hash bytea NOT NULL, embedded_at timestamptz NOT NULL,
		embedding vector(8) NOT NULL, PRIMARY KEY (id, chunk_no)) PARTITION BY RANGE (id);
		CREATE TABLE part PARTITION OF docs_embedding FOR VALUES FROM (0) TO (1000)`
	index := func(table string) func(other string) string {
		return func(other string) string {
			return `ALTER TABLE ` + table + ` OWNER TO ` + other + `; SET ROLE ` + other + `;
				CREATE INDEX ON ` + table + ` (public.sneak(embedding)); RESET ROLE`
		}
	}
	for name, c := range map[string]struct {
		made     string
		super    bool // the sidecar is a superuser, and writes into a column
		noDirect bool
		comes    func(other string) string
		word     string // of the reason
	}{
		"source": {`ALTER TABLE docs ADD embedding vector(8)`, true, false, index("docs"), "belongs to"},
		"partition of the source": {
			`DROP TABLE docs; CREATE TABLE docs (id bigint PRIMARY KEY, body text,
			embedding vector(8)) PARTITION BY RANGE (id); CREATE TABLE part PARTITION OF docs FOR VALUES FROM (0) TO (1000)`,
			true, false, index("part"), "belongs to",
		},
		"direct":    {``, false, false, index("docs_embedding"), "belongs to"},
		"queue":     {``, false, true, index("docs_embedding"), "belongs to"},
		"partition": {parts, false, false, index("part"), "belongs to"},
		"trigger of a partition": {parts, false, false, func(other string) string {
			return `GRANT TRIGGER ON part TO ` + other + `; SET ROLE ` + other + `;
				CREATE TRIGGER trap BEFORE INSERT OR UPDATE ON part FOR EACH ROW EXECUTE FUNCTION trap(); RESET ROLE`
		}, "trigger"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testenv.DB(t)
			db.MustExec(docs)
			db.MustExec(evidence)
			db.MustExec(sneak)
			if c.made != "" {
				db.MustExec(c.made)
			}
			spec := intoTable("docs", "body")
			if c.super {
				spec = column("docs", "body")
			}
			r := newRig(t, db, spec)
			r.edit("a ")
			if c.super {
				db.MustExecSuper(`ALTER TABLE docs OWNER TO ` + testenv.Superuser)
				r.url, r.trusted = db.URL(testenv.Superuser), []string{testenv.Owner}
				r.known()
			}
			r.options = func(o *sidecar.Options) { o.Heartbeat, o.NoDirect = time.Hour, c.noDirect }
			s, _ := r.start()
			r.settle()
			if !c.super { // another owner who is trusted stops nothing
				db.MustExecSuper(`ALTER TABLE docs_embedding OWNER TO ` + testenv.Superuser)
				r.edit("b ")
				s.Reload()
				r.settle()
				r.verify()
			}
			other := db.Role("")
			db.MustExecSuper(`GRANT CREATE ON SCHEMA public TO ` + other)
			db.MustExecSuper(`BEGIN; UPDATE docs SET body = 'c ' || id; ` + c.comes(other) + `; DELETE FROM evidence; COMMIT`)
			var who []string // but for autovacuum, which runs an index's functions as its owner
			testenv.Eventually(t, waitTimeout, func() (bool, string) {
				who = testenv.Values[string](db, `SELECT DISTINCT who FROM evidence WHERE who <> $1`, other)
				return len(who) > 0 || strings.Contains(s.States()[0].Reason(), c.word), "nothing is written or refused"
			})
			if len(who) > 0 {
				t.Errorf("code of %s ran as %q", other, who)
			}
		})
	}
}

// TestTrust_AnOwnerWhoIsTrustedNoMore: a role that was a superuser, or a member of the role that works, may cease to be
// that while a sidecar runs. Then what belongs to it is used no more.
func TestTrust_AnOwnerWhoIsTrustedNoMore(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		super         bool // the sidecar is a superuser
		table, ceases string
	}{
		"superuser":         {true, "docs", `ALTER ROLE %s NOSUPERUSER`},
		"superuser, joined": {true, "authors", `ALTER ROLE %s NOSUPERUSER`},
		"member":            {false, "docs_embedding", `REVOKE ` + testenv.Owner + ` FROM %s`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testenv.DB(t)
			db.MustExec(docs)
			db.MustExec(`CREATE TABLE authors (id bigint PRIMARY KEY, name text)`)
			spec := intoTable("docs", "body")
			if c.table == "authors" {
				spec.Joins = pipeline.Joins{{
					Schema: "public", Table: "authors", As: "author", On: []pipeline.On{{Column: "id", Of: "id"}}, Text: "name",
				}}
			}
			r := newRig(t, db, spec)
			r.edit("a ")
			other := db.Role("SUPERUSER")
			if c.super {
				r.url, r.trusted = db.URL(testenv.Superuser), []string{testenv.Owner}
			} else {
				db.MustExecSuper(`ALTER ROLE ` + other + ` NOSUPERUSER`)
				db.MustExecSuper(fmt.Sprintf(`GRANT %s TO %s`, testenv.Owner, other))
			}
			db.MustExecSuper(`ALTER TABLE ` + c.table + ` OWNER TO ` + other)
			r.known()
			s, _ := r.start()
			r.settle()
			db.MustExecSuper(fmt.Sprintf(c.ceases, other))
			reason(t, s, "docs", "belongs to", other)
		})
	}
}
