package setup_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// options makes Options for specs whose embedders all have three dimensions.
func (b *base) options(slot string, specs ...pipeline.Spec) setup.Options {
	d := map[string]embed.Description{}
	for _, s := range specs {
		d[s.Name] = embed.Description{Plugin: "fake", Model: "m", Fingerprint: "f1", Dims: 3}
	}
	return setup.Options{
		Pool: b.pool, ReplicationDSN: b.URL(testenv.Owner), Slot: slot, Publication: "embedsidecar", Specs: specs,
		Descriptions: d,
		LockTimeout:  waitFor, SlotTimeout: waitFor, // other tests have open transactions, too
	}
}

func (b *base) init(o setup.Options) setup.Report {
	b.t.Helper()
	r, err := setup.Init(b.t.Context(), o)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

// whats names the steps of a report.
func whats(r setup.Report) []string {
	names := []string{}
	for _, s := range r.Steps {
		names = append(names, s.What)
	}
	return names
}

// side is docs with an embedding table.
func side() pipeline.Spec {
	s := docs()
	s.Name, s.IntoColumn, s.IntoTable = "side", "", "docs_embedding"
	return s
}

// schemaStep is the name of our tables in a report.
func schemaStep() string {
	return fmt.Sprintf("schema embedsidecar, version %d", sqlfiles.Version)
}

const plainDocs = "CREATE TABLE public.docs (id bigint PRIMARY KEY, title text, body text, n int)"

// catalogue lists everything visible that an init could change.
func (b *base) catalogue() []string {
	return testenv.Values[string](b.Database,
		`SELECT 'relation ' || c.oid::regclass || ' ' || coalesce((SELECT string_agg(attname, ',') FROM pg_attribute
			WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped), '')
			FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname NOT IN ('pg_catalog',
			'information_schema', 'pg_toast')
		UNION ALL SELECT 'schema ' || nspname FROM pg_namespace WHERE nspname !~ '^pg_'
		UNION ALL SELECT 'publication ' || pubname FROM pg_publication
		UNION ALL SELECT 'slot ' || slot_name FROM pg_replication_slots WHERE database = current_database() ORDER BY 1`)
}

func TestInit_MakesEverythingOnceAndUndoTakesItBack(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		b := baseOn(t, testenv.DB(t, testenv.Empty(), testenv.Major(major)), plainDocs,
			"INSERT INTO docs VALUES (1, 'a', 'b')")
		before := b.catalogue()
		o := b.options(b.SlotName(), docs(), side())

		dry := o
		dry.DryRun = true
		planned := b.init(dry)
		if diff := cmp.Diff(before, b.catalogue()); diff != "" {
			t.Errorf("a dry run changed something (-before +after):\n%s", diff)
		}
		r := b.init(o)
		want := []string{
			schemaStep(), `column "public"."docs"."embedding"`, `embedding table "public"."docs_embedding"`,
			`publication "embedsidecar"`,
			`slot "` + o.Slot + `"`, `pipeline "docs", and its backfill`, `pipeline "side", and its backfill`,
		}
		if diff := cmp.Diff(want, whats(r)); diff != "" {
			t.Errorf("steps (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(planned.Steps, r.Steps); diff != "" {
			t.Errorf("the dry run said something else (-dry +done):\n%s", diff)
		}
		if len(r.Pipelines) != 2 || r.Pipelines[0].Status != pipeline.Active || r.Pipelines[0].ID == 0 ||
			r.Pipelines[1].Generation != 1 || r.Pipelines[1].Fingerprint != "f1" {
			t.Errorf("pipelines: %+v", r.Pipelines)
		}
		if again := b.init(o); len(again.Steps) != 0 || len(again.Pipelines) != 2 {
			t.Errorf("second run made %v", whats(again))
		}
		checks := map[string]string{
			"secret":                 "SELECT length(secret)::text FROM embedsidecar.installation",
			"checkpoint of the slot": "SELECT (k.lsn = s.confirmed_flush_lsn AND k.consistent_point = k.lsn AND k.lsn > '0/0' AND k.epoch >= 0)::text FROM embedsidecar.lsn_checkpoint k JOIN pg_replication_slots s USING (slot_name)",
			"oid of the publication": "SELECT (k.publication_oid = b.oid)::text FROM embedsidecar.lsn_checkpoint k JOIN pg_publication b ON b.pubname = k.publication",
			"scans":                  "SELECT string_agg(s.phase || s.requested || s.reason, ' ') FROM embedsidecar.scan s",
			"via root":               "SELECT pubviaroot::text FROM pg_publication",
		}
		got := map[string]string{}
		for name, sql := range checks {
			got[name] = testenv.Value[string](b.Database, sql)
		}
		if diff := cmp.Diff(map[string]string{
			"secret": "32", "checkpoint of the slot": "true",
			"oid of the publication": "true", "scans": "waiting1backfill waiting1backfill", "via root": "false",
		},
			got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		for _, s := range slices.Backward(r.Steps) {
			for _, sql := range s.Undo {
				b.MustExec(sql)
			}
		}
		if diff := cmp.Diff(before, b.catalogue()); diff != "" {
			t.Errorf("after undo (-before +after):\n%s", diff)
		}
	})
}

func TestInit_PublishesBeforeTheSlotAndScansAfterIt(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	b.init(b.options(b.SlotName(), docs()))
	// The barrier of the scan is later than all transactions that could have begun before the slot existed.
	if !testenv.Value[bool](b.Database,
		"SELECT barrier <= pg_snapshot_xmax(pg_current_snapshot()) AND barrier > '3'::xid8 FROM embedsidecar.scan") {
		t.Error("the scan's barrier is not in the past")
	}
}

func TestInit_GoesOnWhereAKilledOneStopped(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	o := b.options(b.SlotName(), docs())
	b.init(o)
	// As after a kill before the slot's position was stored, and before that the installation's row.
	b.MustExec("DELETE FROM embedsidecar.pipeline")
	b.MustExec("UPDATE embedsidecar.lsn_checkpoint SET consistent_point = '0/0', lsn = '0/0'")
	b.MustExec("DELETE FROM embedsidecar.installation")
	want := []string{
		schemaStep(), `slot "` + o.Slot + `" again (making it was interrupted), and a scan of every pipeline`,
		`pipeline "docs", and its backfill`,
	}
	o.Specs[0].Overwrite = true
	if diff := cmp.Diff(want, whats(b.init(o))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !testenv.Value[bool](b.Database, "SELECT lsn > '0/0' FROM embedsidecar.lsn_checkpoint") {
		t.Error("the checkpoint has no position")
	}
	if n := testenv.Value[int](b.Database, "SELECT count(*)::int FROM embedsidecar.installation"); n != 1 {
		t.Errorf("%d installations", n)
	}
}

func TestInit_AddsPipelinesAndTablesLater(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs, "CREATE TABLE parts (id int PRIMARY KEY, title text, body text) PARTITION BY RANGE (id)",
		"CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10)", "CREATE TABLE docs_child () INHERITS (docs)")
	o := b.options(b.SlotName(), docs())
	b.init(o)
	other := docs()
	other.Name, other.Table = "parts", "parts"
	o2 := b.options(o.Slot, other)
	r := b.init(o2)
	want := []string{
		`column "public"."parts"."embedding"`, `table "public"."parts" in publication "embedsidecar"`,
		`pipeline "parts", and its backfill`,
	}
	if diff := cmp.Diff(want, whats(r)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !slices.Equal(r.Others, []string{"docs"}) {
		t.Errorf("left as they are: %q", r.Others)
	}
	got := testenv.Values[string](b.Database,
		"SELECT tablename::text FROM pg_publication_tables WHERE pubname = 'embedsidecar' ORDER BY 1")
	if diff := cmp.Diff([]string{"docs", "parts_1"}, got); diff != "" {
		t.Errorf("published (-want +got):\n%s", diff)
	}
	all, err := resolve.Load(t.Context(), b.pool, o.Slot)
	if err != nil || len(all) != 2 || !all[1].Partitioned || all[1].Status != pipeline.Active {
		t.Errorf("loaded %+v, %v", all, err)
	}
}

// columnLists reports whether the server supports column lists.
func (b *base) columnLists() bool {
	return testenv.Value[int](b.Database, "SELECT current_setting('server_version_num')::int") >= 150000
}

func TestInit_ColumnLists(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	spec := docs()
	spec.ColumnLists = true
	o := b.options(b.SlotName(), spec)
	if !b.columnLists() {
		_, err := setup.Init(t.Context(), o)
		wantError[*refusal.ConfigError](t, err, "PostgreSQL 15")
		return
	}
	b.init(o)
	columns := func() string {
		return testenv.Value[string](b.Database,
			"SELECT coalesce(array_to_string(attnames, ','), '') FROM pg_publication_tables WHERE pubname = 'embedsidecar'")
	}
	if got := columns(); got != "id,title,body,embedding" {
		t.Errorf("published %s", got)
	}
	o.Specs[0].Columns = []string{"title"}
	o.Specs[0].Filter = "n > 3"
	b.init(o)
	if got := columns(); got != "id,title,n,embedding" {
		t.Errorf("then published %s", got)
	}
	o.Specs[0].ColumnLists = false
	b.init(o)
	if got := columns(); got != "id,title,body,n,embedding" {
		t.Errorf("at last published %s", got)
	}
	if got := whats(b.init(o)); len(got) != 0 {
		t.Errorf("then made %q", got)
	}
}

// For a role that owns nothing, init reports what an owner must run, before it changes anything. After that, it does
// the rest.
func TestInit_WithoutRightsPrintsWhatAnOwnerRuns(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	before := b.catalogue()
	role := b.Role("REPLICATION")
	o := b.options(b.SlotName(), docs(), side())
	o.Pool, o.ReplicationDSN = b.connect(role), b.URL(role)
	_, err := setup.Init(t.Context(), o)
	e := caught[*refusal.PermissionError](t, err, role, "GRANT CREATE ON DATABASE", `ADD COLUMN "embedding"`,
		`CREATE PUBLICATION "embedsidecar" FOR TABLE ONLY "public"."docs"`)
	if diff := cmp.Diff(before, b.catalogue()); diff != "" {
		t.Errorf("something was changed (-before +after):\n%s", diff)
	}
	for _, sql := range e.SQL {
		b.MustExec(sql)
	}
	for range 4 { // each answer has the next missing grants: on the tables, on the schema of the embedding table
		var r setup.Report
		if r, err = setup.Init(t.Context(), o); err == nil {
			if len(r.Pipelines) != 2 {
				t.Errorf("pipelines: %+v", r.Pipelines)
			}
			break
		}
		e = caught[*refusal.PermissionError](t, err)
		for _, sql := range e.SQL {
			b.MustExec(sql)
		}
	}
	if err != nil {
		t.Error(err)
	}
}

func TestInit_ARoleThatMayNotReplicate(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	o := b.options(b.SlotName(), docs())
	o.ReplicationDSN = b.URL(b.Role(""))
	_, err := setup.Init(t.Context(), o)
	if e := caught[*database.Error](t, err, "REPLICATION"); e.Kind != database.Permission {
		t.Errorf("kind %s", e.Kind)
	}
}

// hold begins a transaction that stays open until the test ends it.
func (b *base) hold(sql string) pgx.Tx {
	b.t.Helper()
	conn, err := pgx.Connect(b.t.Context(), b.URL(testenv.Owner))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	tx, err := conn.Begin(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := tx.Exec(b.t.Context(), sql); err != nil {
		b.t.Fatal(err)
	}
	return tx
}

func TestInit_NamesWhoStandsInTheWay(t *testing.T) {
	t.Parallel()
	server := testenv.Own(t, testenv.Options{})
	b := baseOn(t, testenv.DB(t, testenv.Empty(), testenv.On(server)), plainDocs, "CREATE TABLE elsewhere (n int)")
	o := b.options(b.SlotName(), docs())
	hasty := o
	hasty.LockTimeout, hasty.SlotTimeout = 100*time.Millisecond, 500*time.Millisecond

	reader := b.hold("SELECT * FROM docs")
	pid := testenv.Value[int](b.Database, "SELECT pid FROM pg_stat_activity WHERE query = 'SELECT * FROM docs'")
	_, err := setup.Init(t.Context(), hasty)
	wantError[*refusal.ConflictError](t, err, fmt.Sprintf("pid %d", pid), "docs")
	if err := reader.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}

	writer := b.hold("INSERT INTO elsewhere VALUES (1)")
	pid = testenv.Value[int](b.Database, "SELECT pid FROM pg_stat_activity WHERE query LIKE 'INSERT INTO elsewhere%'")
	hasty.LockTimeout = waitFor // what it needs now is free
	r, err := setup.Init(t.Context(), hasty)
	wantError[*refusal.ConflictError](t, err, fmt.Sprintf("pid %d", pid), "within 500ms")
	if len(r.Steps) == 0 {
		t.Error("the report does not say what was made before")
	}
	if n := testenv.Value[int](b.Database, "SELECT count(*)::int FROM pg_replication_slots"); n != 0 {
		t.Errorf("%d slots are left", n)
	}
	if err := writer.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := whats(b.init(o)); !slices.Contains(got, `pipeline "docs", and its backfill`) {
		t.Errorf("then made %q", got)
	}
}

func TestInit_InstallsTheExtension(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	b.MustExecSuper("DROP EXTENSION vector")
	o := b.options(b.SlotName(), docs())
	o.Pool = b.super
	r := b.init(o)
	if r.Steps[0].What != `extension vector in schema "public"` || r.Pipelines[0].VectorType() != `"public"."vector"` {
		t.Errorf("made %q; %+v", whats(r), r.Pipelines)
	}
}

func TestInit_TwoAtOnce(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	o := b.options(b.SlotName(), docs())
	errs := make(chan error, 3)
	for range cap(errs) {
		go func() {
			_, err := setup.Init(context.WithoutCancel(t.Context()), o)
			errs <- err
		}()
	}
	done := 0
	for range cap(errs) {
		if err := <-errs; err == nil {
			done++
		} else {
			wantError[*refusal.ConflictError](t, err, "another init")
		}
	}
	if done == 0 {
		t.Error("none got through")
	}
	if n := testenv.Value[int](b.Database, "SELECT count(*)::int FROM embedsidecar.pipeline"); n != 1 {
		t.Errorf("%d pipelines", n)
	}
}

// TestInit_APauseMeanwhileStays: a pipeline that is paused while a set-up changes it stays so.
func TestInit_APauseMeanwhileStays(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	o := b.options(b.SlotName(), docs())
	b.init(o)
	tx, err := b.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), "SELECT embedsidecar.pause('docs')"); err != nil {
		t.Fatal(err)
	}
	o.Specs[0].Filter = "id > 0"
	done := make(chan error, 1)
	go func() {
		_, err := setup.Init(t.Context(), o)
		done <- err
	}()
	testenv.Eventually(t, waitFor, func() (bool, string) {
		var waits bool
		err := b.Super().QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
			AND wait_event_type = 'Lock' AND query LIKE '%embedsidecar.pipeline%')`).Scan(&waits)
		return waits, fmt.Sprint(err)
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	state := testenv.Value[string](b.Database, "SELECT filter_expression || ' ' || enabled FROM embedsidecar.pipeline")
	if state != "id > 0 false" {
		t.Errorf("it is %s", state)
	}
}
