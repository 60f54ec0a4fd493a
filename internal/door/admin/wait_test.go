package admin_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/door/admin"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// caughtUp makes the tables say that the pipelines of a fixture have caught up with 0/1.
func (f *fixture) caughtUp() {
	f.t.Helper()
	f.MustExec(`TRUNCATE embedsidecar.task, embedsidecar.scan, embedsidecar.route`)
	f.MustExec(`UPDATE embedsidecar.lsn_checkpoint SET lsn = 'F/0'`)
	f.MustExec(`INSERT INTO embedsidecar.route (pipeline_id, generation, definition, epoch)
		SELECT pipeline_id, generation, '', 0 FROM embedsidecar.pipeline`)
	rows, err := f.pool.Query(f.t.Context(), sqlfiles.Query("pipeline_catalogue"),
		pgx.StrictNamedArgs{"slot": f.config.Slot.Name, "pipeline": nil})
	if err != nil {
		f.t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToMap)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, p := range list {
		f.MustExec(`UPDATE embedsidecar.pipeline SET catalogue = $1 WHERE pipeline_id = $2`, p["current"], p["pipeline_id"])
	}
}

const waitPath = "/api/v1/wait?lsn=0/1&timeout=30s"

// TestWait_WhatRests: a pipeline that does not work never counts as caught up. A caller that sees one pipeline is told
// about that one only.
func TestWait_WhatRests(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.caughtUp()
	for _, tt := range []struct {
		paused         string
		viewer, scoped bool
	}{{"", true, true}, {"public.notes", false, true}, {"public.docs", false, false}} {
		f.MustExec(`UPDATE embedsidecar.pipeline SET enabled = name <> $1`, tt.paused)
		for who, want := range map[string]bool{"viewer": tt.viewer, "scoped": tt.scoped} {
			w := gets[admin.Waited](f, who, waitPath)
			if w.Yes != want || !want && !strings.Contains(w.Why, tt.paused) || who == "scoped" && w.Left != nil {
				t.Errorf("%q is paused, for the %s: %+v, want %t", tt.paused, who, w, want)
			}
		}
	}
}

// TestWait_TimeIsOverWhileItLooksAtTheRest: all vectors but those of a resting pipeline have caught up, and its reason
// cannot be read in time. The answer is the same without it.
func TestWait_TimeIsOverWhileItLooksAtTheRest(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.caughtUp()
	f.MustExec(`UPDATE embedsidecar.pipeline SET enabled = false WHERE name = 'public.docs'`)
	tx, err := f.connect(testenv.Owner).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `LOCK TABLE embedsidecar.worker`); err != nil { // only the state reads it
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	for limit := 200 * time.Millisecond; ; limit *= 3 { // on a busy machine it does not get to the rest in time
		w := gets[admin.Waited](f, "viewer", "/api/v1/wait?lsn=0/1&timeout="+limit.String())
		if strings.HasPrefix(w.Why, "not caught up, and waiting does not help: inactive: public.docs") && !w.Yes {
			break
		}
		if limit > 10*time.Second || w.Yes || !strings.HasPrefix(w.Why, "not caught up with 0/1 in time") {
			t.Fatalf("%+v", w)
		}
	}
}
