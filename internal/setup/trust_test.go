package setup_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	"github.com/embedsidecar/embedsidecar/internal/setup/uninstall"
	"github.com/embedsidecar/embedsidecar/internal/status/check"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// tenant is a role that prepares traps: its function makes it a superuser when a superuser runs it.
func (b *base) tenant() (name string, pool *pgxpool.Pool) {
	b.t.Helper()
	name = b.Role("")
	b.MustExecSuper(fmt.Sprintf(`GRANT CREATE ON DATABASE %q TO %s; GRANT CREATE ON SCHEMA public TO %[2]s`, b.Name, name))
	pool, err := pgxpool.New(b.t.Context(), b.URL(name))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(pool.Close)
	b.as(pool, `CREATE SCHEMA lair`, `CREATE FUNCTION lair.trap() RETURNS integer LANGUAGE plpgsql AS $$ BEGIN
		IF (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN EXECUTE 'ALTER ROLE `+name+
		` SUPERUSER'; END IF;
		RAISE EXCEPTION 'the trap has run as %', current_user; END $$`,
		`CREATE FUNCTION lair.fires() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM lair.trap(); RETURN NEW; END $$`)
	return name, pool
}

// as runs statements with another pool.
func (b *base) as(pool *pgxpool.Pool, statements ...string) {
	b.t.Helper()
	for _, sql := range statements {
		if _, err := pool.Exec(context.WithoutCancel(b.t.Context()), sql); err != nil {
			b.t.Fatalf("%s: %v", sql, err)
		}
	}
}

// sprung fails the test if a trap made the role a superuser, or an error shows that it ran.
func (b *base) sprung(role string, errs ...error) {
	b.t.Helper()
	if testenv.Value[bool](b.Database, "SELECT rolsuper FROM pg_roles WHERE rolname = $1", role) {
		b.t.Errorf("%s became a superuser", role)
	}
	for _, err := range errs {
		if err != nil && strings.Contains(err.Error(), "the trap has run") {
			b.t.Error(err)
		}
	}
}

// trustsOwner trusts the owner of the database, who may rename its schema public.
var trustsOwner = database.Options{TrustedOwners: []string{testenv.Owner}}

const trapView = `CREATE VIEW embedsidecar.schema_version AS SELECT lair.trap() AS version`

// TestTrust_ASchemaOfSomebodyElse: a tenant makes the schema before we do, with a view in place of a table.
func TestTrust_ASchemaOfSomebodyElse(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	name, pool := b.tenant()
	b.as(pool, `CREATE SCHEMA embedsidecar`, trapView, `GRANT USAGE ON SCHEMA embedsidecar TO public`,
		`GRANT SELECT ON embedsidecar.schema_version TO public`)
	for _, user := range []string{testenv.Superuser, testenv.Owner} {
		_, err := database.Connect(t.Context(), b.URL(user), database.Options{})
		refused := caught[*database.Error](t, err, `schema embedsidecar belongs to role "`+name+`"`, "--trust-owner "+name,
			"DROP SCHEMA embedsidecar")
		if refused.Kind != database.Untrusted || refused.Temporary() {
			t.Errorf("kind %s", refused.Kind)
		}
		b.sprung(name, err)
		// A view is never accepted as a table, whoever is trusted.
		_, err = database.Connect(t.Context(), b.URL(user), database.Options{TrustedOwners: []string{name}})
		wantError[*database.Error](t, err, "schema_version is a view")
		b.sprung(name, err)
	}
	b.as(pool, `DROP VIEW embedsidecar.schema_version`)
	trusting, err := database.Connect(t.Context(), b.URL(testenv.Superuser),
		database.Options{TrustedOwners: []string{"other", name}})
	if err != nil {
		t.Fatalf("with a flag: %v", err)
	}
	trusting.Close()
	// A role that may act as the connecting role can already do everything that its code could. The converse is no
	// reason to trust.
	member, granted := b.Role(""), b.Role("")
	b.MustExecSuper(`GRANT ` + testenv.Owner + ` TO ` + member + `; GRANT ` + granted + ` TO ` + testenv.Owner)
	trusts := map[string]bool{testenv.Superuser: true, testenv.Owner: true, member: true, granted: false}
	offered := []string{b.Role("")} // roles that the hint's statement grants membership
	if testenv.Value[bool](b.Database, `SELECT current_setting('server_version_num')::integer >= 160000`) {
		hollow, settable := b.Role(""), b.Role("")
		b.MustExecSuper(fmt.Sprintf(`GRANT %[1]s TO %[2]s WITH INHERIT FALSE, SET FALSE;
			GRANT %[1]s TO %[3]s WITH INHERIT FALSE`,
			testenv.Owner, hollow, settable))
		trusts[hollow], trusts[settable] = false, true
		offered = append(offered, hollow)
	}
	for owner, trusted := range trusts {
		b.MustExecSuper(`ALTER SCHEMA embedsidecar OWNER TO ` + owner)
		connected, err := database.Connect(t.Context(), b.URL(testenv.Owner), database.Options{})
		if (err == nil) != trusted {
			t.Errorf("a schema of %s: %v", owner, err)
		}
		if err == nil {
			connected.Close()
		}
	}
	for _, owner := range offered {
		b.MustExecSuper(`ALTER SCHEMA embedsidecar OWNER TO ` + owner)
		_, err := database.Connect(t.Context(), b.URL(testenv.Owner), database.Options{})
		hints := strings.Join(caught[*database.Error](t, err).Hint, "\n")
		b.MustExecSuper(regexp.MustCompile(`GRANT .*;`).FindString(hints))
		connected, err := database.Connect(t.Context(), b.URL(testenv.Owner), database.Options{})
		if err != nil {
			t.Fatalf("after what it says: %v\n%s", err, hints)
		}
		connected.Close()
	}
}

