package sidecar_test

import (
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/uninstall"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// A rolling deployment: an old sidecar streams, and hears of nothing; a new one has been set up beside it. What the
// old one reads of a definition that it does not know is lost to the slot, so whoever takes the slot must compare the
// rows.
func TestP2_ARollingDeployment(t *testing.T) {
	t.Parallel()
	both := []pipeline.Spec{intoTable("docs", "title"), intoTable("notes", "body")}
	stories := map[string]struct {
		before, after []pipeline.Spec
		meanwhile     func(r *rig) // between set-up and set-up
		change        string       // seen by nobody but the old one
	}{
		"a pipeline is added": {
			before: both[:1], after: both,
			change: `UPDATE notes SET body = 'changed' WHERE id = 1; INSERT INTO notes VALUES (3, 'new'); DELETE FROM notes WHERE id = 2`,
		},
		"other columns": {
			before: both, after: []pipeline.Spec{intoTable("docs", "body"), both[1]},
			change: `UPDATE docs SET body = 'there is a text now'`,
		},
		"a pipeline is removed and added": {
			before: both, after: both, change: `UPDATE notes SET body = 'changed' WHERE id = 1; INSERT INTO notes VALUES (3, 'new'); DELETE FROM notes WHERE id = 2`,
			meanwhile: func(r *rig) { r.remove("notes") },
		},
		"a table is dropped and made anew": {
			before: both, after: both, change: `UPDATE notes SET body = 'changed' WHERE id = 1; INSERT INTO notes VALUES (3, 'new'); DELETE FROM notes WHERE id = 2`,
			meanwhile: func(r *rig) { r.db.MustExec(`DROP TABLE notes`); r.db.MustExec(twoNotes) },
		},
	}
	for name, story := range stories {
		for order, newDiesFirst := range map[string]bool{"the old one dies": false, "the new one dies first": true} {
			t.Run(name+", "+order, func(t *testing.T) {
				t.Parallel()
				db := testenv.DB(t)
				db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, title text, body text)`)
				db.MustExec(`INSERT INTO docs VALUES (1, NULL, NULL)`)
				db.MustExec(twoNotes)
				r := newRig(t, db, story.before...)
				r.options = func(o *sidecar.Options) { o.Heartbeat = time.Hour }
				old, stopOld := r.start()
				testenv.Eventually(t, waitTimeout, func() (bool, string) {
					return old.Stream() != nil && old.Stream().Streaming.Load(), "the old one does not stream"
				})
				r.settle()
				if story.meanwhile != nil {
					story.meanwhile(r)
				}
				r.init(story.after...)
				for _, p := range r.pipelines {
					db.Grant(r.role, p)
				}
				r.options = nil
				young, stopYoung := r.start()
				testenv.Eventually(t, waitTimeout, func() (bool, string) {
					return len(young.States()) == len(story.after),
						"the new one is not up"
				})
				db.MustExec(story.change)
				if state := r.decoded(); state.Yes() || len(state.Unrouted) != 1 {
					t.Errorf("the streamer does not know what was set up, and yet: %+v", state)
				}
				if newDiesFirst {
					stopYoung()
				}
				stopOld()
				if newDiesFirst {
					young, _ = r.start()
				}
				testenv.Eventually(t, waitTimeout, func() (bool, string) {
					return young.Stream() != nil &&
						young.Stream().Streaming.Load(), "no takeover"
				})
				r.settle()
				r.verify()
			})
		}
	}
}

const twoNotes = `CREATE TABLE notes (id bigint PRIMARY KEY, body text); INSERT INTO notes VALUES (1, 'one'), (2, 'two')`

// decoded waits until everything committed so far is behind the checkpoint, whatever is still to be done. It does so
// by a row of docs: whoever asks how far the stream is makes it look about.
func (r *rig) decoded() (state report.CaughtUp) {
	r.t.Helper()
	lsn, err := pglogrepl.ParseLSN(testenv.Value[string](r.db, `SELECT pg_current_wal_insert_lsn()::text`))
	if err != nil {
		r.t.Fatal(err)
	}
	r.db.MustExec(`INSERT INTO docs VALUES (1000, 'the last', 'the last')`)
	testenv.Eventually(r.t, waitTimeout, func() (bool, string) {
		if state, err = report.At(r.t.Context(), r.db.Super(), r.slot, lsn); err != nil {
			r.t.Fatal(err)
		}
		return state.Decoded, "the streamer is behind"
	})
	return state
}

// remove takes a pipeline away as its owner.
func (r *rig) remove(name string) {
	r.t.Helper()
	if _, err := uninstall.Pipeline(r.t.Context(), uninstall.PipelineOptions{
		Pool:     connect(r.t, r.db.URL(testenv.Owner), 2),
		Pipeline: name, Log: logger(r.t),
	}); err != nil {
		r.t.Fatal(err)
	}
}
