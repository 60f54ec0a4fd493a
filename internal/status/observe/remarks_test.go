package observe

import (
	"slices"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// Failed rows are reported by cause, with an example and their number.
func TestRemarks_TellACauseOnce(t *testing.T) {
	t.Parallel()
	soon := 3.0
	p := Pipeline{Pipeline: report.Pipeline{Name: "docs", State: health.UpToDate}}
	p.Errors = []report.ErrorGroup{
		{Pipeline: "docs", State: "failed", Class: "data", Code: "refused", Rows: 12, Key: "1", Message: "no"},
		{Pipeline: "docs", State: "failed", Class: "data", Code: "too_long", Rows: 1, Key: "2", Message: "never"},
		{
			Pipeline: "docs", State: "retrying", Class: "transient", Code: "locked", Rows: 100_000, AtLeast: true, Key: "9",
			Message: "later", NextTrySeconds: &soon,
		},
	}
	d := Database{Pipelines: []Pipeline{p}}
	want := []string{
		"docs: 12 rows given up, data refused, such as row 1: no",
		"docs: 1 row given up, data too_long, row 2: never",
		"docs: 100000 rows or more failed, to be tried again, transient locked, such as row 9: later (next try in 3 s)",
	}
	if got := d.Remarks(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