// TestTrust_RolesLetTheOwnerActAsTheOneThatRuns: the script makes working roles, whatever the owner's membership was.
func TestTrust_RolesLetTheOwnerActAsTheOneThatRuns(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	run := b.RunRole(b.init(b.options(b.SlotName(), docs())).Pipelines...)
	reader, operator := b.SQLRoles()
	memberships := []string{"", "REVOKE %[1]s FROM %[2]s"}
	if testenv.Value[bool](b.Database, `SELECT current_setting('server_version_num')::integer >= 160000`) {
		memberships = append(memberships, "GRANT %[1]s TO %[2]s WITH INHERIT FALSE, SET FALSE, ADMIN FALSE",
			"GRANT %[1]s TO %[2]s WITH INHERIT FALSE, SET FALSE, ADMIN TRUE")
	}
	for _, membership := range memberships {
		if membership != "" {
			b.MustExecSuper(fmt.Sprintf(membership, run, testenv.Owner))
		}
		b.MustExecSuper(sqlfiles.Roles(run, b.StreamRole(), reader, operator, b.SearcherRole()))
		if connected, err := database.Connect(t.Context(), b.URL(run), database.Options{}); err != nil {
			t.Errorf("%s: %v", membership, err)
		} else {
			connected.Close()
		}
	}
}

// TestTrust_TheScriptOfRolesCallsNoOperatorOfAStranger: whoever pastes it into psql has the search_path that the
// database's owner has set.
func TestTrust_TheScriptOfRolesCallsNoOperatorOfAStranger(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	run := b.RunRole(b.init(b.options(b.SlotName(), docs())).Pipelines...)
	reader, operator := b.SQLRoles()
	trap := `plpgsql AS $$ BEGIN RAISE EXCEPTION 'the trap has run as %', current_user; END $$`
	b.MustExec(`CREATE SCHEMA lair; CREATE FUNCTION lair.same(name, name) RETURNS boolean LANGUAGE ` + trap + `;
		CREATE FUNCTION lair.least(integer, integer) RETURNS boolean LANGUAGE ` + trap + `;
		CREATE OPERATOR lair.= (FUNCTION = lair.same, LEFTARG = name, RIGHTARG = name);
		CREATE OPERATOR lair.>= (FUNCTION = lair.least, LEFTARG = integer, RIGHTARG = integer)`)
	b.MustExecSuper("SET LOCAL search_path = lair, pg_catalog; " +
		sqlfiles.Roles(run, b.StreamRole(), reader, operator, b.SearcherRole()))
}

