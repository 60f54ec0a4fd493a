package pipeline

import (
	"encoding/binary"
	"math"
)

// StoredHalfvec is half precision: half the room, and indexable up to 4,000 dimensions.
const StoredHalfvec Stored = "halfvec"

var halfVector = vectorType{
	name: StoredHalfvec, pgvector: "0.7",
	bits: 16, widest: widestDense, indexable: 4000,
	column: `{pgvector}."halfvec"({dims})`, travels: denseTravels, kept: `CAST({given} AS {pgvector}."halfvec")`,
	distance: cosineDistance, metric: "cosine", class: "halfvec_cosine_ops",
	canonical: func(x float32) float32 { return fromHalf(toHalf(x)) },
	send:      sendDense, parseText: ParseVector,
	parseBinary: func(b []byte) ([]float32, bool) {
		return parseNumbers(b, 2, func(b []byte) float32 { return fromHalf(binary.BigEndian.Uint16(b)) })
	},
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
