package estimate

import (
	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// ledgerBytes is what an entry of the ledger takes, with those of its indexes.
const ledgerBytes = 270

// A server stores rows in pages: of a vector of 384 numbers four fit into one, and of what does not fit the rest of the
// page stays empty. From a length on, values of a row are moved into a table beside it, in pieces.
const (
	pageBytes  = 8192 - 24 - 8
	movedFrom  = 2032 // bytes of a row
	pieceBytes = 1996
)

// share is how many bytes of the disk one of many items takes, each with a pointer in its page.
func share(item float64) float64 {
	const page, pointer = 8192, 8
	return page / max(1, float64(int(pageBytes/(item+pointer))))
}

// diskBytes is what a vector takes with its row and its entries of indexes, beside the ledger. text is what is stored
// of the text with it.
func diskBytes(spec pipeline.Spec, vector, text float64) float64 {
	const (
		row, chunk   = 88, 16 // columns of an embedding table beside the vector and the text
		key, hash    = 32, 75 // entries of indexes
		compressed   = 0.7    // of a text
		pieceHead    = 36     // of a piece that was moved
		pieceEntry   = 24     // of its index
		element      = 72     // of an HNSW index, beside the vector
		neighbours   = 12     // bytes for each connection that such an element may have
		connections  = 16     // that it has, unless the configuration says otherwise
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

// vectorBytes is the size of one vector as it is stored.
func vectorBytes(stored pipeline.Stored, about embed.Description) float64 {
	const header, words = 8, 128 // words that a sparse one usually has
	if about.Sparse {
		return float64(header + stored.Bytes(words))
	}
	return float64(header + stored.Bytes(about.Dims))
}
