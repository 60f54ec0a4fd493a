package pipeline

import "strconv"

// VectorText writes a vector as pgvector reads it; that of a sparse model is of pairs.
func VectorText(sparse bool, dims int, v []float32) string {
	if sparse {
		return string(Sparse{Dims: dims, Pairs: v}.AppendText(nil))
	}
	b := []byte{'['}
	for i, x := range v {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendFloat(b, float64(x), 'g', -1, 32)
	}
	return string(append(b, ']'))
}
