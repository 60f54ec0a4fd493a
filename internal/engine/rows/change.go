package rows

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/embed/chunk"
	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// Change is the destination's part of a write-back.
type Change struct {
	Write  []Write
	Empty  []string // keys of rows without a text: their vectors are deleted
	Remove []string // keys of removed rows
	Adopt  []string // keys of rows whose vectors move from an older generation to this one
	// Moved is called for a row of Write if a trigger changed its text during the write. Its error fails the
	// write-back.
	Moved func(i int) error
}

// Write is a row's vector, or the vectors of its chunks.
type Write struct {
	Key      string
	TextHash []byte
	Vector   []float32
	Text     string // of the whole row; only with chunks
	Chunks   []Chunk
}

// Chunk is a chunk to write. Its index in Write.Chunks is its number.
type Chunk struct {
	chunk.Chunk
	Hash   [sha256.Size]byte // of the embedded text
	Vector []float32         // nil: not known yet, or not needed because the chunk stays
	Empty  bool              // it has no tokens: no vector and no row
	From   *StoredChunk      // an unused stored chunk of the row with the same hash; nil: none
	Stays  bool              // From has the same number: its vector need not be written
}

// Unknown reports whether the chunk still needs a vector.
func (c *Chunk) Unknown() bool { return c.Vector == nil && c.From == nil && !c.Empty }

// StoredChunk is a chunk stored in the destination.
type StoredChunk struct {
	No, Start, End int
	Generation     int32
	Hash           [sha256.Size]byte
	HasText        bool // its text is stored
	Respell        bool // stored under another spelling of the key
}

func keysOf(writes []Write) []string {
	return lists.Map(writes, func(v Write) string { return v.Key })
}

func hashesOf(writes []Write) [][]byte {
	return lists.Map(writes, func(v Write) []byte { return v.TextHash })
}

func vectorsOf(p *pipeline.Pipeline, writes []Write) any {
	return p.Parameter(lists.Map(writes, func(v Write) []float32 { return v.Vector }))
}

// vectorFormats are the formats of a place and a vector.
var vectorFormats = pgx.QueryResultFormats{pgx.TextFormatCode, pgx.BinaryFormatCode}

// eachVector runs a statement that returns places (1 to most) and vectors, and calls f with place-1.
func eachVector(ctx context.Context, db database.Reader, p *pipeline.Pipeline, s statement, args []any, most int,
	f func(place int, vector []float32) error,
) error {
	return eachLine(ctx, db, vectorFormats, s, args, func(raw [][]byte) error {
		place, err := parsePlace(raw[0], most)
		if err != nil || raw[1] == nil { // a user's own table may contain NULLs
			return err
		}
		vector, err := p.Stored.ParseBinary(raw[1])
		if err != nil {
			return err
		}
		return f(place, vector)
	})
}

// eachLine runs a statement with the given result formats and calls f for each row. raw is valid only during the call.
func eachLine(ctx context.Context, db database.Reader, formats pgx.QueryResultFormats, s statement, args []any,
	f func(raw [][]byte) error,
) error {
	rows, err := db.Query(ctx, s.sql, append([]any{formats}, args...)...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows.RawValues()); err != nil {
			return err
		}
	}
	return rows.Err()
}

// parsePlace returns the index of the key that a result row belongs to: from 0, while statements count from 1.
func parsePlace(text []byte, most int) (int, error) {
	place, err := strconv.Atoi(string(text))
	if err != nil || place < 1 || place > most {
		return 0, fmt.Errorf("place %q of %d", text, most)
	}
	return place - 1, nil
}
