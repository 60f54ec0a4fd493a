// Package vector defines the fake embedder's vectors, so that a test can compute the expected content of the database.
package vector

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode"
)

// DefaultDims is the default width of the fake embedder's vectors.
const DefaultDims = 384

// Of returns the fake embedder's vector of a text: dims numbers, length 1 up to rounding, the same on every machine and
// for documents and queries. Vectors of different texts are unrelated. The definition can be repeated bit for bit in
// any language:
//
//   - the state of splitmix64 is the first 8 bytes of SHA-256(text), little-endian;
//   - each step adds 0x9E3779B97F4A7C15 to the state and mixes it (below); the top 24 bits of the result, u, give the odd
//     number 2u + 1 - 2^24, which is never zero;
//   - the numbers are divided by the square root of the sum of their squares, all in float64 and in order, then rounded to
//     float32.
//
// A text for which Empty is true has no vector, though Of returns one.
func Of(text string, dims int) []float32 {
	v := make([]float32, dims)
	Into(v, text)
	return v
}

// Into is Of into a slice of the given width.
func Into(v []float32, text string) {
	sum := sha256.Sum256([]byte(text))
	fill(v, binary.LittleEndian.Uint64(sum[:8]))
}

// fill writes the vector that belongs to a state of splitmix64.
func fill(v []float32, state uint64) {
	var squares float64
	for i := range v {
		state += 0x9E3779B97F4A7C15
		z := state
		z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
		z = (z ^ z>>27) * 0x94D049BB133111EB
		z ^= z >> 31
		x := float64(2*int64(z>>40) + 1 - 1<<24)
		v[i] = float32(x) // exact: an odd number of 24 bits and a sign
		squares += float64(x * x)
	}
	length := math.Sqrt(squares)
	for i, x := range v {
		v[i] = float32(float64(x) / length)
	}
}

// Empty reports whether a text has no token for the fake embedder: it is only Unicode white space.
func Empty(text string) bool { return strings.TrimSpace(text) == "" }

// Hash identifies a text in the list of calls: the first 8 bytes of its SHA-256 as 16 hexadecimal digits.
func Hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// Score is the fake reranker's score: the first 2 bytes of the SHA-256 of query, line feed and text, as a fraction of
// 65,536. The resulting order is unrelated to vectors.
func Score(query, text string) float32 {
	sum := sha256.Sum256([]byte(query + "\n" + text))
	return float32(binary.LittleEndian.Uint16(sum[:])) / (1 << 16)
}

// SparseDims is the default width of the fake embedder's sparse vectors.
const SparseDims = 30522

// sparsePlaces is the maximum of non-zero numbers in a sparse vector: the limit of pgvector's HNSW index.
const sparsePlaces = 1000

// Sparse returns the fake embedder's sparse vector of a text: the sorted indices of the non-zero numbers, and the
// numbers. Texts that share more words are more similar. The definition can be repeated bit for bit in any language: a
// word is a run of anything but Unicode white space, in lower case. Its index is the first 8 bytes of its SHA-256,
// little-endian, modulo dims. It adds 1 + b/256 to the number there, where b is the ninth byte. Words that would need a
// 1,001st index are skipped.
func Sparse(text string, dims int) (indices []uint32, values []float32) {
	numbers := map[uint32]float32{}
	for word := range strings.FieldsSeq(text) {
		sum := sha256.Sum256([]byte(strings.ToLower(word)))
		place := uint32(binary.LittleEndian.Uint64(sum[:8]) % uint64(dims))
		if _, ok := numbers[place]; ok || len(numbers) < sparsePlaces {
			numbers[place] += 1 + float32(sum[8])/256
		}
	}
	indices = slices.Sorted(maps.Keys(numbers))
	values = make([]float32, len(indices))
	for i, place := range indices {
		values[i] = numbers[place]
	}
	return indices, values
}

// TokenEnds returns the byte offset after each token of a text. The fake embedder's tokens are runs of anything but
// white space.
func TokenEnds(text string) []int {
	var ends []int
	word := false
	for i, r := range text {
		if space := unicode.IsSpace(r); space && word {
			ends = append(ends, i)
			word = false
		} else if !space {
			word = true
		}
	}
	if word {
		ends = append(ends, len(text))
	}
	return ends
}
