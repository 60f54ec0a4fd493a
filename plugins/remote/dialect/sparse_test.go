package dialect

import (
	"math"
	"slices"
	"testing"
)

func TestSparseAnswers(t *testing.T) {
	t.Parallel()
	a, err := teiSparse.Decode([]byte(
		`[ [{"index":30521,"value":0.5},{"index": 7, "value": 2}], [], [{"index":1,"value":0},{"index":2,"value":null}] ]`),
		3)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(a.Vectors[0], Vector{7, 2, 30521, 0.5}) || len(a.Vectors[1]) != 0 || len(a.Vectors[2]) != 2 ||
		!math.IsNaN(float64(a.Vectors[2][1])) {
		t.Errorf("%v", a.Vectors)
	}
	for _, body := range []string{
		`[[{"value":1}]]`, `[[{"index":16777216,"value":1}]]`, `[[{"index":-1,"value":1}]]`, `[[{"index":1.5,"value":1}]]`,
		`[[{"index":1,"value":1e300}]]`,
		`[[0.5,0.25]]`, `[]`, `[[],[]]`, `{"error":"x"}`, `null`, `[[{"index":1,"value":1}`,
	} {
		if a, err := teiSparse.Decode([]byte(body), 1); err == nil {
			t.Errorf("%s is read as %v", body, a.Vectors)
		}
	}
}
