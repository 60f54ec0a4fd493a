package search_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/search"
	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestAccess_RowLevelSecurityIsNotPassedByForOthers: a search through another's connection returns no row that policies
// hide from its caller.
func TestAccess_RowLevelSecurityIsNotPassedByForOthers(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		r := newRig(t, major, 20)
		reader := r.db.Role("")
		r.db.MustExec("GRANT USAGE ON SCHEMA public TO " + reader)
		r.db.MustExec("GRANT SELECT ON docs, docs_embedding TO " + reader)
		question := vector.Of("row 7", dims)
		r.db.MustExecSuper("GRANT " + reader + " TO " + testenv.Owner)
		r.db.MustExec("CREATE POLICY one ON docs TO " + reader + " USING (tenant = 2)")
		for _, name := range []string{"table", "column"} {
			p := r.pipelines[name]
			find := func(access *search.Access, hybrid bool) ([]string, error) {
				hits, err := search.Find(t.Context(), r.pool, p, search.Request{
					Vector: question, Text: "row", Hybrid: hybrid,
					Rows: 100, Access: access,
				})
				return keys(hits), err
			}
			r.db.MustExec("ALTER TABLE docs DISABLE ROW LEVEL SECURITY")
			if got, err := find(&search.Access{}, false); err != nil || len(got) != 20 {
				t.Errorf("%s: a table without policies: %v, %v", name, got, err)
			}
			r.db.MustExec("ALTER TABLE docs ENABLE ROW LEVEL SECURITY")
			if barred, ok := errors.AsType[*search.RowSecurityError](second(find(&search.Access{}, false))); !ok ||
				len(barred.Hints()) == 0 {
				t.Errorf("%s: policies are passed by without a word", name)
			}
			for _, hybrid := range []bool{false, true} {
				got, err := find(&search.Access{Role: reader}, hybrid)
				slices.Sort(got)
				if err != nil || !slices.Equal(got, []string{"12", "17", "2", "7"}) {
					t.Errorf("%s: as a role with a policy, hybrid %v: %v, %v", name, hybrid, got, err)
				}
			}
			if _, err := search.Similar(t.Context(), r.pool, p, "8",
				search.Request{Rows: 3, Access: &search.Access{Role: reader}}); !errors.Is(err, search.ErrNoRow) {
				t.Errorf("%s: similar to a row that the policy hides: %v", name, err)
			}
			if got, err := find(&search.Access{PastRowSecurity: true}, false); err != nil || len(got) != 20 {
				t.Errorf("%s: with consent: %v, %v", name, got, err)
			}
			if got, err := find(nil, false); err != nil || len(got) != 20 {
				t.Errorf("%s: for oneself: %v, %v", name, got, err)
			}
			if _, ok := errors.AsType[*search.RoleError](second(find(&search.Access{Role: "no such role"}, false))); !ok {
				t.Errorf("%s: a role that is not there is taken", name)
			}
			// The text of a joined table is shown as well.
			r.db.MustExec("ALTER TABLE docs DISABLE ROW LEVEL SECURITY")
			joined := *p
			r.db.MustExec("CREATE TABLE notes (id int); ALTER TABLE notes ENABLE ROW LEVEL SECURITY")
			joined.Joins = pipeline.Joins{{As: "one", OID: p.OID, Joins: pipeline.Joins{{
				As: "notes", OID: testenv.Value[uint32](r.db, "SELECT 'notes'::regclass::oid"),
			}}}}
			err := search.Barred(t.Context(), r.pool, &joined, &search.Access{})
			if _, ok := errors.AsType[*search.RowSecurityError](err); !ok {
				t.Errorf("%s: policies of a joined table are passed by without a word", name)
			}
			if err := search.Barred(t.Context(), r.pool, &joined, &search.Access{PastRowSecurity: true}); err != nil {
				t.Errorf("%s: with consent: %v", name, err)
			}
			r.db.MustExec("DROP TABLE notes")
			r.db.MustExec("ALTER TABLE docs ENABLE ROW LEVEL SECURITY")
			r.db.MustExec("ALTER TABLE docs FORCE ROW LEVEL SECURITY")                  // policies apply to the owner, too
			if got, err := find(&search.Access{}, false); err != nil || len(got) != 4 { // as a member of the reader
				t.Errorf("%s: policies hold for the owner, too: %v, %v", name, got, err)
			}
			r.db.MustExec("ALTER TABLE docs NO FORCE ROW LEVEL SECURITY")
		}
	})
}

func second[T any](_ T, err error) error { return err }

