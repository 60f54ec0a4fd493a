package pipeline

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/embedsidecar/embedsidecar/embed"
)

// Stored is the type in which a destination keeps vectors. Dense vectors always travel to the server as pgvector's
// type vector; the server turns them into what is stored. What is hashed, compared and marked is what is stored, not
// what was given. Vectors of a sparse model are pairs (embed.Pairs), and travel and are kept as they are.
type Stored string

// The types of destinations. The empty Stored means StoredVector.
const (
	StoredVector  Stored = "vector"  // single precision: what the model gave
	StoredHalfvec Stored = "halfvec" // half precision: half the room, and indexable up to 4,000 dimensions
	StoredBit     Stored = "bit"     // a bit for each number: 1 where it is above zero

	StoredSparse Stored = "sparsevec" // only the numbers that are not zero: for sparse models, and for them alone
)

// MaxSparseIndexed is how many numbers that are not zero a sparsevec may have for an HNSW index to take it.
const MaxSparseIndexed = 1000

// StoredFor returns the type that keeps all that a model gives.
func StoredFor(sparse bool) Stored {
	if sparse {
		return StoredSparse
	}
	return StoredVector
}

// Takes reports whether vectors of a sparse model, or of a dense one, can be kept.
func (s Stored) Takes(sparse bool) bool { return (s == StoredSparse) == sparse }

// Name returns the type's name.
func (s Stored) Name() string {
	if s == "" {
		return string(StoredVector)
	}
	return string(s)
}

// Lossy reports whether a stored vector is less than the model gave, so that it cannot stand in for it elsewhere.
func (s Stored) Lossy() bool { return s == StoredHalfvec || s == StoredBit }

// Indexable returns the widest vectors for which pgvector builds an HNSW index.
func (s Stored) Indexable() int {
	switch s {
	case StoredHalfvec:
		return 4000
	case StoredBit:
		return 64000
	case StoredSparse:
		return embed.MaxSparseDims // it is the numbers that are not zero that count: MaxSparseIndexed
	default:
		return 2000
	}
}

// OperatorClass returns the operator class of an HNSW index that fits the distance we search by.
func (s Stored) OperatorClass() string {
	switch s {
	case StoredBit:
		return "bit_hamming_ops"
	case StoredSparse:
		return "sparsevec_ip_ops"
	default:
		return s.Name() + "_cosine_ops"
	}
}

// Metric names the distance we search by: cosine distance, from 0 to 2, the number of bits that differ, or the
// negative inner product, for which sparse models are made.
func (s Stored) Metric() string {
	switch s {
	case StoredBit:
		return "hamming"
	case StoredSparse:
		return "negative_inner_product"
	default:
		return "cosine"
	}
}

// DistanceOperator returns the operator of that distance, ready for SQL.
func (p *Pipeline) DistanceOperator() string {
	var operator string
	switch p.Stored {
	case StoredBit:
		operator = "<~>"
	case StoredSparse:
		operator = "<#>"
	default:
		operator = "<=>"
	}
	return "OPERATOR(" + p.Extension + "." + operator + ")"
}

// VectorType returns the type in which vectors travel, ready for a cast: "public"."vector".
func (p *Pipeline) VectorType() string {
	if p.Stored == StoredSparse {
		return p.StoredType()
	}
	return p.Extension + `."vector"`
}

// StoredType returns the type of the destination without its width, ready for a cast.
func (p *Pipeline) StoredType() string {
	if p.Stored == StoredBit {
		return `"pg_catalog"."bit"` // in quotes it has no width; bit alone would mean bit(1)
	}
	return p.Extension + `."` + p.Stored.Name() + `"`
}

// ToStored returns the SQL that turns an expression of the type that travels into what is stored.
func (p *Pipeline) ToStored(vector string) string {
	switch p.Stored {
	case StoredHalfvec:
		return "CAST(" + vector + " AS " + p.StoredType() + ")"
	case StoredBit:
		return p.Extension + ".binary_quantize(" + vector + ")"
	default:
		return vector
	}
}

// Hash is the short hash of a vector as it is stored; nil stands for no vector.
func (s Stored) Hash(vector []float32) [VectorHashSize]byte {
	if vector == nil || !s.Lossy() {
		return VectorHash(vector)
	}
	return VectorHash(s.Canonical(vector))
}

// Canonical returns what is stored of a vector: its numbers in half precision, or 1 and 0.
func (s Stored) Canonical(vector []float32) []float32 {
	if !s.Lossy() {
		return vector
	}
	kept := make([]float32, len(vector))
	for i, x := range vector {
		switch {
		case s == StoredHalfvec:
			kept[i] = fromHalf(toHalf(x))
		case x > 0:
			kept[i] = 1
		}
	}
	return kept
}

