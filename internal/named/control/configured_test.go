package control_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/named/control"
)

// The result for thousands of pipelines and mistakes must also fit into the audit log.
func TestConfigured_Short(t *testing.T) {
	t.Parallel()
	long := control.Configured{File: "f", State: control.Taken, Reason: strings.Repeat("why\n\x01", 100_000)}
	for i := range 1000 {
		long.Steps = append(long.Steps, strings.Repeat("é", 500))
		long.Removed = append(long.Removed, "pipeline "+strconv.Itoa(i))
		long.Costs = append(long.Costs, control.Cost{Line: "cost " + strconv.Itoa(i)})
	}
	short := long.Short(3000)
	text, err := json.Marshal(short)
	if err != nil || len(text) > 3000 {
		t.Errorf("%d bytes: %v", len(text), err)
	}
	list := strings.Join(short.Removed, ", ")
	if !strings.HasPrefix(list, "pipeline 0, ") || !strings.Contains(list, ", and ") || !strings.HasSuffix(list, " more") {
		t.Error(list)
	}
	if n := len(short.Costs); !strings.HasSuffix(short.Costs[n-1].Line, " more") {
		t.Errorf("%d costs end with %q", n, short.Costs[n-1].Line)
	}
	if len(long.Steps[0]) != 1000 || len(long.Removed) != 1000 || long.Costs[999].Line != "cost 999" {
		t.Error("what was cut has changed itself")
	}
	same := control.Configured{Reason: "why", Steps: []string{"one", "two"}}
	if got := same.Short(3000); got.Reason != "why" || len(got.Steps) != 2 {
		t.Errorf("%+v", got)
	}
}
