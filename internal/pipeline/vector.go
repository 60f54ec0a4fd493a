package pipeline

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"strconv"

	"github.com/pgvector/pgvector-go"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
)

// StoredVector is single precision: the model's vectors unchanged.
const StoredVector Stored = "vector"

var singleVector = vectorType{
	name: StoredVector, pgvector: "0.1",
	bits: 32, widest: widestDense, indexable: 2000,
	column: `{pgvector}."vector"({dims})`, travels: denseTravels, kept: "{given}",
	distance: cosineDistance, metric: "cosine", class: "vector_cosine_ops",
	send: sendDense, parseText: ParseVector,
	parseBinary: func(b []byte) ([]float32, bool) {
		return parseNumbers(b, 4, func(b []byte) float32 { return math.Float32frombits(binary.BigEndian.Uint32(b)) })
	},
}

// Properties of all dense types: vectors are sent as pgvector's type vector, and the server converts them to the stored
// type.
const (
	widestDense    = 16000 // the maximum of the type vector
	denseTravels   = `{pgvector}."vector"`
	cosineDistance = "{stored} OPERATOR({pgvector}.<=>) {kept}" // from 0 to 2
)

func sendDense(vectors [][]float32, _ int) any {
	return lists.Map(vectors, pgvector.NewVector)
}

// parseNumbers reads numbers of the given size after their count and 16 unused bits.
func parseNumbers(b []byte, size int, number func(b []byte) float32) (vector []float32, ok bool) {
	const head = 4
	if len(b) < head || len(b) != head+size*int(binary.BigEndian.Uint16(b)) {
		return nil, false
	}
	vector = make([]float32, 0, len(b)/size)
	for b = b[head:]; len(b) > 0; b = b[size:] {
		vector = append(vector, number(b))
	}
	return vector, true
}

// ParseVector reads a vector in pgvector's text format: [1,2.5,-3e-05].
func ParseVector(text []byte) ([]float32, error) {
	if len(text) < 2 || text[0] != '[' || text[len(text)-1] != ']' {
		return nil, errors.New("parse vector: no brackets around it")
	}
	text = text[1 : len(text)-1]
	vector := make([]float32, 0, bytes.Count(text, []byte{','})+1)
	for len(text) > 0 {
		number := text
		if i := bytes.IndexByte(text, ','); i >= 0 {
			number, text = text[:i], text[i+1:]
		} else {
			text = nil
		}
		f, err := strconv.ParseFloat(string(number), 32)
		if err != nil {
			return nil, errors.New("parse vector: an element is not a number")
		}
		vector = append(vector, float32(f))
	}
	return vector, nil
}

// VectorText writes a vector in pgvector's text format; that of a sparse model is pairs.
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
