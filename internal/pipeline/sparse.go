package pipeline

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/lists"
)

// StoredSparse stores only the nonzero numbers, as pairs (embed.Pairs).
const StoredSparse Stored = "sparsevec"

// MaxSparseIndexed is the maximum of nonzero numbers of a sparsevec in an HNSW index.
const MaxSparseIndexed = 1000

var sparseVector = vectorType{
	name: StoredSparse, pgvector: "0.7", sparse: true,
	bits: 64, widest: embed.MaxSparseDims, indexable: embed.MaxSparseDims, // but see MaxSparseIndexed
	column: `{pgvector}."sparsevec"({dims})`, travels: `{pgvector}."sparsevec"`, kept: "{given}",
	// The negative inner product, for which sparse models are made.
	distance: "{stored} OPERATOR({pgvector}.<#>) {kept}", metric: "negative_inner_product", class: "sparsevec_ip_ops",
	send: sendSparse, parseText: parseSparseText, parseBinary: parseSparseBinary,
}

func sendSparse(vectors [][]float32, dims int) any {
	return lists.Map(vectors, func(v []float32) Sparse { return Sparse{Dims: dims, Pairs: v} })
}

// Sparse is a vector of a sparse model, to be sent as a sparsevec.
type Sparse struct {
	Dims  int
	Pairs []float32 // embed.Pairs
}

// AppendBinary adds the vector in the binary format of sparsevec. It returns an error for invalid pairs.
func (s Sparse) AppendBinary(b []byte) ([]byte, error) {
	if err := embed.CheckPairs(s.Pairs, s.Dims); err != nil {
		return nil, fmt.Errorf("write sparsevec: %w", err)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(s.Dims))         //nolint:gosec // at most embed.MaxSparseDims
	b = binary.BigEndian.AppendUint32(b, uint32(len(s.Pairs)/2)) //nolint:gosec // at most embed.MaxSparseNumbers
	b = binary.BigEndian.AppendUint32(b, 0)                      // unused
	for i := 0; i < len(s.Pairs); i += 2 {
		b = binary.BigEndian.AppendUint32(b, uint32(s.Pairs[i]))
	}
	for i := 1; i < len(s.Pairs); i += 2 {
		b = binary.BigEndian.AppendUint32(b, math.Float32bits(s.Pairs[i]))
	}
	return b, nil
}

// AppendText adds the vector in pgvector's text format, with indexes from 1: {1:0.5,30522:2}/30522.
func (s Sparse) AppendText(b []byte) []byte {
	b = append(b, '{')
	for i := 0; i+1 < len(s.Pairs); i += 2 {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(s.Pairs[i])+1, 10)
		b = append(b, ':')
		b = strconv.AppendFloat(b, float64(s.Pairs[i+1]), 'g', -1, 32)
	}
	b = append(b, '}', '/')
	return strconv.AppendInt(b, int64(s.Dims), 10)
}

// parseSparseText returns the pairs of a sparsevec in text format.
func parseSparseText(text []byte) ([]float32, error) {
	body, _, ok := bytes.Cut(text, []byte("}/"))
	if !ok || len(body) == 0 || body[0] != '{' {
		return nil, errors.New("parse sparsevec: no braces around it")
	}
	pairs := []float32{}
	for body = body[1:]; len(body) > 0; {
		var pair []byte
		pair, body, _ = bytes.Cut(body, []byte{','})
		place, number, _ := bytes.Cut(pair, []byte{':'})
		at, err := strconv.ParseUint(string(place), 10, 32)
		x, numberErr := strconv.ParseFloat(string(number), 32)
		if err != nil || numberErr != nil || at == 0 {
			return nil, errors.New("parse sparsevec: an element is not a place and a number")
		}
		pairs = append(pairs, float32(at-1), float32(x))
	}
	return pairs, nil
}

// parseSparseBinary returns the pairs of a sparsevec in binary format.
func parseSparseBinary(b []byte) (pairs []float32, ok bool) {
	const head = 12 // width, count of numbers, unused
	if len(b) < head || int64(len(b)-head) != 8*int64(binary.BigEndian.Uint32(b[4:])) {
		return nil, false
	}
	n := (len(b) - head) / 8
	places, numbers := b[head:head+4*n], b[head+4*n:]
	pairs = make([]float32, 0, 2*n)
	for i := range n {
		pairs = append(pairs, float32(binary.BigEndian.Uint32(places[4*i:])),
			math.Float32frombits(binary.BigEndian.Uint32(numbers[4*i:])))
	}
	return pairs, true
}
