package observe

import (
	"slices"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/health"
	"github.com/embedsidecar/embedsidecar/internal/report"
)

// Rows that failed for one cause are told of once, with the keys of the others behind.
func TestRemarks_TellACauseOnce(t *testing.T) {
	t.Parallel()
	row := func(key, message string) report.FailedRow {
		return report.FailedRow{Pipeline: "docs", Key: key, State: "failed", Class: "data", Code: "refused", Message: message}
	}
	p := Pipeline{Pipeline: report.Pipeline{Name: "docs", State: health.UpToDate}}
	p.FailedRows = []report.FailedRow{row("1", "no"), row("2", "never"), row("3", "no"), row("4", "no")}
	d := Database{Pipelines: []Pipeline{p}}
	want := []string{
		"docs: row 1: data refused: no (0s ago); likewise 3, 4",
		"docs: row 2: data refused: never (0s ago)",
	}
	if got := d.Remarks(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
