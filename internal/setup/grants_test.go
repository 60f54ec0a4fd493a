package setup_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/internal/status/check"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// A table owner without other privileges gets all missing grants in one answer, and then makes everything as that
// owner, who could not alter a superuser's objects later.
func TestInit_AnOwnerWhoMayCreateNothing(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs, "CREATE SCHEMA vectors")
	role := b.Role("REPLICATION")
	b.MustExecSuper(`ALTER TABLE docs OWNER TO "` + role + `"; GRANT USAGE ON SCHEMA vectors TO "` + role + `"`)
	spec := side()
	spec.IntoSchema = "vectors"
	o := b.options(b.SlotName(), spec)
	o.Pool, o.ReplicationDSN = b.connect(role), b.URL(role)
	before := b.catalogue()

	dry := o
	dry.DryRun = true
	if r := b.init(dry); len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "may not") ||
		!strings.Contains(r.Warnings[0], "GRANT CREATE ON SCHEMA") {
		t.Errorf("the dry run warns of %q", r.Warnings)
	}
	_, err := setup.Init(t.Context(), o)
	e := caught[*refusal.PermissionError](t, err)
	want := []string{
		`GRANT CREATE ON DATABASE "` + b.Name + `" TO "` + role + `";`,
		`GRANT CREATE ON SCHEMA "vectors" TO "` + role + `";`,
	}
	if diff := cmp.Diff(want, e.SQL); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, b.catalogue()); diff != "" {
		t.Errorf("something was made (-before +after):\n%s", diff)
	}
	for _, sql := range e.SQL {
		b.MustExecSuper(sql)
	}
	if r := b.init(o); len(r.Pipelines) != 1 {
		t.Errorf("pipelines %+v", r.Pipelines)
	}
	if r := b.init(o); len(r.Steps) != 0 {
		t.Errorf("then made %q", whats(r))
	}
}

// TestCheck_TellsARoleThatMayCreateNothing: check reports what init would refuse, with the missing grants.
func TestCheck_TellsARoleThatMayCreateNothing(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs, "CREATE SCHEMA vectors")
	role := b.Role("REPLICATION")
	b.MustExecSuper(`ALTER TABLE docs OWNER TO "` + role + `"; GRANT USAGE ON SCHEMA vectors TO "` + role + `"`)
	spec := side()
	spec.IntoSchema = "vectors"
	o := b.options(b.SlotName(), spec)
	o.Pool, o.ReplicationDSN = b.connect(role), b.URL(role)
	for lack, way := range map[string]string{
		"may not create in the database": `GRANT CREATE ON DATABASE "` + b.Name + `" TO "` + role + `";`,
		"may not create in the schema":   `GRANT CREATE ON SCHEMA "vectors" TO "` + role + `";`,
	} {
		if got := b.check(o); len(find(find(got, check.Wrong, lack), check.Wrong, way)) != 1 {
			t.Errorf("nothing says %q and %q:\n%+v", lack, way, got)
		}
		b.MustExecSuper(way)
		if got := find(b.check(o), check.Wrong, lack); len(got) != 0 {
			t.Errorf("though it may: %+v", got)
		}
	}
	b.init(o)
}

// TestTrust_WhoMayWriteLogicalMessages: check reports it, and docs/security.md says how to revoke it from PUBLIC.
func TestTrust_WhoMayWriteLogicalMessages(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		b := baseOn(t, testenv.DB(t, testenv.Empty(), testenv.Major(major)), plainDocs)
		o := b.options(b.SlotName(), docs())
		role := b.RunRole(b.init(o).Pipelines...)
		o.Pool, o.ReplicationDSN = b.connect(role), b.URL(b.StreamRole())
		tells := func(status check.Status, what string) {
			t.Helper()
			if got := find(b.check(o), status, "logical messages: "+what); len(got) != 1 {
				t.Errorf("nothing says %q: %+v", what, find(b.check(o), status, "logical messages"))
			}
		}
		tells(check.OK, "every role that logs in may write them")
		doc, err := os.ReadFile("../../docs/security.md")
		if err != nil {
			t.Fatal(err)
		}
		_, script, found := strings.Cut(string(doc), "```sql\n")
		script, _, ended := strings.Cut(script, "```")
		if !found || !ended {
			t.Fatal("docs/security.md has no script")
		}
		b.MustExecSuper(script)
		tells(check.OK, testenv.Owner+" may write them")
		reader, _ := b.SQLRoles()
		for role, sql := range map[string]string{
			reader:           `SELECT embedsidecar.wait_for(timeout => '0')`,
			b.SearcherRole(): `CALL embedsidecar.ask('docs', 'a text', '1 s')`,
		} {
			conn, err := pgx.Connect(t.Context(), b.URL(role))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Exec(t.Context(), sql); database.Denied(err) {
				t.Errorf("%s: %v", sql, err)
			}
			_ = conn.Close(t.Context())
		}
	})
}

// TestRoles_AnAdministratorWhoMayNotReplicate runs the script with an existing stream role, as the administrator of a
// managed server, who may not create roles with REPLICATION.
func TestRoles_AnAdministratorWhoMayNotReplicate(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	run := b.RunRole(b.init(b.options(b.SlotName(), docs())).Pipelines...)
	reader, operator := b.SQLRoles()
	admin := b.Role("CREATEROLE")
	b.MustExecSuper(fmt.Sprintf("GRANT %s TO %s; GRANT %s TO %[2]s WITH ADMIN OPTION", testenv.Owner, admin, run))
	conn, err := pgx.Connect(t.Context(), b.URL(admin))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	script := sqlfiles.Roles(run, b.StreamRole(), reader, operator, b.SearcherRole())
	if _, err := conn.Exec(t.Context(), script); err != nil {
		t.Error(err)
	}
}

// TestCheck_NamesTheColumnThatTheRoleMayNotRead: the filter reads a column without a grant. Init reports it, too.
func TestCheck_NamesTheColumnThatTheRoleMayNotRead(t *testing.T) {
	t.Parallel()
	b := newBase(t, makeDocs, "ALTER TABLE docs ADD secret boolean")
	spec := docs()
	spec.Filter = "NOT secret"
	role := b.Role("REPLICATION")
	o := b.options(b.SlotName(), spec)
	b.MustExecSuper(`GRANT CREATE ON DATABASE "` + b.Name + `" TO "` + role + `"; GRANT USAGE ON SCHEMA public TO "` +
		role +
		`"; GRANT SELECT (id, title, body, embedding), UPDATE (embedding) ON docs TO "` + role + `"`)
	o.Pool, o.ReplicationDSN = b.connect(role), b.URL(role)
	want := `read column "secret" of "public"."docs": role "` + role + `" may not`
	got := find(b.check(o), check.Wrong, want)
	if len(got) != 1 || len(find(got, check.Wrong, `GRANT SELECT ("id", "title", "body", "secret", "embedding")`)) != 1 {
		t.Errorf("check: %+v", b.check(o))
	}
	_, err := setup.Init(t.Context(), o)
	wantError[*refusal.PermissionError](t, err, want)
	b.MustExecSuper(`GRANT SELECT (secret) ON docs TO "` + role + `"`)
	if got := find(b.check(o), check.Wrong, "secret"); len(got) != 0 {
		t.Errorf("though it may: %+v", got)
	}
}
