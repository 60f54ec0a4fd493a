package setup_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/testenv"
)

func TestInit_ASlotOfSomebodyElseIsLeftAlone(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	before := b.catalogue()
	o := b.options(b.Slot(), docs())
	_, err := setup.Init(t.Context(), o)
	wantError[*refusal.ConflictError](t, err, o.Slot, "not ours", "--slot")
	after := slices.DeleteFunc(b.catalogue(), func(s string) bool { return strings.HasPrefix(s, "slot ") })
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
	for _, name := range []string{"Upper", "with-dash", "", strings.Repeat("x", 64)} {
		o.Slot = name
		_, err = setup.Init(t.Context(), o)
		wantError[*refusal.ConfigError](t, err, "slot name")
	}
}

func TestInit_MakesALostSlotAnew(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		damage func(b *base, o setup.Options)
		reason string
	}{
		"slot dropped": {
			func(b *base, o setup.Options) { b.MustExec("SELECT pg_drop_replication_slot($1)", o.Slot) },
			"it is gone",
		},
		"publication dropped": {
			func(b *base, _ setup.Options) { b.MustExec("DROP PUBLICATION embedsidecar") },
			"its publication was missing",
		},
		"publication made again": {func(b *base, _ setup.Options) {
			b.MustExec("DROP PUBLICATION embedsidecar")
			b.MustExec("CREATE PUBLICATION embedsidecar FOR TABLE docs")
		}, "its publication was dropped and recreated"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBase(t, plainDocs)
			o := b.options(b.SlotName(), docs())
			b.init(o)
			b.MustExec("UPDATE embedsidecar.scan SET phase = 'done', started = requested")
			before := testenv.Value[int64](b.Database, "SELECT epoch FROM embedsidecar.lsn_checkpoint")
			tt.damage(b, o)
			if got := strings.Join(whats(b.init(o)), "\n"); !strings.Contains(got, `slot "`+o.Slot+`" again (`+tt.reason) {
				t.Errorf("made %s", got)
			}
			if got := testenv.Value[string](b.Database, "SELECT phase || requested FROM embedsidecar.scan"); got != "waiting2" {
				t.Errorf("scan is %s", got)
			}
			if testenv.Value[int64](b.Database, "SELECT epoch FROM embedsidecar.lsn_checkpoint") <= before {
				t.Error("an old streamer could still move the checkpoint")
			}
			if again := b.init(o); len(again.Steps) != 0 {
				t.Errorf("then it made %v", whats(again))
			}
		})
	}
}

// If the user wants to be asked, a lost slot is refused each time, and recreated on request. A first set-up does not
// ask, and a start logs the gap.
func TestInit_LeavesALostSlotToAPerson(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		b := baseOn(t, testenv.DB(t, testenv.Empty(), testenv.Major(major)), plainDocs)
		o := b.options(b.SlotName(), docs())
		var out bytes.Buffer
		o.StopOnLost, o.Starting, o.Log = true, true, slog.New(slog.NewTextHandler(&out, nil))
		b.init(o)
		b.MustExec("SELECT pg_drop_replication_slot($1)", o.Slot)
		before := b.catalogue()
		for range 2 {
			_, err := setup.Init(t.Context(), o)
			wantError[*refusal.LostError](t, err, o.Slot, "does not exist", "on_lost is stop", "--set slot.on_lost=reconcile")
			if problem.Code(err) != code.SlotLost || problem.Of(err) != problem.Failed {
				t.Errorf("%v is %s", err, problem.Code(err))
			}
		}
		if diff := cmp.Diff(before, b.catalogue()); diff != "" {
			t.Errorf("(-before +after):\n%s", diff)
		}
		if strings.Contains(out.String(), "gap found") {
			t.Errorf("the log says what was not done:\n%s", &out)
		}
		o.StopOnLost = false
		b.init(o)
		if !strings.Contains(out.String(), `level=WARN msg="gap found: `) {
			t.Errorf("the log does not tell the gap:\n%s", &out)
		}
		o.StopOnLost = true
		b.init(o)
	})
}

