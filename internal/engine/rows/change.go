package rows

import (
	"crypto/sha256"

	"github.com/embedsidecar/embedsidecar/embed/chunk"
)

// Change is what a write-back does to the destination.
type Change struct {
	Write  []Write
	Empty  []string // keys of rows without a text: their vectors are taken away
	Remove []string // keys of rows that are gone
	Adopt  []string // keys of rows whose vectors, of an older generation, become those of this one
	// Moved is called for a row of Write whose text a trigger changed when the vector was written. An error of it is that
	// of the write-back.
	Moved func(i int) error
}

// Write is a row's vector, or with chunks those of its chunks.
type Write struct {
	Key      string
	TextHash []byte
	Vector   []float32
	Text     string // of the whole row; with chunks only
	Chunks   []Chunk
}

// Chunk is a chunk on its way into the destination. Its place in Write.Chunks is its number.
type Chunk struct {
	chunk.Chunk
	Hash   [sha256.Size]byte // of what is embedded
	Vector []float32         // nil: not known yet, or not needed because the chunk stays
	Empty  bool              // it has no token: no vector, no row
	From   *StoredChunk      // a stored chunk of the row with the same hash, which no other chunk has taken; nil: none
	Stays  bool              // From has the number of the chunk: its vector need not be written
}

// Unknown reports whether the chunk's vector is nowhere to be found.
func (c *Chunk) Unknown() bool { return c.Vector == nil && c.From == nil && !c.Empty }

// StoredChunk is what the destination holds of a row.
type StoredChunk struct {
	No, Start, End int
	Generation     int32
	Hash           [sha256.Size]byte
	HasText        bool // its text is stored
	Respell        bool // under another spelling of the key
}
