package setup_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/internal/setup/uninstall"
	"github.com/embedsidecar/embedsidecar/internal/status/check"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// check runs Check with the options of an init.
func (b *base) check(o setup.Options) []check.Finding {
	b.t.Helper()
	return check.Run(b.t.Context(), check.Options{
		Pool: o.Pool, ReplicationDSN: o.ReplicationDSN, Slot: o.Slot, Publication: o.Publication, Specs: o.Specs,
		Descriptions: o.Descriptions,
	})
}

// find returns the findings of a status whose text or hints contain a word.
func find(findings []check.Finding, status check.Status, word string) []check.Finding {
	return slices.DeleteFunc(slices.Clone(findings), func(f check.Finding) bool {
		return f.Status != status || !strings.Contains(f.Name+": "+f.Detail+" "+strings.Join(f.Hint, " "), word)
	})
}

func TestCheck_BeforeAndAfterInit(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	o := b.options(b.SlotName(), docs(), side())
	before := b.check(o)
	for _, word := range []string{
		"publication: ", "slot: ", "schema embedsidecar: ", `pipeline "docs": `,
		`pipeline "side": `,
	} {
		if len(find(before, check.Wrong, word)) == 0 {
			t.Errorf("before init nothing says that %sis missing", word)
		}
	}
	b.init(o)
	after := b.check(o)
	if wrong := find(after, check.Wrong, ""); len(wrong) != 0 {
		t.Errorf("after init: %+v", wrong)
	}
	if len(find(after, check.Warn, "REPEATABLE READ")) != 1 {
		t.Errorf("the note on conflicting writers belongs to the pipeline into a column alone: %+v", after)
	}
	role := b.RunRole(b.init(o).Pipelines...)
	o.Pool, o.ReplicationDSN = b.connect(role), b.URL(b.StreamRole())
	if wrong := find(b.check(o), check.Wrong, ""); len(wrong) != 0 {
		t.Errorf("as the least-privileged role: %+v", wrong)
	}
	o.Specs = nil // stored pipelines are checked without a configuration, too
	if got := find(b.check(o), check.OK, `pipeline "docs"`); len(got) != 1 {
		t.Errorf("without a configuration: %+v", got)
	}
}

func TestCheck_FindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	o := b.options(b.SlotName(), docs())
	b.init(o)
	nosy := b.Role("REPLICATION")
	for _, sql := range []string{
		"CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
		"CREATE TRIGGER every_update BEFORE UPDATE ON docs FOR EACH ROW EXECUTE FUNCTION touch()",
		"CREATE TRIGGER of_the_vector AFTER INSERT OR UPDATE OF embedding ON docs FOR EACH ROW EXECUTE FUNCTION touch()",
		"CREATE TRIGGER of_the_title BEFORE UPDATE OF title ON docs FOR EACH ROW EXECUTE FUNCTION touch()",
		"CREATE TRIGGER on_insert BEFORE INSERT ON docs FOR EACH ROW EXECUTE FUNCTION touch()",
		"CREATE TRIGGER off BEFORE UPDATE ON docs FOR EACH ROW EXECUTE FUNCTION touch()",
		"ALTER TABLE docs DISABLE TRIGGER off",
		"ALTER TABLE docs REPLICA IDENTITY FULL",
		"UPDATE embedsidecar.installation SET enabled = false",
	} {
		b.MustExec(sql)
	}
	got := b.check(o)
	if len(find(got, check.Warn, "these triggers fire on a write-back: every_update, of_the_vector")) != 1 {
		t.Errorf("triggers: %+v", find(got, check.Warn, "triggers"))
	}
	for _, word := range []string{
		"REPLICA IDENTITY FULL", nosy, "SELECT embedsidecar.resume();", "max_slot_wal_keep_size",
	} {
		if len(find(got, check.Warn, word)) == 0 {
			t.Errorf("nothing warns of %s", word)
		}
	}

	o.Specs[0].Columns = []string{"title"}
	if len(find(b.check(o), check.Warn, "its configuration differs from its set-up: columns (it was: ")) != 1 {
		t.Error("nothing says that the configuration differs")
	}
	d := o.Descriptions["docs"]
	d.Fingerprint = "f2"
	o.Descriptions["docs"] = d
	if len(find(b.check(o), check.Wrong, "another model")) != 1 {
		t.Error("nothing says that the model differs")
	}

	b.MustExec("DROP PUBLICATION embedsidecar")
	b.MustExec("CREATE PUBLICATION embedsidecar FOR TABLE docs")
	if len(find(b.check(o), check.Wrong, "dropped and recreated")) != 1 {
		t.Error("nothing says that the publication is another")
	}
	b.MustExec("SELECT pg_drop_replication_slot($1)", o.Slot)
	if len(find(b.check(o), check.Wrong, "is gone")) != 1 {
		t.Error("nothing says that the slot is gone")
	}
	o.ReplicationDSN = b.URL(b.Role(""))
	if len(find(b.check(o), check.Wrong, "REPLICATION")) == 0 {
		t.Error("nothing says that the role may not replicate")
	}
}