func TestInit_VectorsOfOthersAreSafe(t *testing.T) {
	t.Parallel()
	b := newBase(t, makeDocs, "INSERT INTO docs (id, embedding) VALUES (1, '[1,2,3]')",
		"CREATE TABLE docs_embedding (id bigint, chunk_no int NOT NULL DEFAULT 0, generation int NOT NULL, text_hash bytea NOT NULL, embedded_at timestamptz NOT NULL, embedding vector(3) NOT NULL, PRIMARY KEY (id, chunk_no))",
		"INSERT INTO docs_embedding VALUES (1, 0, 1, '', now(), '[1,2,3]')")
	o := b.options(b.SlotName(), docs(), side())
	_, err := setup.Init(t.Context(), o)
	e := caught[*refusal.ConfigError](t, err, "did not write", "--overwrite")
	if !strings.Contains(err.Error(), `"docs"`) || !strings.Contains(err.Error(), `"side"`) {
		t.Errorf("%v names not both (%v)", err, e)
	}
	o.Specs[0].Overwrite, o.Specs[1].Overwrite = true, true
	b.init(o)
	b.MustExec("UPDATE docs SET embedding = '[3,2,1]'")
	o.Specs[0].Overwrite, o.Specs[1].Overwrite = false, false
	if got := whats(b.init(o)); len(got) != 0 { // they belong to this pipeline now
		t.Errorf("then made %v", got)
	}
}

func TestInit_TakesOverWhatWasChanged(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	o := b.options(b.SlotName(), docs())
	b.init(o)
	b.MustExec("UPDATE embedsidecar.scan SET phase = 'done', started = requested")
	state := func() string {
		return testenv.Value[string](b.Database,
			`SELECT format('generation %s, scan %s, ledger %s', p.generation, s.phase, (SELECT count(*)
				FROM embedsidecar.ledger AS l WHERE l.pipeline_id = p.pipeline_id))
			FROM embedsidecar.pipeline p JOIN embedsidecar.scan s USING (pipeline_id)`)
	}
	fill := func() {
		b.MustExec("INSERT INTO embedsidecar.ledger (pipeline_id, row_key, source_hash, vector_hash, generation, lsn) SELECT pipeline_id, '1', '', '', 1, '0/0' FROM embedsidecar.pipeline ON CONFLICT DO NOTHING")
		b.MustExec("UPDATE embedsidecar.scan SET phase = 'done', started = requested")
	}
	for _, tt := range []struct {
		name   string
		change func()
		what   string
		state  string
	}{
		{
			"priority", func() { o.Specs[0].Priority = pipeline.High }, "changes of pipeline \"docs\": priority",
			"generation 1, scan done, ledger 1",
		},
		{
			"enabled", func() { o.Specs[0].Enabled = false }, "changes of pipeline \"docs\": enabled",
			"generation 1, scan done, ledger 1",
		},
		{
			"model's place", func() { o.Specs[0].Model = "/elsewhere" }, "changes of pipeline \"docs\": model's place",
			"generation 1, scan done, ledger 1",
		},
		{
			"columns", func() { o.Specs[0].Columns = []string{"title"} },
			"changes of pipeline \"docs\": columns, watched columns; with a scan", "generation 2, scan waiting, ledger 1",
		},
		{
			"text", func() { o.Specs[0].Text = "title || '!'" }, "changes of pipeline \"docs\": text; with a scan",
			"generation 3, scan waiting, ledger 1",
		},
		{
			"filter", func() { o.Specs[0].Filter = "n > 1" },
			"changes of pipeline \"docs\": filter, watched columns; with a scan", "generation 4, scan waiting, ledger 1",
		},
		{"key", func() {
			b.MustExec("ALTER TABLE docs DROP CONSTRAINT docs_pkey, ADD PRIMARY KEY (id, title)")
		}, "changes of pipeline \"docs\": key, watched columns; with a scan", "generation 5, scan waiting, ledger 0"},
		{
			"destination", func() { b.MustExec("ALTER TABLE docs DROP COLUMN embedding") },
			"changes of pipeline \"docs\": destination recreated; with a scan", "generation 6, scan waiting, ledger 1",
		},
		{
			"table", func() { b.MustExec("DROP TABLE docs"); b.MustExec(plainDocs) },
			"changes of pipeline \"docs\": table recreated, key, watched columns, destination recreated; with a scan",
			"generation 7, scan waiting, ledger 0",
		},
	} {
		fill()
		tt.change()
		got := whats(b.init(o))
		if !slices.Contains(got, tt.what) {
			t.Errorf("%s: made %q, want %q", tt.name, got, tt.what)
		}
		if got := state(); got != tt.state {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.state)
		}
		if got := whats(b.init(o)); len(got) != 0 {
			t.Errorf("%s: then made %q", tt.name, got)
		}
	}
}

