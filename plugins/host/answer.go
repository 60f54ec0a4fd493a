package host

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"time"
	"unsafe"

	"google.golang.org/grpc"

	"github.com/embedsidecar/embedsidecar/embed"
	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
)

// readAnswer checks an answer and fills in the results of the batch's texts. An answer that breaks the contract is an
// *embed.Error, and the results are then not valid. An unusable vector is an error of its own text.
func readAnswer(resp *pluginpb.EmbedResponse, d embed.Description, b *batch, results []embed.Result) error {
	count, dims := len(b.texts), d.Dims
	switch raw, want := resp.GetVectors(), count*dims*4; {
	case resp.GetDims() != uint32(dims):
		return badAnswer("wrong_dims", "the plugin returned vectors of %d dims, its description says %d", resp.GetDims(),
			dims)
	case !d.Sparse && len(raw) != want:
		return badAnswer("wrong_count", "the plugin answered %d texts with %d bytes of vectors, want %d", count, len(raw),
			want)
	case !d.Sparse && resp.GetSparse() != nil:
		return badAnswer("bad_answer",
			"the plugin returned sparse vectors for a model that it does not describe as sparse")
	case len(resp.GetTokens()) != 0 && len(resp.GetTokens()) != count:
		return badAnswer("bad_answer", "the plugin answered %d texts with %d token counts", count, len(resp.GetTokens()))
	case sum(resp.GetTokens()) > mostTokens(b):
		return badAnswer("bad_answer", "the plugin counts for %d bytes of text %d tokens", b.bytes, sum(resp.GetTokens()))
	case len(resp.GetOutcomes()) > count:
		return badAnswer("bad_answer", "the plugin answered %d texts with %d outcomes", count, len(resp.GetOutcomes()))
	}
	outcomes := make([]*pluginpb.Outcome, count)
	for _, o := range resp.GetOutcomes() {
		i := o.GetIndex()
		switch {
		case uint64(i) >= uint64(count) || outcomes[i] != nil:
			return badAnswer("bad_answer", "the plugin returned an invalid or duplicate outcome for text %d of %d", i, count)
		case o.GetError() != nil && (o.GetEmpty() || o.GetTruncated()) || o.GetEmpty() && o.GetTruncated():
			return badAnswer("bad_answer", "the plugin gave text %d outcomes that exclude each other", i)
		}
		outcomes[i] = o
	}
	var sparse [][]float32
	if d.Sparse {
		var err error
		if sparse, err = readSparse(resp, dims, outcomes); err != nil {
			return err
		}
	}
	floats := decode(resp.GetVectors())
	for i := range b.texts {
		r := &results[b.at[i]]
		*r = embed.Result{}
		if tokens := resp.GetTokens(); len(tokens) > 0 {
			r.Tokens = int(min(tokens[i], math.MaxInt32))
		}
		o := outcomes[i]
		switch {
		case o.GetError() != nil:
			r.Err = textError(o.GetError(), b.texts[i])
			continue
		case o.GetEmpty():
			r.Empty = true
			continue
		}
		r.Truncated = o.GetTruncated()
		if d.Sparse {
			if r.Err = checkSparse(sparse[i]); r.Err == nil {
				r.Vector = sparse[i]
			}
			continue
		}
		v := floats[i*dims : (i+1)*dims : (i+1)*dims]
		if err := checkVector(v); err != nil {
			r.Err = err
			continue
		}
		r.Vector = v
	}
	return nil
}

func sum(counts []uint32) (all uint64) {
	for _, n := range counts {
		all += uint64(n)
	}
	return all
}

// mostTokens is the largest believable token count of a batch, including the special tokens that a model adds to each
// text. The reported tokens are charged to budgets.
func mostTokens(b *batch) uint64 {
	const around = 4096
	return uint64(max(maxTokensPerByte*b.bytes, 0) + around*len(b.texts))
}

// checkVector returns why a vector cannot be used, or nil.
func checkVector(v []float32) error {
	// x-x is zero for a finite x and NaN otherwise. The sum finds non-finite numbers and the OR finds an all-zero
	// vector, without a branch.
	var odd float32
	var bits uint32
	for _, x := range v {
		odd += x - x
		bits |= math.Float32bits(x) << 1 // -0 is zero as well
	}
	if odd != 0 { // NaN
		return &embed.TextError{
			Class: embed.Data, Code: "not_finite",
			Message: "the model's vector contains a number that is not finite",
		}
	}
	if bits == 0 {
		return &embed.TextError{Class: embed.Data, Code: "zero_vector", Message: "the model's vector is all zero"}
	}
	return nil
}

// littleEndian reports whether this machine stores numbers as the wire does.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// decode copies packed little-endian floats into a new slice. The length is a multiple of 4.
func decode(raw []byte) []float32 {
	out := make([]float32, len(raw)/4)
	if len(out) == 0 {
		return out
	}
	if littleEndian {
		//nolint:gosec // out has len(raw)/4 numbers of 4 bytes
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&out[0])), len(raw)), raw)
		return out
	}
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[i*4:]))
	}
	return out
}