// TestTrust_TheRoleThatADatabaseGivesToSessions: the owner of a database makes a superuser's sessions run as the owner.
// The owner's schema must not count as the session's own, because its code could take back the superuser's privileges.
func TestTrust_TheRoleThatADatabaseGivesToSessions(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	name, pool := b.tenant()
	b.MustExecSuper(fmt.Sprintf(`ALTER DATABASE %q OWNER TO %s`, b.Name, name))
	b.as(pool, `CREATE SCHEMA embedsidecar`, fmt.Sprintf(`ALTER DATABASE %q SET role = '%s'`, b.Name, name))
	for _, trusted := range [][]string{nil, {testenv.Owner}} {
		_, err := database.Connect(t.Context(), b.URL(testenv.Superuser), database.Options{TrustedOwners: trusted})
		refused := caught[*database.Error](t, err, `run as "`+name+`"`, "--trust-owner "+name, "RESET role;")
		if refused.Kind != database.Untrusted {
			t.Errorf("kind %s", refused.Kind)
		}
	}
	// The connection string names the role only as a part of something else.
	for _, option := range []string{"-c another.role=" + name, "-c application_name=role=" + name + "_2"} {
		options := strings.ReplaceAll(url.QueryEscape(option), "+", "%20")
		_, err := database.Connect(t.Context(), b.URL(testenv.Superuser)+"&options="+options, database.Options{})
		_ = caught[*database.Error](t, err, `run as "`+name+`"`)
	}
	for user, o := range map[string]database.Options{testenv.Superuser: {TrustedOwners: []string{name}}, name: {}} {
		connected, err := database.Connect(t.Context(), b.URL(user), o)
		if err != nil {
			t.Errorf("%s: %v", user, err)
			continue
		}
		connected.Close()
	}
}

