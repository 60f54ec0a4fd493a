package host

import (
	"encoding/binary"
	"fmt"

	"github.com/embedsidecar/embedsidecar/embed"
	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
)

// readSparse checks the vectors of a sparse model and returns them as pairs. A text whose outcome says that it has
// none must have none. A vector of too many numbers is left for checkSparse.
func readSparse(resp *pluginpb.EmbedResponse, dims int, outcomes []*pluginpb.Outcome) ([][]float32, error) {
	sparse := resp.GetSparse()
	counts, raw := sparse.GetCounts(), sparse.GetIndices()
	var sum uint64
	for _, n := range counts {
		sum += uint64(n)
	}
	switch {
	case len(resp.GetVectors()) != 0:
		return nil, badAnswer("bad_answer",
			"the plugin answered with %d bytes of dense vectors for a model that it had described as sparse",
			len(resp.GetVectors()))
	case len(counts) != len(outcomes):
		return nil, badAnswer("wrong_count", "the plugin answered %d texts with %d sparse vectors", len(outcomes),
			len(counts))
	case uint64(len(raw)) != 4*sum || uint64(len(sparse.GetValues())) != 4*sum:
		return nil, badAnswer("wrong_count",
			"the plugin answered with %d bytes of indices and %d of values, want 4 for each of %d numbers", len(raw),
			len(sparse.GetValues()), sum)
	}
	values, pairs := decode(sparse.GetValues()), make([]float32, 0, 2*sum)
	vectors := make([][]float32, len(counts))
	for i, n := range counts {
		if o := outcomes[i]; n > 0 && (o.GetEmpty() || o.GetError() != nil) {
			return nil, badAnswer("bad_answer",
				"the plugin gave text %d a vector of %d numbers and an outcome that says it has none", i, n)
		}
		from, next := len(pairs), uint32(0)
		for range n {
			place, x := binary.LittleEndian.Uint32(raw), values[0]
			raw, values = raw[4:], values[1:]
			switch {
			case place >= uint32(dims):
				return nil, badAnswer("bad_answer", "the plugin gave a number for place %d, the model has %d from 0", place, dims)
			case place < next:
				return nil, badAnswer("bad_answer",
					"the plugin gave a number for place %d after one for place %d: places must rise", place, next-1)
			case x == 0:
				return nil, badAnswer("bad_answer", "the plugin gave the number zero for place %d: zeros must be left out", place)
			}
			pairs, next = append(pairs, float32(place), x), place+1
		}
		vectors[i] = pairs[from:len(pairs):len(pairs)]
	}
	return vectors, nil
}

// checkSparse returns why a vector of a sparse model cannot be used, or nil.
func checkSparse(pairs []float32) error {
	if n := len(pairs) / 2; n > embed.MaxSparseNumbers {
		return &embed.TextError{
			Class: embed.Data, Code: "too_many_numbers",
			Message: fmt.Sprintf("%d numbers of the model's sparse vector are not zero; pgvector stores %d", n,
				embed.MaxSparseNumbers),
		}
	}
	return checkVector(pairs)
}
