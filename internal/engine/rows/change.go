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

// keysOf, hashesOf and vectorsOf are the parameters of a write.
func keysOf(writes []Write) []string {
	return lists.Map(writes, func(v Write) string { return v.Key })
}

func hashesOf(writes []Write) [][]byte {
	return lists.Map(writes, func(v Write) []byte { return v.TextHash })
}

func vectorsOf(p *pipeline.Pipeline, writes []Write) any {
	return p.Parameter(lists.Map(writes, func(v Write) []float32 { return v.Vector }))
}

// vectorFormats are how places and vectors come.
var vectorFormats = pgx.QueryResultFormats{pgx.TextFormatCode, pgx.BinaryFormatCode}

// eachVector runs a statement for places, from 1 to most, and vectors, and calls f for each, with its place from 0 on.
func eachVector(ctx context.Context, db database.Reader, p *pipeline.Pipeline, s statement, args []any, most int,
	f func(place int, vector []float32) error,
) error {
	return eachLine(ctx, db, vectorFormats, s, args, func(raw [][]byte) error {
		place, err := parsePlace(raw[0], most)
		if err != nil || raw[1] == nil { // somebody's own table may allow that, and somebody may have done it
			return err
		}
		vector, err := p.Stored.ParseBinary(raw[1])
		if err != nil {
			return err
		}
		return f(place, vector)
	})
}

// eachLine runs a statement whose columns come in some formats, and calls f for each line as it has come: it lives only
// until the next one.
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

// parsePlace returns which key of so many a result line is about: from 0 on, where statements count from 1.
func parsePlace(text []byte, most int) (int, error) {
	place, err := strconv.Atoi(string(text))
	if err != nil || place < 1 || place > most {
		return 0, fmt.Errorf("place %q of %d", text, most)
	}
	return place - 1, nil
}
