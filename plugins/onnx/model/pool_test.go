package model

import (
	"slices"
	"testing"
)

func TestPool(t *testing.T) {
	rows := func() []float32 { return []float32{1, 2, 3, 4, 5, 9, 100, 100} } // the last row is padding
	if got := pool(poolMean, rows(), 3, 2); !slices.Equal(got, []float32{3, 5}) {
		t.Errorf("mean %v, want [3 5]", got)
	}
	if got := pool(poolLast, rows(), 3, 2); !slices.Equal(got, []float32{5, 9}) {
		t.Errorf("last %v, want [5 9]", got)
	}
	if got := pool(poolFirst, rows(), 3, 2); !slices.Equal(got, []float32{1, 2}) {
		t.Errorf("first %v, want [1 2]", got)
	}
}

func TestNormalize(t *testing.T) {
	for _, test := range []struct{ v, want []float32 }{
		{[]float32{3, 4}, []float32{0.6, 0.8}},
		{[]float32{0, 0}, []float32{0, 0}},
		{[]float32{3. / (1 << 100), 4. / (1 << 100)}, []float32{0.6, 0.8}}, // its square is 0 in 32 bits
		{[]float32{3 << 100, 4 << 100}, []float32{0.6, 0.8}},               // its square is infinite in 32 bits
	} {
		got := slices.Clone(test.v)
		if normalize(got, false); !slices.Equal(got, test.want) {
			t.Errorf("normalize(%v) = %v, want %v", test.v, got, test.want)
		}
	}
}
