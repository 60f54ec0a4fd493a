package sidecar_test

import (
	"strings"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// Whoever asks in the moment in which a sidecar starts is told what keeps a pipeline, and not that it is being started.
func TestP10_AMissingGrantIsToldFromTheFirstMoment(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		db := testenv.DB(t, testenv.Major(major))
		db.MustExec(docs)
		r := newRig(t, db, column("docs", "body"))
		db.MustExec(`REVOKE SELECT, UPDATE ON docs FROM ` + database.Quote(r.role))
		db.MustExec(`REVOKE SELECT (id, body, embedding), UPDATE (embedding) ON docs FROM ` + database.Quote(r.role))
		pool := connect(t, r.url, 2)
		r.start()
		for began := time.Now(); time.Since(began) < waitTimeout; {
			st, err := report.Options{AtOnce: true}.Read(t.Context(), pool)
			if err != nil {
				t.Fatal(err)
			}
			if len(st.Sidecars) == 0 {
				continue
			}
			p := st.Pipelines[0]
			if p.State != health.Misconfigured || !strings.Contains(p.Reason, "may not") {
				t.Errorf("its first word is %q: %s", p.State, p.Reason)
			}
			return
		}
		t.Error("no sidecar was seen")
	})
}
