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

// TextHash is the SHA-256 of a text: with the model's fingerprint, the key under which a vector may be used again.
func TextHash(text string) [sha256.Size]byte { return sha256.Sum256([]byte(text)) }

// A SourceHash has ColumnHashSize bytes for each watched column (where these are not known: for the text, and only
// the worker makes it), in the pipeline's order: the start of the SHA-256 of the column's output text, or zero bytes
// for NULL. The streamer makes it of the WAL, the worker of the row it reads; both see the same bytes because both
// sessions print values alike.
type SourceHash []byte

// AppendColumn adds the hash of a column's output text; nil means NULL.
func (h SourceHash) AppendColumn(text []byte) SourceHash {
	if text == nil {
		return h.AppendSum(nil)
	}
	sum := sha256.Sum256(text)
	return h.AppendSum(sum[:])
}

// AppendSum adds a column whose SHA-256 is already known; nil means NULL.
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

// Pattern builds a LIKE pattern over bytea that reports whether a ledger entry (source_hash || vector_hash) is what
// the WAL says of a row. A part the WAL left out because it did not change ("unchanged TOAST") matches anything of
// its width.
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
