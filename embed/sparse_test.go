package embed

import (
	"math"
	"slices"
	"testing"
)

func TestPairs_AreExactAndComeBack(t *testing.T) {
	t.Parallel()
	indices, values := []uint32{0, 1, 30521, MaxSparseDims - 2, MaxSparseDims - 1}, []float32{
		0.5, -2, 1e-30, 3,
		math.MaxFloat32,
	}
	pairs := Pairs(indices, values)
	if err := CheckPairs(pairs, MaxSparseDims); err != nil {
		t.Error(err)
	}
	if i, v := SplitPairs(pairs); !slices.Equal(i, indices) || !slices.Equal(v, values) {
		t.Errorf("%v and %v became %v and %v", indices, values, i, v)
	}
}

func TestCheckPairs_FindsWhatIsNoVector(t *testing.T) {
	t.Parallel()
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for name, pairs := range map[string][]float32{
		"nothing": {}, "odd": {1, 2, 3}, "descending": {4, 1, 2, 1}, "twice": {4, 1, 4, 1}, "negative": {-1, 1},
		"half":    {0.5, 1},
		"too far": {5, 1}, "zero": {1, 0}, "nan": {1, nan}, "inf": {1, inf}, "nan place": {nan, 1}, "inf place": {inf, 1},
		"too many": make([]float32, 2*MaxSparseNumbers+2),
	} {
		if CheckPairs(pairs, 5) == nil {
			t.Errorf("%s: %v passed", name, pairs[:min(len(pairs), 4)])
		}
	}
}

func TestLikeness_IsTheCosineOfSparseVectorsThatAreAsLong(t *testing.T) {
	t.Parallel()
	d := Description{Dims: 6, Sparse: true}
	for _, c := range []struct{ a, b []float32 }{
		{[]float32{0, 1, 3, 2}, []float32{0, 1, 3, 2}},
		{[]float32{0, 1, 3, 2, 4, 4}, []float32{1, 1, 3, -2, 5, 4}},
		{[]float32{0, 1}, []float32{5, 1}},
		{[]float32{1, 2, 2, 3, 4, 6}, []float32{4, 7}},
	} {
		dense := func(pairs []float32) []float32 {
			v := make([]float32, d.Dims)
			for i := 0; i < len(pairs); i += 2 {
				v[int(pairs[i])] = pairs[i+1]
			}
			return v
		}
		if got, want := d.Likeness(c.a, c.b), Cosine(dense(c.a), dense(c.b)); math.Abs(got-want) > 1e-12 {
			t.Errorf("%v and %v: %v, want %v", c.a, c.b, got, want)
		}
	}
}

func TestLikeness_FallsWithTheLengthOfSparseVectors(t *testing.T) {
	t.Parallel()
	d := Description{Dims: 16, Sparse: true}
	whole, tenth := []float32{3, 1.5, 9, 0.5}, []float32{3, 0.15, 9, 0.05}
	for _, c := range []struct {
		a, b []float32
		want float64
	}{
		{whole, tenth, 0.1}, {tenth, whole, 0.1}, {whole, nil, 0}, {nil, whole, 0}, {whole, []float32{3, -1.5, 9, -0.5}, -1},
	} {
		if got := d.Likeness(c.a, c.b); math.Abs(got-c.want) > 1e-6 {
			t.Errorf("%v and %v: %v, want %v", c.a, c.b, got, c.want)
		}
	}
	// Dense vectors are searched by cosine.
	if got := (Description{Dims: 2}).Likeness([]float32{3, 4}, []float32{0.3, 0.4}); math.Abs(got-1) > 1e-6 {
		t.Errorf("dense: %v", got)
	}
}
