package setup_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/embedsidecar/embedsidecar/internal/refusal"
	"github.com/embedsidecar/embedsidecar/internal/setup"
)

// An owner of a table who may make nothing else is told in one answer what to be granted, and then makes everything
// himself: what a superuser made in his place he could not alter later.
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
