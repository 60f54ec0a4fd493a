package sidecar_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP5_AServerThatRefusesOnePipelineStopsNoOther: whatever the server says about what one pipeline is made of, at the
// start of a sidecar or while it runs, the others are loaded and work, and the state of that one says why. When it is
// mended, it goes on. Nor does code that goes on when it is cancelled stop another.
func TestP5_AServerThatRefusesOnePipelineStopsNoOther(t *testing.T) {
	t.Parallel()
	t.Run("code that the stream waits for never ends", endlessForTheStream)
	t.Run("texts never end", endlessTexts)
	const well = `CREATE OR REPLACE FUNCTION public.greeting() RETURNS text IMMUTABLE LANGUAGE sql AS $$ SELECT 'hello'::text $$;`
	replaced := func(body string) string {
		return `CREATE OR REPLACE FUNCTION public.greeting() RETURNS text IMMUTABLE LANGUAGE ` + body
	}
	ways := map[string]struct {
		sick []string // by a superuser
		mend string
		says string
	}{
		"raises": { // whatever it says may be a row's text
			[]string{replaced(`plpgsql AS $$ BEGIN RAISE EXCEPTION 'no greeting today'; END $$`)},
			well,
			"SQLSTATE P0001 and a message of 17 characters",
		},
		"raises what a transaction fails with": {
			[]string{replaced(`plpgsql AS $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '40001'; END $$`)}, well, "SQLSTATE 40001",
		},
		"raises what a full server does": {
			[]string{replaced(`plpgsql AS $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '53200'; END $$`)}, well, "SQLSTATE 53200",
		},
		"lacks its library": {[]string{
			replaced(`c AS '$libdir/vector', 'vector_dims'`),
			`UPDATE pg_proc SET probin = '$libdir/gone' WHERE proname = 'greeting'`,
		}, well, "gone"},
		"names an unknown zone": {
			[]string{`UPDATE embedsidecar.pipeline SET active_hours = 'mon-sun 00:00-24:00 Mars/Olympus',
				active_minutes = '{[0,10080)}', active_zone = 'Mars/Olympus' WHERE name = 'docs'`},
			`UPDATE embedsidecar.pipeline SET active_hours = '', active_minutes = NULL, active_zone = 'UTC'`, "Mars/Olympus",
		},
	}
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		for name, way := range ways {
			for _, running := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, running %t", name, running), func(t *testing.T) {
					t.Parallel()
					db := testenv.DB(t, testenv.Major(major))
					db.MustExec(docs)
					db.MustExec(notes)
					db.MustExec(well)
					spec := intoTable("docs", "body")
					spec.Text = "concat(public.greeting(), body)"
					r := newRig(t, db, spec, intoTable("notes", "body"))
					if running {
						r.start()
						db.MustExec(`INSERT INTO docs VALUES (1, 'one')`)
						r.has(1, `SELECT count(*) FROM docs_embedding`)
					}
					// At once: the server would not survive a call of what stands there between two of them.
					db.MustExecSuper(strings.Join(way.sick, ";\n"))
					if !running {
						r.start()
					}
					r.state("docs", health.Misconfigured, way.says)
					db.MustExec(`INSERT INTO notes VALUES (1, 'one')`)
					r.has(1, `SELECT count(*) FROM notes_embedding`)
					db.MustExec(`SELECT embedsidecar.pause('docs')`)
					r.state("docs", health.Misconfigured, way.says)
					db.MustExec(`SELECT embedsidecar.resume('docs')`)
					db.MustExec(`INSERT INTO docs VALUES (2, 'two')`)
					if loaded, err := resolve.Load(context.WithoutCancel(t.Context()), connect(t, r.url, 1), r.slot); err != nil ||
						loaded[0].Status != pipeline.Misconfigured || loaded[1].Status != pipeline.Active {
						t.Errorf("loaded: %v, %v", loaded, err)
					}
					db.MustExecSuper(way.mend)
					r.has(1, `SELECT count(*) FROM docs_embedding WHERE id = 2`)
					r.state("docs", health.UpToDate, "")
				})
			}
		}
	})
}

// TestP10_AFunctionOfOursThatMayNotBeRunIsNamed: who takes EXECUTE of one of our functions from the role finds which
// one in the state of the pipeline, whose work stands still.
func TestP10_AFunctionOfOursThatMayNotBeRunIsNamed(t *testing.T) {
	t.Parallel()
	for _, function := range []string{"is_open", "has_budget"} {
		t.Run(function, func(t *testing.T) {
			t.Parallel()
			db := testenv.DB(t)
			db.MustExec(docs)
			r := newRig(t, db, intoTable("docs", "body"))
			r.start()
			r.settle()
			r.state("docs", health.UpToDate, "")
			db.MustExecSuper("REVOKE EXECUTE ON FUNCTION embedsidecar." + function + " FROM PUBLIC, " + r.role)
			db.MustExec(`INSERT INTO docs VALUES (1, 'one')`)
			r.state("docs", health.Misconfigured, function)
			db.MustExecSuper("GRANT EXECUTE ON FUNCTION embedsidecar." + function + " TO " + r.role)
			r.state("docs", health.UpToDate, "")
		})
	}
}

// state waits until a pipeline has a state whose reason contains some words.
func (r *rig) state(name string, want health.Code, says string) {
	r.t.Helper()
	testenv.Eventually(r.t, waitTimeout, func() (bool, string) {
		for _, p := range r.states() {
			if p.Name == name {
				return p.State == want && strings.Contains(p.Reason, says), fmt.Sprintf("%s: %s", p.State, p.Reason)
			}
		}
		return false, "it is not there"
	})
}