// Given returns a vector of which just this is stored: what Canonical returned, as it may be sent again.
func (s Stored) Given(canonical []float32) []float32 {
	if s != StoredBit || canonical == nil {
		return canonical
	}
	given := make([]float32, len(canonical))
	for i, bit := range canonical {
		given[i] = 2*bit - 1 // a vector of zeros alone would be refused
	}
	return given
}

// ParseText reads a stored vector as Postgres prints it: [1,2.5], 0110 or {3:1,9:2.5}/30522.
func (s Stored) ParseText(text []byte) ([]float32, error) {
	switch s {
	case StoredBit:
	case StoredSparse:
		return parseSparseText(text)
	default:
		return ParseVector(text)
	}
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

// ParseBinary reads a stored vector as Postgres sends it in binary.
func (s Stored) ParseBinary(b []byte) ([]float32, error) {
	if s == StoredSparse {
		return parseSparseBinary(b)
	}
	const head = 4
	if len(b) < head {
		return nil, fmt.Errorf("a stored %s of %d bytes", s.Name(), len(b))
	}
	n := int(binary.BigEndian.Uint16(b)) // then 16 bits unused
	if s == StoredBit {
		n = int(binary.BigEndian.Uint32(b) & math.MaxInt32)
	}
	width := map[Stored]int{StoredBit: (n + 7) / 8, StoredHalfvec: 2 * n}[s]
	if !s.Lossy() {
		width = 4 * n
	}
	if len(b) != head+width {
		return nil, errors.New("a stored " + s.Name() + " of " + strconv.Itoa(len(b)) + " bytes")
	}
	b = b[head:]
	vector := make([]float32, n)
	for i := range vector {
		switch s {
		case StoredBit:
			vector[i] = float32(b[i/8] >> (7 - i%8) & 1)
		case StoredHalfvec:
			vector[i] = fromHalf(binary.BigEndian.Uint16(b[2*i:]))
		default:
			vector[i] = math.Float32frombits(binary.BigEndian.Uint32(b[4*i:]))
		}
	}
	return vector, nil
}

// toHalf rounds to the nearest number of half precision, ties to even, as pgvector does.
func toHalf(x float32) uint16 {
	const (
		manyBits  = 23 // of a float32's fraction
		fewBits   = 10 // of a half's
		bias      = 127 - 15
		mostHalf  = 0x7c00 // infinity
		smallest  = 24     // the smallest half is 2^-24
		shortened = manyBits - fewBits
	)
	bits := math.Float32bits(x)
	sign := uint16(bits >> 16 & 0x8000)
	exponent, fraction := int(bits>>manyBits&0xff), bits&(1<<manyBits-1)
	switch {
	case exponent == 0xff && fraction != 0:
		return sign | mostHalf | 1<<9 // NaN, which no vector of ours holds
	case exponent-bias >= 0x1f:
		return sign | mostHalf
	case exponent-bias > 0:
		half := uint32(exponent-bias)<<fewBits | fraction>>shortened
		//nolint:gosec // a carry into the exponent is meant to be
		return sign | uint16(half+roundUp(half, fraction, shortened))
	}
	// A subnormal half counts units of 2^-24.
	shift := shortened + 1 - (exponent - bias)
	if exponent == 0 || shift > smallest+1 {
		return sign
	}
	fraction |= 1 << manyBits
	half := fraction >> shift
	return sign | uint16(half+roundUp(half, fraction, shift)) //nolint:gosec // at most 0x400
}

// roundUp returns 1 if what a shift cuts off is above one half of the last place, or just that and the last place is
// odd.
func roundUp(kept, fraction uint32, shift int) uint32 {
	rest, tie := fraction&(1<<shift-1), uint32(1)<<(shift-1)
	if rest > tie || rest == tie && kept&1 == 1 {
		return 1
	}
	return 0
}

// fromHalf is exact.
func fromHalf(h uint16) float32 {
	const fewBits, bias, infinite = 10, 15, 0x1f
	exponent, fraction := int(h>>fewBits&infinite), float64(h&(1<<fewBits-1))
	var x float64
	switch exponent {
	case 0:
		x = math.Ldexp(fraction, 1-bias-fewBits)
	case infinite:
		x = math.Inf(1)
		if fraction != 0 {
			x = math.NaN()
		}
	default:
		x = math.Ldexp(fraction+1<<fewBits, exponent-bias-fewBits)
	}
	if h&0x8000 != 0 {
		x = -x
	}
	return float32(x)
}
