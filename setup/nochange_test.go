package setup_test

import (
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/testenv"
)

// Two sidecars with different configurations: whoever changes a pipeline says what it was, and with NoChange it stays.
func TestInit_SaysWhatItChangesBack(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	o := b.options(b.SlotName(), side())
	if warnings := strings.Join(b.init(o).Warnings, "; "); strings.Contains(warnings, "set up otherwise") {
		t.Errorf("at first: %s", warnings)
	}
	columns := func() string {
		return testenv.Value[string](b.Database, "SELECT array_to_string(source_columns, ' ') FROM embedsidecar.pipeline")
	}
	before := columns()
	o.Specs[0].Columns = []string{"body"}
	o.NoChange = true
	r := b.init(o)
	if warnings := strings.Join(r.Warnings, "; "); !strings.Contains(warnings, "left as it is set up (--no-change): columns (it was: "+strings.ReplaceAll(before, " ", ", ")) {
		t.Errorf("--no-change: %s", warnings)
	}
	if got := columns(); got != before || len(r.Steps) != 0 {
		t.Errorf("--no-change changed %s to %s: %v", before, got, whats(r))
	}
	o.NoChange = false
	if warnings := strings.Join(b.init(o).Warnings, "; "); !strings.Contains(warnings, "is changed to what is configured here: columns (it was: "+strings.ReplaceAll(before, " ", ", ")) {
		t.Errorf("a change: %s", warnings)
	}
	if got := columns(); got != "body" {
		t.Errorf("columns %s", got)
	}
}
