package pipeline

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
)

// Widths of the hashes, in bytes.
const (
	ColumnHashSize = 16 // per watched column in a source hash
	VectorHashSize = 8
)

// TextHash is the SHA-256 of a text: with the model's fingerprint, the key for reusing a vector.
func TextHash(text string) [sha256.Size]byte { return sha256.Sum256([]byte(text)) }

// A SourceHash has ColumnHashSize bytes for each watched column, in the pipeline's order: the start of the SHA-256 of
// the column's output text, or zero bytes for NULL. If the columns are not known, it is that of the text, and only the
// worker computes it. The streamer computes it from the WAL, the worker from the row; the bytes are equal because both
// sessions print values identically.
type SourceHash []byte

// AppendColumn adds the hash of a column's output text; nil means NULL.
func (h SourceHash) AppendColumn(text []byte) SourceHash {
	if text == nil {
		return h.AppendSum(nil)
	}
	sum := sha256.Sum256(text)
	return h.AppendSum(sum[:])
}

// AppendSum adds a column whose SHA-256 is known; nil means NULL.
func (h SourceHash) AppendSum(sum []byte) SourceHash {
	var part [ColumnHashSize]byte
	copy(part[:], sum)
	return append(h, part[:]...)
}

// VectorHash is the short hash of a stored vector; nil stands for no vector.
func VectorHash(vector []float32) [VectorHashSize]byte {
	var h [VectorHashSize]byte
	if vector == nil {
		return h
	}
	buf := make([]byte, 0, 4*len(vector))
	for _, f := range vector {
		buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(f))
	}
	sum := sha256.Sum256(buf)
	copy(h[:], sum[:])
	return h
}

// Pattern builds a LIKE pattern over bytea that compares a ledger entry (source_hash || vector_hash) with a row in the
// WAL. A part that the WAL left out because it did not change ("unchanged TOAST") matches any bytes.
type Pattern []byte

// Known appends bytes that must match.
func (p Pattern) Known(b []byte) Pattern {
	for _, c := range b {
		if c == '\\' || c == '%' || c == '_' {
			p = append(p, '\\')
		}
		p = append(p, c)
	}
	return p
}

// Unknown appends n bytes that match anything.
func (p Pattern) Unknown(n int) Pattern {
	for range n {
		p = append(p, '_')
	}
	return p
}
