package models

import (
	"math"
	"math/rand/v2"
	"testing"
)

// The vectors lie along known directions of known lengths, which must be found in descending order of length.
func TestPrincipal_FindsTheDirections(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 27))
	const width, count = 12, 4000
	axes := make([][]float64, width)
	for i := range axes { // Gram and Schmidt
		axes[i] = make([]float64, width)
		for k := range axes[i] {
			axes[i][k] = random.NormFloat64()
		}
		for _, before := range axes[:i] {
			shared := dot(axes[i], before)
			for k := range axes[i] {
				axes[i][k] -= shared * before[k]
			}
		}
		length := math.Sqrt(dot(axes[i], axes[i]))
		for k := range axes[i] {
			axes[i][k] /= length
		}
	}
	vectors := make([][]float32, count)
	for n := range vectors {
		vectors[n] = make([]float32, width)
		for i, axis := range axes {
			along := random.NormFloat64() * math.Pow(2, float64(-i))
			for k, x := range axis {
				vectors[n][k] += float32(3 + along*x)
			}
		}
	}
	kept, err := principal(vectors, 3)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		mean, square := 0.0, 0.0
		for _, v := range kept {
			mean += float64(v[i]) / count
			square += float64(v[i]) * float64(v[i]) / count
		}
		if want := math.Pow(4, float64(-i)); math.Abs(mean) > 1e-4 || math.Abs(square/want-1) > 0.1 {
			t.Errorf("component %d has the mean %g and the variance %g, want 0 and %g", i, mean, square, want)
		}
	}
}

func dot(a, b []float64) (sum float64) {
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

func TestAgree(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(2, 27))
	vectors := make([][]float32, 60)
	for i := range vectors {
		for range 8 {
			vectors[i] = append(vectors[i], float32(random.NormFloat64()))
		}
	}
	if same := Agree(vectors, vectors); math.Abs(same.Rank-1) > 1e-9 || math.Abs(same.Ten-1) > 1e-9 || same.Texts != 60 {
		t.Errorf("the same vectors: %+v", same)
	}
	if other := Agree(vectors[:30], vectors[30:]); math.Abs(other.Rank) > 0.2 || other.Ten > 0.6 {
		t.Errorf("vectors that have nothing to do with each other: %+v", other)
	}
}
