package sidecar_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP6_WhatIsSpentIsNoChangeOfThePipeline: another version of its row would have every sidecar load all pipelines,
// each minute in which something is embedded.
func TestP6_WhatIsSpentIsNoChangeOfThePipeline(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		db := testenv.DB(t, testenv.Major(major))
		db.MustExec(docs)
		r := newRig(t, db, intoTable("docs", "body"))
		r.options = func(o *sidecar.Options) { o.Heartbeat = 100 * time.Millisecond }
		_, stop := r.start()
		db.MustExec(`INSERT INTO docs VALUES (1, 'one')`)
		stored := func(want int64) {
			t.Helper()
			testenv.Eventually(t, waitTimeout, func() (bool, string) {
				st, err := report.Read(t.Context(), db.Super())
				if err != nil {
					t.Fatal(err)
				}
				got := st.Pipelines[0].Saved.Embedded
				return got == want, fmt.Sprintf("%d texts embedded, want %d", got, want)
			})
		}
		version := func() string {
			return testenv.Value[string](db, `SELECT xmin::text FROM embedsidecar.pipeline`)
		}
		r.settle()
		r.noticed()
		stored(1)
		before := version()
		db.MustExec(`INSERT INTO docs VALUES (2, 'two')`)
		stored(2)
		db.MustExec(`INSERT INTO docs VALUES (3, 'three')`)
		r.settle()
		stop()
		stored(3)
		if after := version(); after != before {
			t.Errorf("the row of the pipeline is of version %s, and was of %s", after, before)
		}
	})
}