// textError converts a plugin's error of one text.
func textError(e *pluginpb.Error, text string) error {
	out := &embed.TextError{Class: embed.Data, Code: "invalid", Message: withoutTexts(e.GetMessage(), []string{text})}
	switch e.GetClass() {
	case pluginpb.ErrorClass_ERROR_CLASS_RETRY_LATER:
		out.Class, out.Code = embed.Transient, "retry_later"
		out.RetryAfter = min(time.Duration(e.GetDelayMs())*time.Millisecond, time.Hour)
	case pluginpb.ErrorClass_ERROR_CLASS_TOO_LONG:
		out.Code = "too_long"
	case pluginpb.ErrorClass_ERROR_CLASS_REFUSED:
		out.Code = "refused"
	case pluginpb.ErrorClass_ERROR_CLASS_INVALID, pluginpb.ErrorClass_ERROR_CLASS_UNSPECIFIED:
	}
	return out
}

// readSparse checks the vectors of a sparse model and returns them as (index, value) pairs. A text that is empty or has
// an error must have no vector. checkSparse checks the number of pairs.
func readSparse(resp *pluginpb.EmbedResponse, dims int, outcomes []*pluginpb.Outcome) ([][]float32, error) {
	sparse := resp.GetSparse()
	counts, raw := sparse.GetCounts(), sparse.GetIndices()
	numbers := sum(counts)
	switch {
	case len(resp.GetVectors()) != 0:
		return nil, badAnswer("bad_answer",
			"the plugin returned %d bytes of dense vectors for a model that it describes as sparse",
			len(resp.GetVectors()))
	case len(counts) != len(outcomes):
		return nil, badAnswer("wrong_count", "the plugin answered %d texts with %d sparse vectors", len(outcomes),
			len(counts))
	case uint64(len(raw)) != 4*numbers || uint64(len(sparse.GetValues())) != 4*numbers:
		return nil, badAnswer("wrong_count",
			"the plugin answered with %d bytes of indices and %d of values, want 4 for each of %d numbers", len(raw),
			len(sparse.GetValues()), numbers)
	}
	values, pairs := decode(sparse.GetValues()), make([]float32, 0, 2*numbers)
	vectors := make([][]float32, len(counts))
	for i, n := range counts {
		if o := outcomes[i]; n > 0 && (o.GetEmpty() || o.GetError() != nil) {
			return nil, badAnswer("bad_answer",
				"the plugin returned for text %d both a vector of %d numbers and an outcome without a vector", i, n)
		}
		from, next := len(pairs), uint32(0)
		for range n {
			place, x := binary.LittleEndian.Uint32(raw), values[0]
			raw, values = raw[4:], values[1:]
			switch {
			case place >= uint32(dims):
				return nil, badAnswer("bad_answer", "the plugin returned the sparse index %d, the model has %d dims", place, dims)
			case place < next:
				return nil, badAnswer("bad_answer",
					"the plugin returned the sparse index %d after %d: indices must increase", place, next-1)
			case x == 0:
				return nil, badAnswer("bad_answer", "the plugin returned a zero at the sparse index %d: omit zeros", place)
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
			Message: fmt.Sprintf("the model's sparse vector has %d non-zero numbers; pgvector stores at most %d", n,
				embed.MaxSparseNumbers),
		}
	}
	return checkVector(pairs)
}

var _ embed.Reranker = (*Host)(nil)

// Rerank implements embed.Reranker. It splits calls as Embed does and returns the same errors. A model that makes
// vectors returns the Configuration error "no_reranker", which wraps embed.ErrNoReranker. A text that cannot be sent
// fails the whole call.
func (h *Host) Rerank(ctx context.Context, query string, texts []string) ([]float32, error) {
	p, err := h.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { h.release(p) }()
	if !p.inst.desc.Reranks {
		return nil, configuration("no_reranker", fmt.Errorf("model %q: %w", p.inst.desc.Model, embed.ErrNoReranker))
	}
	limits := limitsOf(p.inst.desc)
	if limits.bytes -= len(query); limits.bytes < 0 {
		return nil, &embed.Error{Class: embed.Data, Code: "too_long", Err: fmt.Errorf(
			"a query of %d bytes is larger than the plugin accepts in one call", len(query))}
	}
	scores := make([]float32, 0, len(texts))
	err = limits.inBatches(texts, invalid, func(b *batch) error {
		part, err := h.rerank(ctx, &p, query, b)
		scores = append(scores, part...)
		return err
	})
	return scores, err
}

// rerank sends one batch and checks its answer.
func (h *Host) rerank(ctx context.Context, p *permit, query string, b *batch) (scores []float32, err error) {
	inst := p.inst
	var resp *pluginpb.RerankResponse
	err = h.exchange(ctx, p, exchange{
		batch: b, query: query, works: true,
		send: func(ctx context.Context) (err error) {
			resp, err = inst.rpc.Rerank(ctx, &pluginpb.RerankRequest{Model: inst.desc.Model, Query: query, Texts: b.texts},
				grpc.MaxCallRecvMsgSize(answerLimit(len(b.texts), inst.desc)))
			return err
		},
		read: func() (err error) { scores, err = readScores(resp, len(b.texts)); return err },
	})
	return scores, err
}

// readScores checks the answer to Rerank.
func readScores(resp *pluginpb.RerankResponse, count int) ([]float32, error) {
	if raw := resp.GetScores(); len(raw) != 4*count {
		return nil, badAnswer("wrong_count", "the plugin answered %d texts with %d bytes of scores, want %d", count, len(raw),
			4*count)
	}
	scores := decode(resp.GetScores())
	for i, score := range scores {
		if math.IsNaN(float64(score)) || math.IsInf(float64(score), 0) {
			return nil, badAnswer("not_finite", "the score of text %d is not finite", i)
		}
	}
	return scores, nil
}
