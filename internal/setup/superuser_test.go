package setup_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestTrust_ASuperuserOverATableOfSomebodyElse: its owner's triggers and functions would have all privileges.
func TestTrust_ASuperuserOverATableOfSomebodyElse(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	o := b.options(b.SlotName(), docs())
	plain, err := database.Connect(t.Context(), b.URL(testenv.Superuser), database.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	o.Pool = plain
	_, err = setup.Init(t.Context(), o)
	wantError[*refusal.ConfigError](t, err, "superuser", testenv.Owner, "--trust-owner "+testenv.Owner)
	tenant := b.Role("")
	b.MustExecSuper(`ALTER TABLE docs OWNER TO ` + tenant)
	_, err = setup.Init(t.Context(), o)
	wantError[*refusal.ConfigError](t, err, "if "+tenant+" may read all databases",
		"ALTER ROLE "+tenant+" REPLICATION, and")
	if refused, is := errors.AsType[*refusal.ConfigError](err); !is ||
		strings.Contains(strings.Join(refused.Hint, "\n"), "REPLICATION;") {
		t.Errorf("a statement to paste would let the stranger read everything: %v", err)
	}
	b.MustExecSuper(`ALTER TABLE docs OWNER TO ` + testenv.Owner)
	o.Pool = b.super // the superuser trusts the owner
	b.init(o)
	b.MustExecSuper(`CREATE TABLE above (id bigint NOT NULL); ALTER TABLE docs INHERIT above;
		ALTER TABLE above OWNER TO ` + tenant + `; ALTER TABLE docs OWNER TO ` + testenv.Superuser)
	o.Pool = plain
	_, err = setup.Init(t.Context(), o)
	wantError[*refusal.ConfigError](t, err, "superuser", "above", tenant)
}

// TestTrust_ASuperuserOverAPartitionOfSomebodyElse: the owner of one partition makes an index there, whose function
// runs when a statement over the whole table is planned. Neither set-up nor report run it as a superuser.
func TestTrust_ASuperuserOverAPartitionOfSomebodyElse(t *testing.T) {
	t.Parallel()
	b := newBase(t)
	tenant, pool := b.tenant()
	b.MustExecSuper(`CREATE TABLE docs (id bigint PRIMARY KEY, title text, body text) PARTITION BY RANGE (id);
		CREATE TABLE first PARTITION OF docs FOR VALUES FROM (0) TO (100);
		CREATE TABLE second PARTITION OF docs FOR VALUES FROM (100) TO (200);
		INSERT INTO docs VALUES (150, 'a title', 'a text')`)
	plain, err := database.Connect(t.Context(), b.URL(testenv.Superuser), trustsOwner)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	o := b.options(b.SlotName(), docs())
	o.Pool = plain
	if _, err := setup.Init(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	b.MustExecSuper(`ALTER TABLE second OWNER TO ` + tenant)
	b.as(pool, `CREATE FUNCTION lair.ran() RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN
		PERFORM pg_advisory_lock_shared(4711) WHERE current_user <> '`+tenant+`'; RETURN true; END $$`,
		`CREATE INDEX ON second (id) WHERE lair.ran()`)
	for _, o.DryRun = range []bool{true, false} {
		_, err := setup.Init(t.Context(), o)
		wantError[*refusal.ConfigError](t, err, "superuser", "second", tenant, "--trust-owner "+tenant)
	}
	if got, err := resolve.Load(t.Context(), plain, o.Slot); err != nil || got[0].Status != pipeline.Misconfigured {
		t.Errorf("a superuser may work on it: %v %+v", err, got)
	}
	for _, upTo := range []int64{-1, 1000} {
		if _, err := (report.Options{CountUpTo: upTo, AtOnce: true}).Read(t.Context(), plain); err != nil {
			t.Error(err)
		}
	}
	if testenv.Value[bool](b.Database, `SELECT EXISTS (SELECT FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database
		WHERE l.locktype = 'advisory' AND l.objid = 4711 AND d.datname = current_database())`) {
		t.Error("a function of the partition's owner has run with the rights of a superuser")
	}
}

// TestTrust_ASuperuserInASchemaOfSomebodyElse: the owner of a schema that statements name can rename it, and put
// another table, or a domain with a CHECK, in its place. The owner of an extension can move it.
func TestTrust_ASuperuserInASchemaOfSomebodyElse(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	tenant, _ := b.tenant()
	b.MustExecSuper(`ALTER TABLE docs OWNER TO ` + testenv.Superuser)
	plain, err := database.Connect(t.Context(), b.URL(testenv.Superuser), database.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	o := b.options(b.SlotName(), docs())
	o.Pool = plain
	b.MustExecSuper(fmt.Sprintf(`ALTER DATABASE %q OWNER TO %s`, b.Name, testenv.Superuser))
	for _, c := range []struct{ what, owns string }{
		{"schema public", `ALTER SCHEMA public OWNER TO %[1]s; -- %[2]s`},
		{"schema public", `ALTER SCHEMA public OWNER TO pg_database_owner; ALTER DATABASE %[2]q OWNER TO %[1]s`},
		{"extension vector", `UPDATE pg_extension SET extowner = '%[1]s'::regrole WHERE extname = 'vector' AND '%[2]s' <> ''`},
	} {
		b.MustExecSuper(fmt.Sprintf(c.owns, tenant, b.Name))
		_, err := setup.Init(t.Context(), o)
		wantError[*refusal.ConfigError](t, err, "superuser", c.what, tenant, "--trust-owner "+tenant)
		b.MustExecSuper(fmt.Sprintf(c.owns, testenv.Superuser, b.Name))
	}
	b.init(o)
	b.MustExecSuper(`ALTER SCHEMA public OWNER TO ` + tenant)
	if got, err := resolve.Load(t.Context(), plain, o.Slot); err != nil || got[0].Status != pipeline.Misconfigured {
		t.Errorf("a superuser may work on it: %v %+v", err, got)
	}
}

// TestTrust_ASuperuserAndTriggersOfSomebodyElse: with a column as the destination, a trigger on the source table runs
// on the next write of vectors, whoever made it. An embedding table fires none of them.
func TestTrust_ASuperuserAndTriggersOfSomebodyElse(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	tenant, pool := b.tenant()
	b.MustExecSuper(`ALTER TABLE docs OWNER TO ` + testenv.Superuser + `; GRANT ALL ON docs TO ` + tenant)
	plain, err := database.Connect(t.Context(), b.URL(testenv.Superuser), trustsOwner)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	o := b.options(b.SlotName(), docs())
	o.Pool = plain
	_, err = setup.Init(t.Context(), o)
	wantError[*refusal.ConfigError](t, err, "superuser", "REVOKE TRIGGER ON public.docs FROM "+tenant, "embedding table")
	b.as(pool, `CREATE TRIGGER hung AFTER UPDATE ON docs FOR EACH ROW EXECUTE FUNCTION lair.fires()`)
	b.MustExecSuper(`REVOKE ALL ON docs FROM ` + tenant)
	_, err = setup.Init(t.Context(), o)
	wantError[*refusal.ConfigError](t, err, "superuser", tenant, "DROP TRIGGER hung ON public.docs;")
	b.MustExecSuper(`DROP TRIGGER hung ON docs`)
	b.init(o)
	b.MustExecSuper(`GRANT TRIGGER ON docs TO PUBLIC`)
	if got, err := resolve.Load(t.Context(), plain, o.Slot); err != nil || got[0].Status != pipeline.Misconfigured {
		t.Errorf("a superuser may write into it: %v %+v", err, got)
	}
	table := docs()
	table.Name, table.IntoColumn, table.IntoTable = "beside", "", "docs_embedding"
	o = b.options(o.Slot, table)
	o.Pool = plain
	b.init(o)
}

// TestTrust_ASuperuserAndFunctionsOfSomebodyElse: a plan may evaluate functions in constraints, indexes, statistics of
// its table with the privileges of its role, and a write those in generated columns.
func TestTrust_ASuperuserAndFunctionsOfSomebodyElse(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	tenant, pool := b.tenant()
	b.MustExecSuper(`ALTER TABLE docs OWNER TO ` + testenv.Superuser)
	b.as(pool, `CREATE FUNCTION lair.same(text) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT $1'`,
		`CREATE FUNCTION lair.equal(text, text) RETURNS boolean IMMUTABLE LANGUAGE sql AS 'SELECT $1 = $2'`,
		`CREATE OPERATOR lair.=== (LEFTARG = text, RIGHTARG = text, FUNCTION = lair.equal)`,
		`CREATE FUNCTION lair.apart(text, text) RETURNS float8 IMMUTABLE LANGUAGE sql AS 'SELECT 1::float8'`,
		`CREATE TYPE lair.span AS RANGE (SUBTYPE = text, SUBTYPE_DIFF = lair.apart)`,
		`CREATE DOMAIN lair.word AS text`)
	plain, err := database.Connect(t.Context(), b.URL(testenv.Superuser), trustsOwner)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	table := docs()
	table.Name, table.IntoColumn, table.IntoTable = "beside", "", "docs_embedding"
	alter := `ALTER TABLE docs `
	for _, hung := range []struct {
		make, drop, what, thing string
		written                 bool
	}{
		{
			alter + `ADD CONSTRAINT hung CHECK (lair.same(body) <> 'x')`, alter + `DROP CONSTRAINT hung`,
			"constraint hung of public.docs", "FUNCTION lair.same(text)", false,
		},
		{
			alter + `ADD CONSTRAINT hung CHECK (body OPERATOR(lair.===) body)`, alter + `DROP CONSTRAINT hung`,
			"constraint hung of public.docs", "FUNCTION lair.equal(text,text)", false,
		},
		{
			`CREATE INDEX hung ON docs (lair.same(body))`, `DROP INDEX hung`, "index public.hung of public.docs",
			"FUNCTION lair.same(text)", false,
		},
		{
			`CREATE STATISTICS hung ON title, (lair.same(body)) FROM docs`, `DROP STATISTICS hung`,
			"statistics hung of public.docs", "FUNCTION lair.same(text)", false,
		},
		{
			alter + `ADD hung text GENERATED ALWAYS AS (lair.same(body)) STORED`, alter + `DROP hung`,
			"generated column hung of public.docs", "FUNCTION lair.same(text)", true,
		},
		{
			`CREATE RULE hung AS ON UPDATE TO docs DO ALSO SELECT lair.same(NEW.body)`, `DROP RULE hung ON docs`,
			"rule hung of public.docs", "FUNCTION lair.same(text)", true,
		},
		{
			alter + `ADD span lair.span`, alter + `DROP span`,
			"type of column span of public.docs", "FUNCTION lair.apart(text,text)", true,
		},
		{
			alter + `ADD CONSTRAINT hung CHECK (body::lair.word <> 'x')`, alter + `DROP CONSTRAINT hung`,
			"constraint hung of public.docs uses a domain", "DOMAIN lair.word", true,
		},
	} {
		b.MustExecSuper(hung.make)
		for _, spec := range []pipeline.Spec{docs(), table} {
			if hung.written && !spec.InSource() {
				continue
			}
			o := b.options(b.SlotName(), spec)
			o.Pool = plain
			_, err = setup.Init(t.Context(), o)
			wantError[*refusal.ConfigError](t, err, hung.what, tenant, "superuser", "ALTER "+hung.thing+" OWNER TO")
		}
		b.MustExecSuper(hung.drop)
	}
	b.MustExecSuper(alter + `ADD hung text GENERATED ALWAYS AS (lair.same(body)) STORED`)
	o := b.options(b.SlotName(), table)
	o.Pool = plain
	b.init(o)
	b.MustExecSuper(`CREATE INDEX hung ON docs (lair.same(body))`)
	if got, err := resolve.Load(t.Context(), plain, o.Slot); err != nil || got[0].Status != pipeline.Misconfigured {
		t.Errorf("a superuser may work on it: %v %+v", err, got)
	}
}

// TestTrust_APartitionKeyOfSomebodyElse: an UPDATE of a partition evaluates the key of its parent.
func TestTrust_APartitionKeyOfSomebodyElse(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	tenant, pool := b.tenant()
	b.as(pool, `CREATE FUNCTION lair.same(text) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT $1'`)
	b.MustExecSuper(`ALTER TABLE docs OWNER TO ` + testenv.Superuser + `;
		CREATE TABLE whole (LIKE docs) PARTITION BY LIST (lair.same(title));
		ALTER TABLE whole ATTACH PARTITION docs DEFAULT`)
	plain, err := database.Connect(t.Context(), b.URL(testenv.Superuser), trustsOwner)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	oid := testenv.Value[uint32](b.Database, `SELECT 'public.docs'::regclass::oid`)
	err = database.RetryReadOnly(t.Context(), plain, func(tx pgx.Tx) error {
		table, err := catalog.TableByOID(t.Context(), tx, oid)
		if err != nil {
			return err
		}
		return table.UnrulyIntoColumn(t.Context(), tx)
	})
	wantError[*refusal.ConfigError](t, err, "partition key of public.whole", tenant,
		"ALTER FUNCTION lair.same(text) OWNER TO")
}