// TestTrust_ARoleThatADatabaseTakesBack: its owner removes the setting as soon as a session has begun with it.
func TestTrust_ARoleThatADatabaseTakesBack(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	name, pool := b.tenant()
	b.MustExecSuper(fmt.Sprintf(`ALTER DATABASE %q OWNER TO %s`, b.Name, name))
	watch := b.Super()
	b.as(pool, fmt.Sprintf(`ALTER DATABASE %q SET role = '%s'`, b.Name, name))
	proxy := testenv.StartProxy(t, b.Server.Addr())
	proxy.Delay(300*time.Millisecond, 0)
	connected := make(chan error, 1)
	go func() {
		connections, err := database.Connect(t.Context(), b.URLVia(proxy.Addr(), testenv.Superuser),
			database.Options{ApplicationName: "late", MaxConns: 1})
		if err == nil {
			connections.Close()
		}
		connected <- err
	}()
	testenv.Eventually(t, 30*time.Second, func() (begun bool, state string) {
		err := watch.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND application_name = 'late')`).Scan(&begun)
		return begun, fmt.Sprint(err)
	})
	b.as(pool, fmt.Sprintf(`ALTER DATABASE %q RESET role`, b.Name))
	proxy.Resume()
	refused := caught[*database.Error](t, <-connected, `run as "`+name+`"`)
	if refused.Kind != database.Untrusted {
		t.Errorf("kind %s", refused.Kind)
	}
}

// TestTrust_ASchemaThatComesLater: earlier sessions check again.
func TestTrust_ASchemaThatComesLater(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	o := b.options(b.SlotName(), docs())
	name, pool := b.tenant()
	// All sessions of the pool are older than the schema.
	var sessions []*pgxpool.Conn
	for range b.super.Config().MaxConns {
		session, err := b.super.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sessions = append(sessions, session)
	}
	b.as(pool, `CREATE SCHEMA embedsidecar`, trapView, `GRANT USAGE ON SCHEMA embedsidecar TO public`,
		`GRANT SELECT ON embedsidecar.schema_version TO public`)
	for _, session := range sessions {
		session.Release()
	}
	o.Pool = b.super
	_, initErr := setup.Init(t.Context(), o)
	_, loadErr := resolve.Load(t.Context(), b.super, o.Slot)
	_, dropErr := uninstall.All(t.Context(), uninstall.Options{Pool: b.super})
	_, removeErr := uninstall.Pipeline(t.Context(), uninstall.PipelineOptions{Pool: b.super, Pipeline: "docs"})
	for what, err := range map[string]error{
		"version": catalog.CheckVersion(t.Context(), b.super), "load": loadErr, "init": initErr, "uninstall": dropErr,
		"remove": removeErr,
	} {
		if err == nil || !strings.Contains(err.Error(), `belongs to role "`+name+`"`) {
			t.Errorf("%s: %v", what, err)
		}
		b.sprung(name, err)
	}
	for _, f := range check.Run(t.Context(), check.Options{
		Pool: b.super, ReplicationDSN: b.URL(testenv.Superuser),
		Slot: o.Slot, Publication: o.Publication,
	}) {
		if strings.Contains(f.Detail, "the trap has run") {
			t.Errorf("check: %s: %s", f.Name, f.Detail)
		}
	}
	b.sprung(name)
}

// TestTrust_WhatHangsOnOurTables: the schema is ours, but another role was allowed to attach code to a table in it.
func TestTrust_WhatHangsOnOurTables(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	o := b.options(b.SlotName(), docs())
	b.init(o)
	name, pool := b.tenant()
	b.MustExec(`GRANT USAGE, CREATE ON SCHEMA embedsidecar TO ` + name)
	b.MustExec(`GRANT TRIGGER ON embedsidecar.task TO ` + name)
	for _, tt := range []struct{ make, drop, word string }{
		{
			`CREATE TRIGGER t BEFORE INSERT ON embedsidecar.task FOR EACH ROW EXECUTE FUNCTION lair.fires()`,
			`DROP TRIGGER t ON embedsidecar.task`, "lair.fires()",
		},
		{`CREATE TRIGGER t BEFORE INSERT ON embedsidecar.task FOR EACH ROW WHEN (lair.trap() > 0) EXECUTE FUNCTION suppress_redundant_updates_trigger()`, `DROP TRIGGER t ON embedsidecar.task`, "lair.trap()"},
		{`CREATE VIEW embedsidecar.extra AS SELECT 1`, `DROP VIEW embedsidecar.extra`, "embedsidecar.extra belongs to"},
		{`CREATE TABLE embedsidecar.extra (id int)`, `DROP TABLE embedsidecar.extra`, "embedsidecar.extra belongs to"},
		{`CREATE FUNCTION embedsidecar.pause(text) RETURNS text LANGUAGE sql AS 'SELECT lair.trap()::text'`, `DROP FUNCTION embedsidecar.pause(text)`, "function embedsidecar.pause(text) belongs to"},
		{
			`CREATE FUNCTION embedsidecar.now() RETURNS timestamptz LANGUAGE sql AS 'SELECT NULL::timestamptz'`,
			`DROP FUNCTION embedsidecar.now()`, "function embedsidecar.now() belongs to",
		},
	} {
		b.as(pool, tt.make)
		_, err := resolve.Load(t.Context(), b.pool, o.Slot)
		wantError[*refusal.ConfigError](t, err, tt.word, name)
		drop := pool
		if strings.HasPrefix(tt.drop, "DROP TRIGGER") {
			drop = b.Pool
		}
		b.as(drop, tt.drop)
		if _, err := resolve.Load(t.Context(), b.pool, o.Slot); err != nil {
			t.Fatalf("after %s: %v", tt.drop, err)
		}
	}
	// Code that the owner attaches is not ours, either.
	b.as(pool, `GRANT USAGE ON SCHEMA lair TO `+testenv.Owner)
	for _, tt := range []struct{ make, drop, word string }{
		{`CREATE RULE r AS ON INSERT TO embedsidecar.scan DO INSTEAD NOTHING`, `DROP RULE r ON embedsidecar.scan`, "rule r"},
		{`CREATE OR REPLACE VIEW embedsidecar.audit AS SELECT audit_id, acted_at, finished_at, role_name AS role, said_by, client_addr, application, action, pipeline, arguments, result, changed, '{}'::jsonb AS labels, lair.trap() FROM embedsidecar.audit_log`, `DROP VIEW embedsidecar.audit`, "runs function lair.trap()"},
		{
			`ALTER TABLE embedsidecar.ledger ENABLE ROW LEVEL SECURITY`,
			`ALTER TABLE embedsidecar.ledger DISABLE ROW LEVEL SECURITY`, "row-level security",
		},
		{`CREATE TRIGGER t BEFORE INSERT ON embedsidecar.task FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()`, `DROP TRIGGER t ON embedsidecar.task`, "trigger t"},
	} {
		b.MustExec(tt.make)
		_, err := resolve.Load(t.Context(), b.pool, o.Slot)
		wantError[*refusal.ConfigError](t, err, tt.word)
		b.MustExec(tt.drop)
	}
	if _, err := resolve.Load(t.Context(), b.pool, o.Slot); err != nil {
		t.Error(err)
	}
}

// prepared is an embedding table for docs as anyone who knows its shape can create it.
const prepared = `CREATE TABLE public.docs_embedding (id bigint, chunk_no integer NOT NULL DEFAULT 0,
	generation integer NOT NULL, text_hash bytea NOT NULL,
	embedded_at timestamptz NOT NULL, embedding public.vector(3) NOT NULL, extra integer%s, PRIMARY KEY (id, chunk_no))`

// TestTrust_APreparedEmbeddingTable: it has the right shape, and another role's code on it.
func TestTrust_APreparedEmbeddingTable(t *testing.T) {
	t.Parallel()
	for name, traps := range map[string][]string{
		"nothing": {fmt.Sprintf(prepared, "")},
		"trigger": {
			fmt.Sprintf(prepared, ""),
			`CREATE TRIGGER t BEFORE INSERT ON docs_embedding FOR EACH ROW EXECUTE FUNCTION lair.fires()`,
		},
		"operator": {
			`CREATE FUNCTION lair.trap(integer) RETURNS boolean LANGUAGE sql AS 'SELECT lair.trap() > 0'`,
			`CREATE OPERATOR lair.@@@@ (FUNCTION = lair.trap, RIGHTARG = integer)`,
			fmt.Sprintf(prepared, " CHECK (OPERATOR(lair.@@@@) extra)"),
		},
		"default": {fmt.Sprintf(prepared, " DEFAULT lair.trap()")},
		"check":   {fmt.Sprintf(prepared, " CHECK (lair.trap() > 0)")},
		"generated": {
			`CREATE FUNCTION lair.counts(integer) RETURNS integer IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN lair.trap(); END'`,
			fmt.Sprintf(prepared, " GENERATED ALWAYS AS (lair.counts(chunk_no)) STORED"),
		},
		"statistics": {
			fmt.Sprintf(prepared, ""),
			`CREATE FUNCTION lair.counts(integer) RETURNS integer IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN lair.trap(); END'`,
			`CREATE STATISTICS lair.s ON (lair.counts(1) + extra), id FROM docs_embedding`,
		},
		"rule": {fmt.Sprintf(prepared, ""), `CREATE RULE r AS ON INSERT TO docs_embedding DO ALSO SELECT lair.trap()`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBase(t, plainDocs)
			tenant, pool := b.tenant()
			b.as(pool, traps...)
			b.as(pool, `GRANT ALL ON docs_embedding TO public`)
			o := b.options(b.SlotName(), side())
			_, err := setup.Init(t.Context(), o)
			wantError[*refusal.ConfigError](t, err, "docs_embedding", `"`+tenant+`"`, "--trust-owner "+tenant)
			b.sprung(tenant, err)
			if name == "nothing" {
				return
			}
			// After a change of the table's owner, the code is still the tenant's.
			b.MustExecSuper(`ALTER TABLE docs_embedding OWNER TO ` + testenv.Owner)
			_, err = setup.Init(t.Context(), o)
			words := []string{"docs_embedding"}
			if name != "rule" {
				words = append(words, `"`+tenant+`"`)
			}
			wantError[*refusal.ConfigError](t, err, words...)
			b.sprung(tenant, err)
		})
	}
}

