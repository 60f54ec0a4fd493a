package vector

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Test oracles depend on the definition: these numbers never change.
func TestSparse_KeepsItsNumbers(t *testing.T) {
	t.Parallel()
	indices, values := Sparse("Hello  world\thello", SparseDims)
	if diff := cmp.Diff([]uint32{22, 18520}, indices); diff != "" {
		t.Errorf("places (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]float32{2.296875, 1.7109375}, values); diff != "" {
		t.Errorf("numbers (-want +got):\n%s", diff)
	}
}

func TestSparse_IsBounded(t *testing.T) {
	t.Parallel()
	var words strings.Builder
	for i := range 5000 {
		words.WriteString(strings.Repeat("x", i%97) + strings.Repeat("y", i/97) + " ")
	}
	if indices, _ := Sparse(words.String(), 1<<24); len(indices) != sparsePlaces {
		t.Errorf("%d places", len(indices))
	}
	if indices, values := Sparse(words.String(), 1); len(indices) != 1 || values[0] < 5000 {
		t.Errorf("%v at %v", values, indices)
	}
}
