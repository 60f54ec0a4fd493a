package health_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
)

var update = flag.Bool("update", false, "rewrite the table of docs/states.md")

// Every documented state can be reached, and every state is documented.
func TestTable_IsInTheOrderOfTheLook(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, code := range health.Codes() {
		if seen[code] {
			t.Errorf("%s stands twice", code)
		}
		seen[code] = true
	}
	for _, e := range health.Table() {
		if e.Means == "" || e.Do == "" {
			t.Errorf("%s is not explained", e.Code)
		}
	}
}

func TestStates_ArePapered(t *testing.T) {
	t.Parallel()
	const path, mark = "../../../docs/states.md", "<!-- written by: go test ./internal/pipeline/health -update -->\n"
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, table, found := strings.Cut(string(content), mark)
	if !found {
		t.Fatalf("%s lacks %q", path, mark)
	}
	want := "\n| state | means | do |\n| --- | --- | --- |\n"
	for _, e := range health.Table() {
		want += fmt.Sprintf("| `%s` | %s | %s |\n", e.Code.Word(), e.Means, e.Do)
	}
	if *update {
		if err := os.WriteFile(path, []byte(before+mark+want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, table); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}
