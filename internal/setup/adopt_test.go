package setup_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/testenv"
)

func TestInit_ACopyOfADatabaseIsAdoptedOnlyWhenTold(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	o := b.options(b.SlotName(), docs())
	b.init(o)
	b.MustExec("UPDATE embedsidecar.lsn_checkpoint SET system_id = '42'")
	_, err := setup.Init(t.Context(), o)
	wantError[*refusal.ConfigError](t, err, "not the one that was set up", "--adopt")
	o.Adopt = true
	if got := whats(b.init(o)); len(got) != 1 || !strings.Contains(got[0], "another server") {
		t.Errorf("made %v", got)
	}
	if since := testenv.Value[string](b.Database, "SELECT set_up::text FROM embedsidecar.pipeline"); since != "3:3:" {
		t.Errorf("rows of the other server count as unchanged since transactions %s of it", since)
	}
	o.Adopt = false
	if got := whats(b.init(o)); len(got) != 0 {
		t.Errorf("then made %v", got)
	}
}

func TestInit_ACopyOnTheSameServerGetsASlotOfItsOwn(t *testing.T) {
	t.Parallel()
	original, b := newBase(t, plainDocs), newBase(t, plainDocs)
	theirs := original.options(original.SlotName(), docs())
	original.init(theirs)
	o := b.options(b.SlotName(), docs(), side())
	b.init(o)
	b.MustExec("UPDATE embedsidecar.scan SET phase = 'done', started = requested")
	for _, sql := range []string{ // as after CREATE DATABASE ... TEMPLATE: with the original's slot
		"INSERT INTO embedsidecar.lsn_checkpoint SELECT '" + theirs.Slot +
			"', publication, publication_oid, system_id, timeline, consistent_point, lsn FROM embedsidecar.lsn_checkpoint",
		"UPDATE embedsidecar.pipeline SET slot_name = '" + theirs.Slot + "'",
		"DELETE FROM embedsidecar.lsn_checkpoint WHERE slot_name = '" + o.Slot + "'",
		"SELECT pg_drop_replication_slot('" + o.Slot + "')",
	} {
		b.MustExec(sql)
	}
	copied := o
	copied.Slot = theirs.Slot
	_, err := setup.Init(t.Context(), copied)
	wantError[*refusal.ConflictError](t, err, "slot names are unique", "init --adopt --slot")
	_, err = setup.Init(t.Context(), o)
	wantError[*refusal.ConfigError](t, err, "is set up with slot", "--adopt")
	o.Adopt = true
	only := o
	only.Specs = o.Specs[:1] // the other one is moved as well
	want := []string{`slot "` + o.Slot + `"`, `slot "` + o.Slot + `" that of the pipelines of "` + theirs.Slot +
		`", with a scan of each`}
	if diff := cmp.Diff(want, whats(b.init(only))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	state := "SELECT string_agg(p.slot_name || ' ' || p.name || ' ' || s.phase, ', ' ORDER BY p.name) || (SELECT count(*) FROM embedsidecar.lsn_checkpoint) FROM embedsidecar.pipeline AS p JOIN embedsidecar.scan AS s USING (pipeline_id)"
	if got := testenv.Value[string](b.Database, state); got != o.Slot+" docs waiting, "+o.Slot+" side waiting1" {
		t.Errorf("then there is %s", got)
	}
	o.Adopt = false
	if got := whats(b.init(o)); len(got) != 0 {
		t.Errorf("then made %v", got)
	}
	if again := original.init(theirs); len(again.Steps) != 0 {
		t.Errorf("the original lacks %v", whats(again))
	}
}

// TestInit_ACopyIntoAnotherPublicationTakesItsTablesAlong adopts one of three pipelines with a publication that has the
// second one's table with other options and lacks the third one's. All three move to the new slot, which must receive
// the changes of their tables.
func TestInit_ACopyIntoAnotherPublicationTakesItsTablesAlong(t *testing.T) {
	t.Parallel()
	original, b := newBase(t, plainDocs), newBase(t, plainDocs)
	theirs := original.options(original.SlotName(), docs())
	original.init(theirs)
	var specs []pipeline.Spec
	for _, table := range []string{"docs", "notes", "pages"} {
		if table != "docs" {
			b.MustExec("CREATE TABLE " + table + " (id bigint PRIMARY KEY, title text, body text)")
		}
		spec := docs()
		spec.Name, spec.Table, spec.IntoColumn, spec.IntoTable = table, table, "", table+"_embedding"
		specs = append(specs, spec)
	}
	o := b.options(b.SlotName(), specs...)
	b.init(o)
	for _, sql := range []string{
		"INSERT INTO embedsidecar.lsn_checkpoint SELECT '" + theirs.Slot +
			"', publication, publication_oid, system_id, timeline, consistent_point, lsn FROM embedsidecar.lsn_checkpoint",
		"UPDATE embedsidecar.pipeline SET slot_name = '" + theirs.Slot + "'",
		"DELETE FROM embedsidecar.lsn_checkpoint WHERE slot_name = '" + o.Slot + "'",
		"SELECT pg_drop_replication_slot('" + o.Slot + "')", "CREATE PUBLICATION another FOR TABLE ONLY notes",
	} {
		b.MustExec(sql)
	}
	o.Adopt, o.Publication = true, "another"
	only := o
	only.Specs = o.Specs[:1]
	want := []string{
		`table "public"."docs" in publication "another"`, `table "public"."pages" in publication "another"`,
		`slot "` + o.Slot + `"`, `slot "` + o.Slot + `" that of the pipelines of "` + theirs.Slot + `", with a scan of each`,
	}
	if diff := cmp.Diff(want, whats(b.init(only))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	o.Adopt = false
	if got := whats(b.init(o)); len(got) != 0 {
		t.Errorf("then made %v", got)
	}
}

// TestInit_ADumpIsNotTakenForACopyOfTheFiles: its tables have other OIDs, and a stored OID may be that of another
// table.
func TestInit_ADumpIsNotTakenForACopyOfTheFiles(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	b.MustExec("CREATE TABLE notes (id bigint PRIMARY KEY, title text, body text)")
	b.MustExec("CREATE TABLE payroll (id bigint PRIMARY KEY, title text, body text)")
	notes := side()
	notes.Name, notes.Table, notes.IntoTable = "notes", "notes", "notes_embedding"
	o := b.options(b.SlotName(), docs(), notes)
	b.init(o)
	b.MustExec("UPDATE embedsidecar.lsn_checkpoint SET system_id = '42'")
	for _, oid := range []string{"'payroll'::regclass", "1"} { // another table's OID; an unused one
		b.MustExec("UPDATE embedsidecar.pipeline SET table_oid = " + oid + " WHERE name = 'notes'")
		only := o
		only.Adopt, only.Specs = true, o.Specs[:1]
		_, err := setup.Init(t.Context(), only)
		wantError[*refusal.ConfigError](t, err, `"public"."notes"`, "dumped and restored", "configure this pipeline")
	}
	o.Adopt = true
	b.init(o)
	if got := testenv.Value[string](b.Database,
		"SELECT table_oid::regclass::text FROM embedsidecar.pipeline WHERE name = 'notes'"); got != "notes" {
		t.Errorf("its table is %s", got)
	}
	if n := testenv.Value[int64](b.Database,
		"SELECT count(*) FROM pg_publication_tables WHERE tablename = 'payroll'"); n != 0 {
		t.Error("another table is published")
	}
}
