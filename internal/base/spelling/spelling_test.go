package spelling_test

import (
	"slices"
	"strings"
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

// A name with dollar signs must be escaped in a file: "did you mean" alone would repeat the user's spelling.
func TestDidYouMean_SaysHowDollarSignsAreWritten(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int{"public.we$$ird": 2, "public.we${ird}": 2, "public.we$ird": 1} {
		hints := spelling.DidYouMean("public.weird", []string{name})
		if len(hints) != want || want == 2 && !strings.Contains(hints[1], "as $$") {
			t.Errorf("%s: %q", name, hints)
		}
	}
}