// TestTrust_AnEmbeddingTableThatIsReplaced: the pipeline stops before anything is written to it.
func TestTrust_AnEmbeddingTableThatIsReplaced(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	o := b.options(b.SlotName(), side())
	b.init(o)
	tenant, pool := b.tenant()
	b.MustExec(`ALTER TABLE docs_embedding RENAME TO away`)
	b.as(pool, fmt.Sprintf(prepared, ""),
		`CREATE TRIGGER t BEFORE INSERT ON docs_embedding FOR EACH ROW EXECUTE FUNCTION lair.fires()`,
		`GRANT ALL ON docs_embedding TO public`)
	got, err := resolve.Load(t.Context(), b.pool, o.Slot)
	if err != nil {
		t.Fatal(err)
	}
	if got[0].Status != pipeline.Misconfigured || !strings.Contains(got[0].Detail, tenant) {
		t.Errorf("%s: %s", got[0].Status, got[0].Detail)
	}
	b.sprung(tenant)
}

// TestTrust_StoredExpressionsAreOneExpression: a writer of the table of pipelines can only make us run an expression.
func TestTrust_StoredExpressionsAreOneExpression(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	o := b.options(b.SlotName(), docs())
	b.init(o)
	for _, column := range []string{"text_expression", "filter_expression", "chunking"} {
		for _, stored := range []string{
			"title)) FROM public.docs AS r; COMMIT; CREATE TABLE public.evidence (); BEGIN; SELECT ((''",
			"true) IS TRUE) FROM public.docs AS r; COMMIT; CREATE TABLE public.evidence (); BEGIN; SELECT ((true",
			"title); COMMIT; CREATE TABLE public.evidence (); --",
			"title), (body",
		} {
			var value any = stored
			if column == "chunking" {
				value = map[string]string{"strategy": "sentences", "context": stored}
			}
			b.MustExec("UPDATE embedsidecar.pipeline SET "+column+" = $1", value)
			got, err := resolve.Load(t.Context(), b.pool, o.Slot)
			if err != nil {
				t.Fatal(err)
			}
			if got[0].Status != pipeline.Misconfigured {
				t.Errorf("%s %q: %s", column, stored, got[0].Status)
			}
			b.check(o)
			if testenv.Value[bool](b.Database, "SELECT to_regclass('public.evidence') IS NOT NULL") {
				t.Fatalf("%s: a statement has run that was stored as %q", column, stored)
			}
		}
		empty := any(nil)
		if column == "chunking" {
			empty = map[string]string{}
		}
		b.MustExec("UPDATE embedsidecar.pipeline SET "+column+" = $1", empty)
	}
	if got, err := resolve.Load(t.Context(), b.pool, o.Slot); err != nil || got[0].Status != pipeline.Active {
		t.Errorf("in the end: %v %+v", err, got)
	}
}