// stream occupies a slot as a sidecar does, until the test ends.
func (b *base) stream(slot string) {
	b.t.Helper()
	conn, err := database.ConnectReplication(b.t.Context(), b.URL(testenv.Owner)+"&wal_sender_timeout=0",
		database.Options{ApplicationName: "a sidecar"})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	reader := conn.Exec(b.t.Context(), "START_REPLICATION SLOT \""+slot+
		"\" LOGICAL 0/0 (proto_version '1', publication_names 'embedsidecar')")
	_ = reader // the copy has begun once the slot is active
	testenv.Eventually(b.t, waitFor, func() (bool, string) {
		active := testenv.Values[bool](b.Database, "SELECT active FROM pg_replication_slots WHERE slot_name = $1", slot)
		return len(active) == 1 && active[0], "the slot is not active"
	})
}

func TestCheck_NamesWhoHoldsTheSlot(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	o := b.options(b.SlotName(), docs())
	b.init(o)
	b.stream(o.Slot)
	if len(find(b.check(o), check.Wrong, "held by a sidecar, and no sidecar runs")) != 1 {
		t.Errorf("slot: %+v", find(b.check(o), check.OK, "slot"))
	}
	_, err := uninstall.All(t.Context(), uninstall.Options{Pool: b.pool})
	wantError[*refusal.ConflictError](t, err, "a sidecar", "stop every sidecar")
	// The process that holds the slot recreates it; another one starts and processes the queue meanwhile (P5).
	b.MustExec("DROP PUBLICATION embedsidecar")
	b.init(o)
	if !testenv.Value[bool](b.Database, "SELECT EXISTS (SELECT FROM pg_publication WHERE pubname = 'embedsidecar')") {
		t.Error("init leaves the publication missing")
	}
}

func TestUninstall_TakesAwayWhatInitMade(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs, "CREATE TABLE others (id int PRIMARY KEY, title text, body text, embedding vector(3))")
	before := b.catalogue()
	others := docs()
	others.Name, others.Table = "others", "others"
	o := b.options(b.SlotName(), docs(), side(), others)
	b.init(o)
	made := b.catalogue()
	b.MustExec("INSERT INTO docs VALUES (1, 'a', 'b', 1, '[1,2,3]')")

	all := uninstall.Options{Pool: b.pool, Embeddings: true, DryRun: true}
	planned, err := uninstall.All(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(made, b.catalogue()); diff != "" {
		t.Errorf("a dry run changed something (-before +after):\n%s", diff)
	}
	want := []string{
		"SELECT pg_drop_replication_slot('" + o.Slot + "');", `DROP PUBLICATION "embedsidecar";`,
		`ALTER TABLE "public"."docs" DROP COLUMN "embedding";`,
		`DROP TABLE "public"."docs_embedding";`, "DROP SCHEMA embedsidecar CASCADE;",
	}
	if diff := cmp.Diff(want, planned.SQL); diff != "" {
		t.Errorf("planned (-want +got):\n%s", diff)
	}
	all.DryRun = false
	done, err := uninstall.All(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(planned.SQL, done.SQL); diff != "" {
		t.Errorf("done (-planned +done):\n%s", diff)
	}
	if diff := cmp.Diff(before, b.catalogue()); diff != "" {
		t.Errorf("left (-before +after):\n%s", diff)
	}
	_, err = uninstall.All(t.Context(), all)
	wantError[*refusal.NotSetUpError](t, err)
}

func TestUninstall_KeepsVectorsUnlessTold(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	o := b.options(b.SlotName(), docs(), side())
	b.init(o)
	b.MustExec("INSERT INTO docs VALUES (1, 'a', 'b', 1, '[1,2,3]')")
	if _, err := uninstall.All(t.Context(), uninstall.Options{Pool: b.pool}); err != nil {
		t.Fatal(err)
	}
	if n := testenv.Value[int](b.Database, "SELECT count(embedding)::int FROM docs"); n != 1 {
		t.Error("the vector is gone")
	}
	// Another program may have written to the column since.
	_, err := setup.Init(t.Context(), o)
	wantError[*refusal.ConfigError](t, err, "an earlier set-up left", "someone else", "--overwrite")
}

func TestRemove_TakesAwayOnePipeline(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	o := b.options(b.SlotName(), docs(), side())
	b.init(o)
	_, err := uninstall.Pipeline(t.Context(), uninstall.PipelineOptions{Pool: b.pool, Pipeline: "dosc"})
	wantError[*refusal.ConfigError](t, err, "did you mean docs?")
	for _, tt := range []struct {
		name string
		want []string
	}{
		{"side", []string{"DELETE FROM embedsidecar.pipeline WHERE name = 'side';", `DROP TABLE "public"."docs_embedding";`}},
		{"docs", []string{
			"DELETE FROM embedsidecar.pipeline WHERE name = 'docs';",
			`ALTER PUBLICATION "embedsidecar" DROP TABLE ONLY "public"."docs";`,
			`ALTER TABLE "public"."docs" DROP COLUMN "embedding";`,
		}},
	} {
		got, err := uninstall.Pipeline(t.Context(), uninstall.PipelineOptions{
			Pool: b.pool, Pipeline: tt.name,
			Embedding: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, got.SQL); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
	if got := whats(b.init(o)); len(got) != 5 {
		t.Errorf("then init made %q", got)
	}
}
