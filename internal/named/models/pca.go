package models

import (
	"cmp"
	"math"
	"slices"
)

// principal moves vectors so that their mean is zero, and keeps of each the dims in which they differ most: their
// principal components, the first one first.
func principal(vectors [][]float32, dims int) [][]float32 {
	if len(vectors) == 0 {
		return nil
	}
	width := len(vectors[0])
	mean := make([]float64, width)
	for _, v := range vectors {
		for i, x := range v {
			mean[i] += float64(x) / float64(len(vectors))
		}
	}
	axes := eigenvectors(covariance(vectors, mean))
	kept := make([][]float32, len(vectors))
	for n, v := range vectors {
		kept[n] = make([]float32, min(dims, width))
		for k := range kept[n] {
			sum := 0.0
			for i, x := range v {
				sum += (float64(x) - mean[i]) * axes[k][i]
			}
			kept[n][k] = float32(sum)
		}
	}
	return kept
}

func covariance(vectors [][]float32, mean []float64) [][]float64 {
	width := len(mean)
	sums := make([][]float64, width)
	for i := range sums {
		sums[i] = make([]float64, width)
	}
	off := make([]float64, width)
	for _, v := range vectors {
		for i, x := range v {
			off[i] = float64(x) - mean[i]
		}
		for i, x := range off {
			for k, y := range off[:i+1] {
				sums[i][k] += x * y
			}
		}
	}
	for i := range sums {
		for k := range i {
			sums[k][i] = sums[i][k]
		}
	}
	return sums
}

// eigenvectors returns those of a symmetric matrix, which it overwrites: rows of length 1, that of the largest
// eigenvalue first. It is Jacobi's method: rotations make one number beside the diagonal zero after the other.
func eigenvectors(a [][]float64) [][]float64 {
	const sweeps, near = 60, 1e-22 // more are never needed; what is left beside the diagonal, by what is in it
	vectors := make([][]float64, len(a))
	for i := range vectors {
		vectors[i] = make([]float64, len(a))
		vectors[i][i] = 1
	}
	for range sweeps {
		beside, all := 0.0, 0.0
		for i, row := range a {
			for k, x := range row {
				all += x * x
				if i != k {
					beside += x * x
				}
			}
		}
		if beside <= near*all {
			break
		}
		for p := range a {
			for q := range p {
				rotate(a, vectors, q, p)
			}
		}
	}
	order := make([]int, len(a))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(a[y][y], a[x][x]) })
	sorted := make([][]float64, len(a))
	for i, k := range order {
		sorted[i] = signed(vectors[k])
	}
	return sorted
}

// signed turns a vector so that its largest number is positive: the same for the same matrix, however it was rotated.
func signed(v []float64) []float64 {
	largest := 0.0
	for _, x := range v {
		if math.Abs(x) > math.Abs(largest) {
			largest = x
		}
	}
	if largest < 0 {
		for i := range v {
			v[i] = -v[i]
		}
	}
	return v
}

// rotate makes a[p][q] zero.
func rotate(a, vectors [][]float64, p, q int) {
	if a[p][q] == 0 {
		return
	}
	theta := (a[q][q] - a[p][p]) / (2 * a[p][q])
	t := 1 / (math.Abs(theta) + math.Sqrt(theta*theta+1))
	if theta < 0 {
		t = -t
	}
	c := 1 / math.Sqrt(t*t+1)
	s := t * c
	tilt(a[p], a[q], c, s)
	for i := range a { // the matrix stays symmetric
		x, y := a[i][p], a[i][q]
		a[i][p], a[i][q] = c*x-s*y, s*x+c*y
	}
	tilt(vectors[p], vectors[q], c, s)
}

func tilt(x, y []float64, c, s float64) {
	for i := range x {
		x[i], y[i] = c*x[i]-s*y[i], s*x[i]+c*y[i]
	}
}
