package app

import (
	"maps"
	"slices"
	"testing"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/named/embedders"
)

// Each change of a model in a running program with several databases left a cache behind.
func TestServices_ForgetWhatNobodyUses(t *testing.T) {
	t.Parallel()
	s := newServices(&config.Config{})
	plain, measured, gone, goneToo := &embedders.Hosted{}, &embedders.Hosted{}, &embedders.Hosted{}, &embedders.Hosted{}
	list := []embed.Embedder{plain, measured.Measure(nil), gone, goneToo.Measure(nil)}
	for _, e := range list {
		if first := s.of(e); s.of(e) != first {
			t.Fatal("two services of one embedder")
		}
	}
	s.keep([]*embedders.Hosted{plain, measured})
	left := slices.Collect(maps.Keys(s.list))
	if len(left) != 2 || !slices.Contains(left, list[0]) || !slices.Contains(left, list[1]) {
		t.Errorf("%d services are left, want those of the two embedders in use", len(left))
	}
}
