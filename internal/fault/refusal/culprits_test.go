package refusal_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
)

// Of joined errors, exactly those about a pipeline are found under its name.
func TestCulprits(t *testing.T) {
	t.Parallel()
	missing := &refusal.MissingError{ConfigError: refusal.ConfigError{Pipeline: "a", Problem: "no table"}}
	denied := &refusal.PermissionError{What: "make it", Role: "r", Pipelines: []string{"b", "c"}}
	step := &refusal.PipelineError{Pipelines: []string{"d"}, Err: errors.New("no")}
	err := errors.Join(missing, fmt.Errorf("look: %w", errors.Join(denied, step)), errors.New("the server is away"),
		&refusal.ConfigError{Problem: "of all"}, &refusal.ConfigError{Pipeline: "a", Problem: "twice"})
	found := refusal.Culprits(err)
	if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, []string{"a", "b", "c", "d"}) {
		t.Fatalf("%q", got)
	}
	if !errors.Is(found["a"], missing) || !errors.Is(found["b"], denied) || !errors.Is(found["d"], step) {
		t.Errorf("%v", found)
	}
	if got := refusal.Culprits(errors.New("of no one")); len(got) != 0 {
		t.Errorf("%v", got)
	}
	if got := refusal.Culprits(nil); len(got) != 0 {
		t.Errorf("%v", got)
	}
}
