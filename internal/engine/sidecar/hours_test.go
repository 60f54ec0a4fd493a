package sidecar_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP10_OutsideOfItsHoursNothingIsEmbedded: changes are queued and nothing of them is embedded, neither from the
// queue nor straight from the stream, not even by a sidecar that starts then; status and wait say why. When it is open
// again, all of it is made up for; what is in work when it closes is finished.
func TestP10_OutsideOfItsHoursNothingIsEmbedded(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text)`)
	db.MustExec(`INSERT INTO docs VALUES (1, 'from the start')`)
	spec := intoTable("docs", "body")
	spec.Active = pipeline.Manual
	r := newRig(t, db, spec)
	r.options = func(o *sidecar.Options) { o.NoDirect = false }
	r.start()
	state := func() report.Pipeline {
		st, err := report.Read(t.Context(), db.Super())
		if err != nil {
			t.Fatal(err)
		}
		return st.Pipelines[0]
	}
	is := func(want health.Code) {
		t.Helper()
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			p := state()
			return p.State == want, fmt.Sprintf("%s: %s", p.State, p.Reason)
		})
	}
	hours := func(h pipeline.Hours) {
		db.MustExec(`UPDATE embedsidecar.pipeline SET active_hours = $1, active_minutes = $2::text::int4multirange`, h, h.Minutes())
	}
	queued := func(n int64) {
		t.Helper()
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			p := state()
			return p.Open() == n, fmt.Sprintf("%d rows wait, want %d", p.Open(), n)
		})
	}
	is(health.OutsideHours)
	db.MustExec(`INSERT INTO docs VALUES (2, 'outside')`)
	queued(1)
	r.settle() // does not wait for it
	if n := r.embedder.sent(); n != 0 {
		t.Fatalf("%d texts were embedded outside of the hours", n)
	}

	db.MustExec(`SELECT embedsidecar.resume('docs', '1 h')`)
	is(health.UpToDate)
	db.MustExec(`INSERT INTO docs VALUES (3, 'while it is open')`)
	r.settle()
	if n := r.embedder.sent(); n != 3 {
		t.Errorf("%d texts were embedded, want 3", n)
	}

	// It closes while a text is with the embedder.
	embedding, goOn := make(chan struct{}), make(chan struct{})
	r.embedder.hook(func(ctx context.Context, _ []string) error {
		r.embedder.hook(nil)
		close(embedding)
		select {
		case <-goOn:
		case <-ctx.Done():
		}
		return ctx.Err()
	})
	db.MustExec(`UPDATE docs SET body = 'in work' WHERE id = 1`)
	<-embedding
	testenv.Eventually(t, waitTimeout, func() (bool, string) { // the stream gives the row to a worker, which waits for it
		const leased = `SELECT EXISTS (SELECT FROM embedsidecar.tasks WHERE state = 'in_progress')`
		return testenv.Value[bool](db, leased), "no task is in progress"
	})
	db.MustExec(`SELECT embedsidecar.resume('docs', '0')`)
	db.MustExec(`UPDATE docs SET body = 'too late' WHERE id = 2`)
	is(health.OutsideHours)
	close(goOn)
	queued(1)
	if r.embedder.sent("in work") == 0 || r.embedder.sent("too late") != 0 {
		t.Errorf("what was in work was embedded %d times, what came too late %d times", r.embedder.sent("in work"),
			r.embedder.sent("too late"))
	}

	hours("mon-sun 00:00-24:00 UTC")
	is(health.UpToDate)
	r.settle()
	r.verify()
}

// TestP2_RowsThatAreDueTomorrowDelayNoComparison: more rows are scheduled for tomorrow than a comparison keeps open.
// One that is requested meanwhile goes on.
func TestP2_RowsThatAreDueTomorrowDelayNoComparison(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, 10) AS i`)
	r := newRig(t, db, intoTable("docs", "body"))
	r.start()
	r.settle()
	db.MustExec(`SELECT embedsidecar.set_priority('docs', 'low')`)
	db.MustExec(`SELECT embedsidecar.requeue('docs', ARRAY(SELECT i::text FROM generate_series(1001, 6000) AS i),
		at => now() + interval '1 day')`)
	db.MustExec(`DELETE FROM docs_embedding WHERE id = 1`)
	db.MustExec(`SELECT embedsidecar.backfill('docs')`)
	testenv.Eventually(t, 2*time.Minute, func() (bool, string) {
		return r.count(`SELECT count(*) FROM docs_embedding`) == 10, "the comparison waits"
	})
}
