package models

import (
	"errors"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
)

// principal moves vectors so that their mean is zero, and keeps of each the dims in which they differ most: their
// principal components, the first one first.
func principal(vectors [][]float32, dims int) ([][]float32, error) {
	if len(vectors) == 0 {
		return nil, nil
	}
	width := len(vectors[0])
	all := mat.NewDense(len(vectors), width, nil)
	for n, v := range vectors {
		for i, x := range v {
			all.Set(n, i, float64(x))
		}
	}
	for i := range width {
		column := mat.Col(nil, i, all)
		mean := stat.Mean(column, nil)
		for n, x := range column {
			all.Set(n, i, x-mean)
		}
	}
	var covariance mat.SymDense
	covariance.SymOuterK(1, all.T())
	var found mat.EigenSym
	if !found.Factorize(&covariance, true) {
		return nil, errors.New("the principal components of the vectors cannot be found")
	}
	var axes, moved mat.Dense
	found.VectorsTo(&axes) // that of the smallest eigenvalue first
	moved.Mul(all, &axes)
	kept := make([][]float32, len(vectors))
	for n := range vectors {
		kept[n] = make([]float32, min(dims, width))
		for k := range kept[n] {
			kept[n][k] = float32(moved.At(n, width-1-k))
		}
	}
	return kept, nil
}
