package vector

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"strings"
)

// SparseDims is the width of the fake embedder's sparse vectors unless it is told otherwise.
const SparseDims = 30522

// sparsePlaces is how many numbers of a sparse vector are not zero, at most: what an HNSW index of pgvector takes.
const sparsePlaces = 1000

// Sparse returns the vector that the fake embedder gives for a text when it is sparse: the places of the numbers that
// are not zero, rising, and the numbers. Texts are the more alike the more words they share. It is defined so that
// any language can repeat it bit for bit: each word, which is a run of what is not Unicode white space, in lower
// case, counts at the place that the first 8 bytes of its SHA-256 give, little-endian, modulo dims; it adds 1 + b/256
// to the number there, where b is the ninth byte. Words that would add a 1,001st place are left out.
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
