package embed

import (
	"errors"
	"fmt"
	"math"
)

// A sparse model's vector has a number for each word of a vocabulary, and nearly all are zero. It is stored as pairs of
// index (from 0, sorted) and non-zero number: {index, number, index, number, ...}. So code that only stores, compares
// or passes on vectors can treat it as any []float32. Description.Sparse tells which form a vector has. Indices are
// exact: single precision holds every whole number up to MaxSparseDims.
const (
	MaxSparseDims    = 1 << 24
	MaxSparseNumbers = 16000 // of one vector; pgvector's limit
)

// Pairs returns the pairs of indices and values.
func Pairs(indices []uint32, values []float32) []float32 {
	pairs := make([]float32, 0, 2*len(values))
	for i, x := range values {
		pairs = append(pairs, float32(indices[i]), x)
	}
	return pairs
}

// SplitPairs is the inverse of Pairs.
func SplitPairs(pairs []float32) (indices []uint32, values []float32) {
	indices, values = make([]uint32, 0, len(pairs)/2), make([]float32, 0, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		indices, values = append(indices, uint32(pairs[i])), append(values, pairs[i+1])
	}
	return indices, values
}

// CheckPairs returns why pairs are not a valid vector of this width, or nil.
func CheckPairs(pairs []float32, dims int) error {
	if len(pairs) == 0 || len(pairs)%2 != 0 || len(pairs) > 2*MaxSparseNumbers {
		return fmt.Errorf("%d numbers are no pairs, want 1 to %d pairs", len(pairs), MaxSparseNumbers)
	}
	last := -1.0
	for i := 0; i < len(pairs); i += 2 {
		place, x := float64(pairs[i]), pairs[i+1]
		switch {
		case !(place > last) || place >= float64(dims) || place != math.Trunc(place):
			return fmt.Errorf("place %v after %v, of %d", place, last, dims)
		case x == 0 || x-x != 0:
			return errors.New("a number is zero or not finite")
		}
		last = place
	}
	return nil
}

// Likeness is the similarity of two vectors of the model in a search; 1: equal. It is their cosine, or SparseLikeness.
func (d Description) Likeness(a, b []float32) float64 {
	if d.Sparse {
		return SparseLikeness(a, b)
	}
	return Cosine(a, b)
}

// Measure names what Likeness returns.
type Measure string

// The measures.
const (
	ByCosine       Measure = "cosine"
	ByInnerProduct Measure = "inner product by the square of the longer one's length"
)

// Measure names what Likeness returns for vectors of the model.
func (d Description) Measure() Measure {
	if d.Sparse {
		return ByInnerProduct
	}
	return ByCosine
}

// SparseLikeness returns the inner product of two vectors of pairs, divided by the squared length of the longer one.
// Sparse vectors are searched by inner product, so their length matters: for equal lengths this is the cosine,
// otherwise it is less.
func SparseLikeness(a, b []float32) float64 {
	var dot, aa, bb float64
	EachPlace(a, b, func(x, y float64) { dot, aa, bb = dot+x*y, aa+x*x, bb+y*y })
	return dot / max(aa, bb)
}

// EachPlace calls f with the numbers of two vectors of pairs, for each index at which at least one is not zero.
func EachPlace(a, b []float32, f func(x, y float64)) {
	for len(a) > 1 || len(b) > 1 {
		switch {
		case len(b) < 2 || len(a) > 1 && a[0] < b[0]:
			f(float64(a[1]), 0)
			a = a[2:]
		case len(a) < 2 || b[0] < a[0]:
			f(0, float64(b[1]))
			b = b[2:]
		default:
			f(float64(a[1]), float64(b[1]))
			a, b = a[2:], b[2:]
		}
	}
}
