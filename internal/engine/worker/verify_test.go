package worker

import (
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// Sparse vectors are searched by their inner product and dense ones by their cosine: verify judges by what a search
// goes by.
func TestSame_KnowsTheLengthOfSparseVectorsOnly(t *testing.T) {
	t.Parallel()
	stored := []float32{3, 1.5, 9, 0.5}
	for _, tt := range []struct {
		name          string
		given         []float32
		sparse, dense bool
	}{
		{"the same", []float32{3, 1.5, 9, 0.5}, true, true},
		{"rounded", []float32{3, 1.500001, 9, 0.5}, true, true},
		{"a tenth as long, at the same places", []float32{3, 0.15, 9, 0.05}, false, false},
		{"a tenth as long, every number", []float32{0.3, 0.15, 0.9, 0.05}, false, true},
		{"a little longer, at the same places", []float32{3, 1.501, 9, 0.5003}, false, true},
		{"other places", []float32{4, 1.5, 9, 0.5}, false, false},
	} {
		for kind, want := range map[pipeline.Stored]bool{pipeline.StoredSparse: tt.sparse, pipeline.StoredVector: tt.dense} {
			w := &Worker{o: Options{Pipeline: &pipeline.Pipeline{Form: pipeline.Form{Stored: kind}}}}
			if got := w.same(stored, tt.given); got != want {
				t.Errorf("%s, stored as %s: %t, want %t", tt.name, kind, got, want)
			}
		}
	}
}
