package pipeline

import (
	"strings"
	"testing"
)

func TestOtherIndexes_OptionsAreCheckedAndWritten(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ kind, options, mistake, with string }{
		{IndexDiskANN, "", "", ""},
		{
			IndexDiskANN, "num_neighbors = 50, max_alpha=1.2,storage_layout = plain", "",
			" WITH (num_neighbors = 50, max_alpha = 1.2, storage_layout = plain)",
		},
		{IndexDiskANN, "num_neighbours = 50", `"num_neighbours" is none of max_alpha, `, ""},
		{IndexDiskANN, "num_neighbors = 50); DROP TABLE docs; --", "expected a whole number", ""},
		{IndexDiskANN, "max_alpha = NaN", "expected a number above 0", ""},
		{IndexDiskANN, "storage_layout = flat", "expected one of memory_optimized, plain", ""},
		{IndexDiskANN, "num_neighbors = 50, num_neighbors = 60", "said twice", ""},
		{IndexDiskANN, "num_neighbors", "expected a whole number", ""},
		{IndexDiskANN, ",", `"" is none of`, ""},
		{
			IndexVChordRQ, "lists = 1000, residual_quantization = true, build_threads = 4", "",
			" WITH (options = $$\nresidual_quantization = true\n[build.internal]\nlists = [1000]\nbuild_threads = 4\n$$)",
		},
		{IndexVChordRQ, "residual_quantization = false", "", " WITH (options = $$\nresidual_quantization = false\n$$)"},
		{IndexVChordRQ, "lists = $$", "expected a whole number", ""},
		{IndexHNSW, "m = 3", "options are of diskann and vchordrq", ""},
	} {
		spec := Spec{Index: c.kind, IndexBuild: IndexBuild{Options: c.options}}
		got := spec.IndexMistake()
		if c.mistake == "" && got != "" || !strings.Contains(got, c.mistake) {
			t.Errorf("%s: %q: %q, want %q", c.kind, c.options, got, c.mistake)
		}
		if c.mistake != "" {
			continue
		}
		if with := OtherIndexOf(c.kind).With(c.options); with != c.with {
			t.Errorf("%s: %q: %q, want %q", c.kind, c.options, with, c.with)
		}
	}
}
