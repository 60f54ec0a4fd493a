package embed

import "math"

// Cosine returns the cosine of two vectors, 0 if their widths differ.
func Cosine(a, b []float32) float64 {
	if len(a) != len(b) {
		return 0
	}
	var dot, aa, bb float64
	for i := range a {
		x, y := float64(a[i]), float64(b[i])
		dot, aa, bb = dot+x*y, aa+x*x, bb+y*y
	}
	return dot / math.Sqrt(aa*bb)
}
