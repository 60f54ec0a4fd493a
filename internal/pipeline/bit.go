package pipeline

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/jackc/pgx/v5/pgtype"
)

// StoredBit has one bit per dimension: 1 if the number is positive.
const StoredBit Stored = "bit"

// bitVector is a built-in type of the server. Its distances and binary_quantize are pgvector's.
var bitVector = vectorType{
	name: StoredBit, pgvector: "0.7", oid: pgtype.BitOID,
	bits: 1, widest: widestDense, indexable: 64000,
	column: "bit({dims})", travels: denseTravels, kept: "{pgvector}.binary_quantize({given})",
	distance: "{stored} OPERATOR({pgvector}.<~>) {kept}", metric: "hamming", class: "bit_hamming_ops",
	canonical: func(x float32) float32 {
		if x > 0 {
			return 1
		}
		return 0
	},
	given: func(bit float32) float32 { return 2*bit - 1 }, // zero vectors would be refused
	send:  sendDense, parseText: parseBits, parseBinary: parseBinaryBits,
}

func parseBits(text []byte) ([]float32, error) {
	bits := make([]float32, len(text))
	for i, c := range text {
		switch c {
		case '0':
		case '1':
			bits[i] = 1
		default:
			return nil, errors.New("parse bits: a character that is neither 0 nor 1")
		}
	}
	return bits, nil
}

// parseBinaryBits reads bits, eight in a byte, after their count.
func parseBinaryBits(b []byte) (vector []float32, ok bool) {
	const head = 4
	if len(b) < head {
		return nil, false
	}
	n := int(binary.BigEndian.Uint32(b) & math.MaxInt32)
	if len(b) != head+(n+7)/8 {
		return nil, false
	}
	vector = make([]float32, n)
	for i := range vector {
		vector[i] = float32(b[head+i/8] >> (7 - i%8) & 1)
	}
	return vector, true
}
