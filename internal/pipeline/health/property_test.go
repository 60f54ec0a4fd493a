package health_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
)

// Whatever is known of a pipeline, its state is one of those that docs/states.md names, with a reason; one that is
// switched off, or outside of its hours, never counts as at work.
func TestProperty_TheStateIsAlwaysOneOfTheNamed(t *testing.T) {
	t.Parallel()
	some := func(t *rapid.T, name string, of ...string) string { return rapid.SampledFrom(of).Draw(t, name) }
	yes := func(t *rapid.T, name string) bool { return rapid.Bool().Draw(t, name) }
	rapid.Check(t, func(t *rapid.T) {
		f := health.Facts{
			Name: "docs", ID: 7, Table: "docs", Detail: "because",
			Status:     some(t, "status", "", "active", "missing", "misconfigured", "unpublished", "odd"),
			ReplacedBy: some(t, "replaced", "", "other"), Dropped: rapid.IntRange(0, 5).Draw(t, "dropped") == 0, Paused: yes(t, "paused"), Closed: yes(t, "closed"),
			Slot: health.Slot{
				Name: "s", Exists: yes(t, "exists"), Lost: yes(t, "lost"), Active: yes(t, "active"),
				Making: yes(t, "making"), Published: yes(t, "published"),
				OtherServer: yes(t, "copied"), Elsewhere: some(t, "elsewhere", "", "db"),
			},
			Unacknowledged: yes(t, "unacknowledged"), Open: rapid.Int64Range(0, 2).Draw(t, "open"), Failed: rapid.Int64Range(0, 2).Draw(t, "failed"),
			Scan:      health.Scan{Phase: some(t, "scan", "", "waiting", "rows", "orphans", "done"), First: yes(t, "first")},
			Cancelled: rapid.Int64Range(0, 2).Draw(t, "cancelled"),
		}
		f.Retrying = rapid.Int64Range(0, f.Open).Draw(t, "retrying")
		for range rapid.IntRange(0, 2).Draw(t, "sidecars") {
			stream := some(t, "stream", "starting", "streaming", "standby", "making", "stuck", "none", "odd")
			s := health.Sidecar{Name: "a", Stream: health.Stream(stream)}
			if yes(t, "problem") {
				code := health.Code(some(t, "code", append(health.Codes(), "odd")...))
				s.Problems = map[int32]health.Problem{7: {Code: code, Detail: "because"}}
			}
			f.Sidecars = append(f.Sidecars, s)
		}
		s := health.Of(f)
		if !slices.Contains(health.Codes(), string(s.Code)) || s.Reason == "" {
			t.Fatalf("%+v: %+v", f, s)
		}
		if s.Code.Works() && (f.Paused || f.Closed) {
			t.Fatalf("at work, though paused %t, closed %t: %+v", f.Paused, f.Closed, s)
		}
	})
}
