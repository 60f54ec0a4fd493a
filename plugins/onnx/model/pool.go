package model

import "math"

// Ways to combine the tokens' vectors into one.
const (
	poolMean     = "mean"
	poolFirst    = "cls"
	poolLast     = "last"
	poolMax      = "max"
	poolWeighted = "weightedmean"  // of the vectors times 1, 2, 3, ...
	poolRoot     = "mean_sqrt_len" // their sum divided by the root of their number
	poolGraph    = "graph"         // the graph includes the pooling

	poolRerank = "rerank" // no vector: a score of a query and a text
	poolSplade = "splade" // a sparse vector over the vocabulary
)

// pool combines the vectors of a text's tokens into one, in place. rows holds them one after the other, padding at the
// end.
func pool(how string, rows []float32, tokens, dims int) []float32 {
	sum := rows[:dims]
	switch how {
	case poolFirst:
		return sum
	case poolLast:
		return rows[(tokens-1)*dims : tokens*dims]
	}
	for row := 1; row < tokens; row++ {
		for i, x := range rows[row*dims : (row+1)*dims] {
			switch how {
			case poolMax:
				sum[i] = max(sum[i], x)
			case poolWeighted:
				sum[i] += float32(row+1) * x
			default:
				sum[i] += x
			}
		}
	}
	by := float32(tokens)
	switch how {
	case poolMax:
		return sum
	case poolWeighted:
		by = float32(tokens) * float32(tokens+1) / 2
	case poolRoot:
		by = float32(math.Sqrt(float64(tokens)))
	}
	for i := range sum {
		sum[i] /= by
	}
	return sum
}

// layerNorm normalizes a vector to mean 0 and variance 1, like torch.
func layerNorm(v []float32) {
	const epsilon = 1e-5
	mean, variance := 0.0, 0.0
	for _, x := range v {
		mean += float64(x) / float64(len(v))
	}
	for _, x := range v {
		variance += (float64(x) - mean) * (float64(x) - mean) / float64(len(v))
	}
	for i, x := range v {
		v[i] = float32((float64(x) - mean) / math.Sqrt(variance+epsilon))
	}
}

// normalize scales a vector, or the numbers of pairs, to length 1; a zero vector does not change.
func normalize(v []float32, pairs bool) {
	first, step := 0, 1
	if pairs {
		first, step = 1, 2
	}
	square := 0.0
	for i := first; i < len(v); i += step {
		square += float64(v[i]) * float64(v[i])
	}
	if square == 0 {
		return
	}
	length := math.Sqrt(square)
	for i := first; i < len(v); i += step {
		v[i] = float32(float64(v[i]) / length)
	}
}
