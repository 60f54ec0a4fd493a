package dialect

import (
	"cmp"
	"errors"
	"math"
	"slices"

	"github.com/embedsidecar/embedsidecar/embed"
)

// teiSparse is POST /embed_sparse of Text Embeddings Inference, for models that it runs with the pooling splade.
var teiSparse = Dialect{
	Name: "tei-sparse", Path: "/embed_sparse", InfoPath: "/info",
	Limits: Limits{Texts: 32, Tokens: 100_000, Bytes: 1 << 20},
	Cuts:   []Truncate{CutEnd, CutStart}, Sparse: true,
	body: func(r Request) any { return r.cutTEI(request{"inputs": r.Texts}) },
	decode: func(body []byte) (Answer, error) {
		var lists [][]sparseNumber
		if err := read(body, &lists); err != nil {
			return Answer{}, err
		}
		var a Answer
		for _, list := range lists {
			v, err := pairsOf(list)
			if err != nil {
				return Answer{}, err
			}
			a.Vectors = append(a.Vectors, v)
		}
		return a, nil
	},
}

type sparseNumber struct {
	Index *uint32  `json:"index"`
	Value *float32 `json:"value"`
}

// pairsOf sorts numbers by their places and leaves out zeros.
func pairsOf(list []sparseNumber) (Vector, error) {
	for i := range list {
		switch {
		case list[i].Index == nil || *list[i].Index >= embed.MaxSparseDims:
			return nil, errors.New("a number of a sparse vector has no index, or one beyond any vocabulary")
		case list[i].Value == nil:
			nan := float32(math.NaN())
			list[i].Value = &nan
		}
	}
	slices.SortFunc(list, func(a, b sparseNumber) int { return cmp.Compare(*a.Index, *b.Index) })
	pairs := make(Vector, 0, 2*len(list))
	for _, n := range list {
		if *n.Value != 0 {
			pairs = append(pairs, float32(*n.Index), *n.Value)
		}
	}
	return pairs, nil
}
