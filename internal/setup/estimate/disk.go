package estimate

import (
	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// ledgerBytes is the size of a ledger entry with its index entries.
const ledgerBytes = 270

// A server stores rows in pages: four rows with a vector of 384 dimensions fit into one, and the rest of the page stays
// empty. Long values are moved to a TOAST table, in pieces.
const (
	pageBytes  = 8192 - 24 - 8
	movedFrom  = 2032 // bytes of a row from which values are moved
	pieceBytes = 1996
)

// share is the disk space per item, including unused space and the pointer in its page.
func share(item float64) float64 {
	const page, pointer = 8192, 8
	return page / max(1, float64(int(pageBytes/(item+pointer))))
}

// diskBytes is the disk space of a vector with its row and index entries, without the ledger. text is the number of
// bytes of text stored with it.
func diskBytes(spec pipeline.Spec, vector, text float64) float64 {
	const (
		row, chunk   = 88, 16 // columns of an embedding table without vector and text
		key, hash    = 32, 75 // index entries
		compressed   = 0.7    // compression ratio of text
		pieceHead    = 36     // per piece in the TOAST table
		pieceEntry   = 24     // per piece in its index
		element      = 72     // of an HNSW index, without the vector
		neighbours   = 12     // bytes per connection of an element
		connections  = 16     // the default number of connections
		indexedTuple = 8      // of other indexes
	)
	var bytes float64
	switch {
	case spec.InSource():
		bytes = vector
	default:
		own := float64(row)
		bytes = key
		if spec.Chunking.On() {
			own, bytes = own+chunk, bytes+hash
		}
		if own+text+vector > movedFrom {
			text *= compressed
		}
		if own+text+vector > movedFrom {
			moved := max(text, vector)
			own -= moved
			for ; moved > 0; moved -= pieceBytes {
				bytes += share(pieceHead+min(moved, pieceBytes)) + pieceEntry
			}
		}
		bytes += share(own + text + vector)
	}
	switch spec.Index {
	case "":
	case pipeline.IndexHNSW:
		m := connections
		if spec.IndexBuild.M > 0 {
			m = spec.IndexBuild.M
		}
		bytes += share(element + vector + float64(neighbours*m))
	default:
		bytes += share(indexedTuple + vector)
	}
	return bytes
}

// vectorBytes is the stored size of one vector.
func vectorBytes(stored pipeline.Stored, about embed.Description) float64 {
	const header, words = 8, 128 // words of a typical sparse vector
	if about.Sparse {
		return float64(header + stored.Bytes(words))
	}
	return float64(header + stored.Bytes(about.Dims))
}
