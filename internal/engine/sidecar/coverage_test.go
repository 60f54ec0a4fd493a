package sidecar_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// covers waits until status shows a coverage and a state.
func (r *rig) covers(want float64, states ...health.Code) (p report.Pipeline) {
	r.t.Helper()
	testenv.Eventually(r.t, waitTimeout, func() (bool, string) {
		st, err := report.Read(r.t.Context(), r.db.Pool)
		if err != nil {
			return false, err.Error()
		}
		p = st.Pipelines[0]
		good := len(states) == 0
		for _, s := range states {
			good = good || p.State == s
		}
		return p.CoverageOr(-1) == want && good, fmt.Sprintf("coverage %v (%d of %d), %s: %s; want %v and one of %v", p.CoverageOr(-1),
			p.Known, p.Rows, p.State, p.Health(), want, states)
	})
	return p
}

// TestP10_RowsOfTablesThatInheritAreNotCounted: they are no rows of the pipeline.
func TestP10_RowsOfTablesThatInheritAreNotCounted(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	db.MustExec(`CREATE TABLE child (PRIMARY KEY (id)) INHERITS (docs)`)
	db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, 10) AS i`)
	db.MustExec(`INSERT INTO child SELECT i, 'body ' || i FROM generate_series(11, 30) AS i`)
	r := newRig(t, db, intoTable("docs", "body"))
	r.start()
	r.settle()
	if p := r.covers(1, health.UpToDate); p.Rows != 10 {
		t.Errorf("%d rows, want 10", p.Rows)
	}
}

// TestP10_CoverageIsTheShareOfRowsWhoseVectorIsOfTheirText: what was looked at once is not covered for ever.
func TestP10_CoverageIsTheShareOfRowsWhoseVectorIsOfTheirText(t *testing.T) {
	t.Parallel()
	bothDestinations(t, func(t *testing.T, spec func(table string, columns ...string) pipeline.Spec) {
		t.Helper()
		db := testenv.DB(t)
		db.MustExec(docs)
		db.MustExec("INSERT INTO docs SELECT i, CASE WHEN i <= 5 THEN 'good ' ELSE 'bad ' END || i FROM generate_series(1, 10) i")
		r := newRig(t, db, spec("docs", "body"))
		everything := func(context.Context, []string) error {
			return &embed.Error{
				Class: embed.Transient, Code: "unavailable", RetryAfter: 20 * time.Millisecond,
				Err: errors.New("nobody is there"),
			}
		}
		r.covers(0, health.NoSidecar)
		r.embedder.hook(everything)
		_, _ = r.start()
		r.covers(0, health.PluginDown)

		// Half of the texts cannot be embedded.
		r.embedder.hook(func(_ context.Context, texts []string) error {
			if strings.Contains(strings.Join(texts, " "), "bad") {
				return &embed.Error{Class: embed.Data, Code: "refused", Err: errors.New("no")}
			}
			return nil
		})
		r.settle()
		r.covers(0.5, health.RowsFailed)
		db.MustExec("UPDATE docs SET body = 'fine ' || id WHERE id > 5")
		r.embedder.hook(nil)
		r.settle()
		if p := r.covers(1, health.UpToDate); p.ScanSeen != 10 || p.ScanExpected != 10 {
			t.Errorf("a scan of 10 rows has seen %d of %d", p.ScanSeen, p.ScanExpected)
		}

		// Every row has another text.
		r.embedder.hook(everything)
		db.MustExec("UPDATE docs SET body = 'stale ' || id")
		r.covers(0, health.PluginDown, health.Working)
		r.embedder.hook(nil)
		r.settle()
		r.covers(1, health.UpToDate)

		// The same while it is paused.
		db.MustExec("UPDATE embedsidecar.pipeline SET enabled = false")
		db.MustExec("UPDATE docs SET body = body || ' paused' WHERE id <= 5")
		r.covers(0.5, health.Paused)
		db.MustExec("UPDATE embedsidecar.pipeline SET enabled = true")
		r.settle()
		r.covers(1, health.UpToDate)

		// Another text: no vector is of it, also while the rows are being compared.
		r.embedder.hook(everything)
		other := spec("docs")
		other.Columns, other.Text = nil, "upper(body)"
		r.init(other)
		r.covers(0, health.PluginDown, health.Comparing, health.Working)
		r.embedder.hook(nil)
		r.settle()
		if p := r.covers(1, health.UpToDate); p.ScanSeen != 10 {
			t.Errorf("the second scan of 10 rows has seen %d", p.ScanSeen)
		}

		// Another filter: who is excluded is as he should be without a vector, and the others have theirs.
		sent := r.embedder.sent()
		other.Filter = "id <= 5"
		r.init(other)
		r.settle()
		r.covers(1, health.UpToDate)
		if n := r.embedder.sent() - sent; n != 0 {
			t.Errorf("a filter that lets less through sent %d texts", n)
		}
		r.verify()
	})
}

// TestP10_CoverageIsUnknownWhileChangesMayBeMissing: until all rows have been compared, nobody knows which are stale.
func TestP10_CoverageIsUnknownWhileChangesMayBeMissing(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	db.MustExec("INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, 10) i")
	r := newRig(t, db, column("docs", "body"))
	_, stop := r.start()
	r.settle()
	r.covers(1, health.UpToDate)
	stop()
	r.released()
	const unknown = -1
	db.MustExec("UPDATE docs SET body = 'stale ' || id WHERE id <= 5")
	r.covers(unknown, health.NoSidecar) // nobody has read what has changed
	db.MustExec("SELECT pg_drop_replication_slot($1)", r.slot)
	r.covers(unknown, health.SlotLost)
	tx, err := db.Pool.Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), "SELECT pg_current_xact_id()") // for which slot and comparison wait
	}
	if err != nil {
		t.Fatal(err)
	}
	_, _ = r.start()
	r.covers(unknown, health.SlotWaiting, health.Comparing)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.settle()
	r.covers(1, health.UpToDate)
}
