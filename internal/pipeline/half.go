package pipeline

import (
	"encoding/binary"

	"github.com/x448/float16"
)

// StoredHalfvec is half precision: half the size, and indexable up to 4,000 dimensions.
const StoredHalfvec Stored = "halfvec"

var halfVector = vectorType{
	name: StoredHalfvec, pgvector: "0.7",
	bits: 16, widest: widestDense, indexable: 4000,
	column: `{pgvector}."halfvec"({dims})`, travels: denseTravels, kept: `CAST({given} AS {pgvector}."halfvec")`,
	distance: cosineDistance, metric: "cosine", class: "halfvec_cosine_ops",
	canonical: func(x float32) float32 { return float16.Fromfloat32(x).Float32() },
	send:      sendDense, parseText: ParseVector,
	parseBinary: func(b []byte) ([]float32, bool) {
		return parseNumbers(b, 2, func(b []byte) float32 { return float16.Frombits(binary.BigEndian.Uint16(b)).Float32() })
	},
}