// TestTrust_APublicationOfSomebodyElse: its owner could remove changes from it.
func TestTrust_APublicationOfSomebodyElse(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	o := b.options(b.SlotName(), docs())
	tenant, pool := b.tenant()
	b.as(pool, `CREATE PUBLICATION `+o.Publication)
	_, err := setup.Init(t.Context(), o)
	wantError[*refusal.ConfigError](t, err, "publication", tenant)
	// The owner of the table could do so in any case.
	b.MustExecSuper(`ALTER TABLE docs OWNER TO ` + tenant + `; GRANT ` + tenant + ` TO ` + testenv.Owner)
	b.init(o)
}

// TestTrust_WhoMayWriteATable: membership in a predefined role counts, and a membership without INHERIT, SET and ADMIN
// does not. Grants are rolled back, because roles belong to all databases of a server.
func TestTrust_WhoMayWriteATable(t *testing.T) {
	t.Parallel()
	b := testenv.DB(t)
	b.MustExec("CREATE TABLE registry (id int)")
	writer := b.Role("")
	grants := map[string]bool{"pg_write_all_data TO " + writer: true}
	if testenv.Value[bool](b, `SELECT current_setting('server_version_num')::integer >= 160000`) {
		b.MustExecSuper("ALTER TABLE registry OWNER TO " + testenv.Superuser)
		group := b.Role("")
		b.MustExecSuper("ALTER ROLE " + group + " NOLOGIN; GRANT INSERT ON registry TO " + group)
		for with, may := range map[string]bool{
			"INHERIT FALSE, SET FALSE": false, "INHERIT FALSE": true, "SET FALSE": true,
			"INHERIT FALSE, SET FALSE, ADMIN TRUE": true,
		} {
			grants[group+" TO "+writer+" WITH "+with] = may
		}
	}
	for grant, may := range grants {
		tx, err := b.Super().Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = tx.Exec(t.Context(), "GRANT "+grant+"; SET LOCAL SESSION AUTHORIZATION "+testenv.Owner)
		if err == nil {
			err = catalog.UntrustedWriters(t.Context(), tx, "public.registry")
		}
		if _, refused := errors.AsType[*refusal.ConfigError](err); refused != may || !refused && err != nil {
			t.Errorf("GRANT %s: %v", grant, err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