func TestInit_RefusesWhatCannotBeTakenOver(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs, "CREATE TABLE other (id int PRIMARY KEY, title text, body text)")
	o := b.options(b.SlotName(), docs())
	b.init(o)
	change := func(edit func(o *setup.Options)) error {
		changed := b.options(o.Slot, docs())
		edit(&changed)
		_, err := setup.Init(t.Context(), changed)
		return err
	}
	wantError[*refusal.ConfigError](t, change(func(o *setup.Options) {
		o.Descriptions["docs"] = embed.Description{Fingerprint: "f2", Dims: 3}
	}), "another model (f1)", "(f2)", "--overwrite")
	wantError[*refusal.ConfigError](t, change(func(o *setup.Options) {
		o.Descriptions["docs"] = embed.Description{Fingerprint: "f1", Dims: 4}
	}), "4 wide", "3")
	wantError[*refusal.ConfigError](t, change(func(o *setup.Options) { o.Specs[0].IntoColumn = "second" }),
		"cannot become",
		"second pipeline")
	wantError[*refusal.ConfigError](t, change(func(o *setup.Options) { o.Publication = "second" }),
		"was set up with publication")
	wantError[*refusal.ConfigError](t, change(func(o *setup.Options) { o.Specs = append(o.Specs, o.Specs[0]) }),
		"two pipelines of this name")
	wantError[*refusal.ConfigError](t, change(func(o *setup.Options) { o.Descriptions = nil }), "has not described itself")
	second := docs()
	second.Name = "second"
	wantError[*refusal.ConfigError](t, change(func(o *setup.Options) {
		o.Specs = append(o.Specs, second)
		o.Descriptions["second"] = o.Descriptions["docs"]
	}), `also that of pipeline "docs"`)
	b.MustExec("ALTER TABLE docs RENAME TO renamed")
	wantError[*refusal.MissingError](t, change(func(*setup.Options) {}), `now called "public"."renamed"`)
	wantError[*refusal.ConfigError](t, change(func(o *setup.Options) {
		o.ReplicationDSN = testenv.DB(t, testenv.Empty(), testenv.On(b.Server)).URL(testenv.Owner)
	}), "different databases", "--stream-url")
	b.MustExec("ALTER TABLE renamed RENAME TO docs")
	for sql, word := range map[string]string{
		"ALTER PUBLICATION embedsidecar SET (publish_via_partition_root = true)": "publish_via_partition_root",
		"ALTER PUBLICATION embedsidecar SET (publish = 'insert')":                "leaves out some kinds",
	} {
		b.MustExec(sql)
		wantError[*refusal.ConfigError](t, change(func(*setup.Options) {}), word)
		b.MustExec("ALTER PUBLICATION embedsidecar SET (publish_via_partition_root = false, publish = 'insert, update, delete, truncate')")
	}
}

// TestP5_InitLooksAgainWhereAnotherMadeIt: a sidecar that repairs makes publication and slot while another one starts.
// The second one continues with what exists.
func TestP5_InitLooksAgainWhereAnotherMadeIt(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	o := b.options(b.SlotName(), docs())
	b.init(o)
	for name, c := range map[string]struct {
		damage, first string
	}{
		"the publication": {
			"DROP PUBLICATION " + o.Publication, "CREATE PUBLICATION " + o.Publication + " FOR TABLE ONLY public.docs",
		},
		"a column": {"ALTER TABLE docs DROP COLUMN embedding", "ALTER TABLE public.docs ADD COLUMN embedding public.vector(3)"},
	} {
		b.MustExec(c.damage)
		tx, err := b.super.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) }) // before the pool is closed
		if _, err := tx.Exec(t.Context(), "SET LOCAL ROLE "+testenv.Owner+"; "+c.first); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := setup.Init(t.Context(), o)
			done <- err
		}()
		testenv.Eventually(t, waitFor, func() (bool, string) {
			return testenv.Value[bool](b.Database, `SELECT EXISTS (SELECT FROM pg_stat_activity
				WHERE datname = current_database() AND wait_event_type = 'Lock' AND backend_type = 'client backend')`), "nobody waits"
		})
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