// TestAccess_FiltersOfATokenHoldBesideThoseOfItsHolder: a fixed filter narrows every request, and a request may use
// some columns only.
func TestAccess_FiltersOfATokenHoldBesideThoseOfItsHolder(t *testing.T) {
	t.Parallel()
	r := newRig(t, 0, 20)
	access := &search.Access{
		Columns: []string{"id", "mood"},
		Fixed:   search.Filters{"tenant": {{Values: []string{"1", "2"}}}, "deleted_at": {{Null: true}}},
	}
	for _, name := range []string{"table", "column"} {
		p := r.pipelines[name]
		find := func(filter search.Filters, hybrid bool) ([]string, error) {
			hits, err := search.Find(t.Context(), r.pool, p, search.Request{
				Vector: vector.Of("row 7", dims), Text: "row",
				Hybrid: hybrid, Rows: 100, Filter: filter, Access: access,
			})
			return keys(hits), err
		}
		for _, hybrid := range []bool{false, true} {
			for where, filter := range map[string]search.Filters{
				"true":          nil,
				"mood = 'good'": {"mood": {{Values: []string{"good"}}}},
				"id IN (1, 2)":  {"id": {{Values: []string{"1", "2"}}}},
			} {
				got, err := find(filter, hybrid)
				want := testenv.Values[string](r.db, "SELECT id::text FROM docs WHERE tenant IN (1, 2) AND deleted_at IS NULL AND "+
					where)
				slices.Sort(got)
				slices.Sort(want)
				if err != nil || !slices.Equal(got, want) {
					t.Errorf("%s, hybrid %v, %s: %v, %v, want %v", name, hybrid, where, got, err, want)
				}
			}
		}
		for _, column := range []string{"tenant", "author", "nonsense"} {
			if wrong, ok := errors.AsType[*search.BadRequestError](
				second(find(search.Filters{column: {{Values: []string{"2"}}}}, false))); !ok {
				t.Errorf("%s: a filter on %s: %v", name, column, wrong)
			}
		}
		if _, err := search.Similar(t.Context(), r.pool, p, "3", search.Request{Rows: 3, Access: access}); !errors.Is(err,
			search.ErrNoRow) {
			t.Errorf("%s: similar to a row that the filter hides: %v", name, err)
		}
		broken := &search.Access{Fixed: search.Filters{"no such": {{Values: []string{"1"}}}}}
		_, err := search.Find(t.Context(), r.pool, p, search.Request{
			Vector: vector.Of("row 7", dims), Rows: 1,
			Access: broken,
		})
		if _, blamed := errors.AsType[*search.BadRequestError](err); err == nil || blamed {
			t.Errorf("%s: a fixed filter on a column that is not there: %v", name, err)
		}
	}
}

// TestTrust_ASuperuserSearchesByNoPolicyOfAStranger: a superuser's session that searches as another role runs no policy
// with code of a role that is not trusted: it could return to the superuser's role.
func TestTrust_ASuperuserSearchesByNoPolicyOfAStranger(t *testing.T) {
	t.Parallel()
	r := newRig(t, testenv.Majors(t)[0], 5)
	reader, stranger := r.db.Role(""), r.db.Role("")
	r.db.MustExecSuper(fmt.Sprintf(`GRANT USAGE ON SCHEMA public TO %[1]s; GRANT SELECT ON docs, docs_embedding TO %[1]s;
		CREATE TABLE tenants (id int); GRANT SELECT ON tenants TO %[1]s; INSERT INTO tenants VALUES (2);
		CREATE FUNCTION mine(tenant int) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
			PERFORM set_config('role', 'none', true);
			RAISE EXCEPTION 'the trap has run as %%', current_user; END $$;
		ALTER FUNCTION mine(int) OWNER TO %[2]s; ALTER TABLE tenants OWNER TO %[2]s;
		ALTER TABLE docs ENABLE ROW LEVEL SECURITY`, reader, stranger))
	for using, fine := range map[string]bool{
		"mine(tenant)": false, "EXISTS (SELECT FROM tenants AS t WHERE t.id = docs.tenant)": false, "tenant = 2": true,
	} {
		r.db.MustExecSuper("CREATE POLICY one ON docs USING (" + using + ")")
		for _, trusted := range [][]string{{testenv.Owner}, {testenv.Owner, stranger}} {
			pool, err := database.Connect(t.Context(), r.db.URL(testenv.Superuser), database.Options{TrustedOwners: trusted})
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			for _, past := range []bool{false, true} {
				_, err = search.Find(t.Context(), pool, r.pipelines["table"], search.Request{
					Vector: vector.Of("row 2", dims), Rows: 5, Access: &search.Access{Role: reader, PastRowSecurity: past},
				})
				barred, is := errors.AsType[*search.RoleError](err)
				if is != (!fine && len(trusted) == 1) || is && len(barred.Hints()) != 2 {
					t.Errorf("%s, trusted %v: %v", using, trusted, err)
				}
			}
		}
		r.db.MustExecSuper("DROP POLICY one ON docs")
	}
}
