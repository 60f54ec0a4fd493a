package setup_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP10_InitNamesTheEventTriggerThatStopsIt: the error names an event trigger that alters or refuses what init makes,
// with a hint. Nothing half made stays, and without the trigger init succeeds.
func TestP10_InitNamesTheEventTriggerThatStopsIt(t *testing.T) {
	t.Parallel()
	t.Run("one that never ends", neverEnds)
	const made = `FOR o IN SELECT * FROM pg_event_trigger_ddl_commands() WHERE command_tag = 'CREATE TABLE' LOOP `
	for name, test := range map[string]struct{ does, says string }{
		"row-level security": {
			made + `EXECUTE 'ALTER TABLE ' || o.object_identity || ' ENABLE ROW LEVEL SECURITY'; END LOOP;`,
			"row-level security is on in the new table",
		},
		"for the owner, too": {made + `EXECUTE 'ALTER TABLE ' || o.object_identity ||
			' ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY'; END LOOP;`, "row-level security"},
		"a column": {made + `IF o.schema_name = 'public' THEN EXECUTE 'ALTER TABLE ' || o.object_identity ||
			' ADD tenant int NOT NULL'; END IF; END LOOP;`, `"tenant" is NOT NULL without a default`},
		"a name": {
			made + `IF o.object_identity LIKE 'public.docs\_%' THEN RAISE 'tables are called t_*'; END IF; END LOOP;`,
			"tables are called",
		},
	} {
		for _, installed := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", later"}[installed], func(t *testing.T) {
				t.Parallel()
				b := newBase(t, plainDocs, "CREATE TABLE notes (id int PRIMARY KEY, body text)")
				o := b.options(b.SlotName(), side())
				if installed {
					notes := pipeline.Spec{
						Name: "notes", Schema: "public", Table: "notes", Columns: []string{"body"}, IntoTable: "notes_embedding",
						Priority: pipeline.Normal, Enabled: true,
					}
					b.init(b.options(o.Slot, notes))
				}
				b.MustExecSuper(`CREATE FUNCTION public.strict() RETURNS event_trigger LANGUAGE plpgsql AS
					$$DECLARE o record; BEGIN ` + test.does + ` END$$`)
				b.MustExecSuper(`CREATE EVENT TRIGGER "all tables" ON ddl_command_end EXECUTE FUNCTION public.strict()`)
				report, err := setup.Init(t.Context(), o)
				if err == nil {
					t.Fatalf("made %v", report.Steps)
				}
				text := err.Error() + "\n" + strings.Join(problem.Hints(err), "\n")
				for _, word := range []string{test.says, `ALTER EVENT TRIGGER "all tables" DISABLE;`} {
					if !strings.Contains(text, word) {
						t.Errorf("the error lacks %q:\n%s", word, text)
					}
				}
				if left := testenv.Value[string](b.Database, `SELECT concat_ws(' ', to_regclass('docs_embedding'), (SELECT string_agg(c.relname, ' ')
					FROM pg_class AS c WHERE c.relrowsecurity))`); left != "" {
					t.Errorf("what stays is %q", left)
				}
				b.MustExecSuper(`DROP EVENT TRIGGER "all tables"`)
				b.init(o)
			})
		}
	}
}

// neverEnds: an event trigger goes on when it is cancelled, while a pipeline is
// inspected or while its table is made. Set-up gives up on the pipeline, and leaves no session behind.
func neverEnds(t *testing.T) {
	t.Helper()
	t.Parallel()
	for _, tag := range []string{"CREATE VIEW", "CREATE TABLE"} {
		t.Run(tag, func(t *testing.T) {
			t.Parallel()
			b := newBase(t, plainDocs, "CREATE TABLE notes (id int PRIMARY KEY, body text)")
			slot := b.SlotName()
			b.init(b.options(slot, pipeline.Spec{
				Name: "notes", Schema: "public", Table: "notes", Columns: []string{"body"}, IntoTable: "notes_embedding",
				Priority: pipeline.Normal, Enabled: true,
			}))
			b.MustExecSuper(`CREATE FUNCTION public.goes_on() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
				LOOP BEGIN PERFORM pg_sleep(0.01); EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; END $$`)
			b.MustExecSuper(`CREATE EVENT TRIGGER goes_on ON ddl_command_end WHEN TAG IN ('` + tag + `')
				EXECUTE FUNCTION public.goes_on()`)
			spec := side()
			spec.Text = "title || body" // it is inspected by a temporary view
			o := b.options(slot, spec)
			o.StepTimeout = time.Second
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			_, err := setup.Init(ctx, o)
			if !errors.Is(err, database.ErrTooLong) || refusal.Culprits(err)[spec.Name] == nil {
				t.Errorf("%v", err)
			}
			testenv.Eventually(t, waitFor, func() (bool, string) {
				left := testenv.Value[int](b.Database, `SELECT count(*) FROM pg_stat_activity
					WHERE datname = current_database() AND wait_event = 'PgSleep'`)
				return left == 0, "it still runs"
			})
		})
	}
}
