package spelling_test

import (
	"slices"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/base/spelling"
)

func TestNearest(t *testing.T) {
	words := []string{"status", "verify", "version", "uninstall", "run", "init", "Weird", "title", "titles"}
	for in, want := range map[string][]string{
		"statsu": {"status"}, "verfiy": {"verify"}, "RUN": {"run"}, "unin": {"uninstall"}, "weird": {"Weird"},
		"ver": {"verify", "version"}, "titel": {"title"}, "xyz": nil, "rn": {"run"}, "": nil, "b": nil, "-x": nil,
	} {
		if got := spelling.Nearest(in, words); !slices.Equal(got, want) {
			t.Errorf("Nearest(%q) = %q, want %q", in, got, want)
		}
	}
}
