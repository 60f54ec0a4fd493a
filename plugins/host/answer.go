package host

import (
	"encoding/binary"
	"math"
	"time"
	"unsafe"

	"github.com/embedsidecar/embedsidecar/embed"
	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
)

// readAnswer checks an answer and fills in the results of the batch's texts. An answer that breaks the contract as a
// whole is an *embed.Error and fills in nothing that counts; vectors that cannot be used are errors of their texts.
func readAnswer(resp *pluginpb.EmbedResponse, d embed.Description, b *batch, results []embed.Result) error {
	count, dims := len(b.texts), d.Dims
	switch raw, want := resp.GetVectors(), count*dims*4; {
	case resp.GetDims() != uint32(dims):
		return badAnswer("wrong_dims", "the plugin answered with vectors of %d dims, it had described %d", resp.GetDims(),
			dims)
	case !d.Sparse && len(raw) != want:
		return badAnswer("wrong_count", "the plugin answered %d texts with %d bytes of vectors, want %d", count, len(raw),
			want)
	case !d.Sparse && resp.GetSparse() != nil:
		return badAnswer("bad_answer",
			"the plugin answered with sparse vectors for a model that it had not described as sparse")
	case len(resp.GetTokens()) != 0 && len(resp.GetTokens()) != count:
		return badAnswer("bad_answer", "the plugin answered %d texts with %d numbers of tokens", count, len(resp.GetTokens()))
	case sum(resp.GetTokens()) > mostTokens(b):
		return badAnswer("bad_answer", "the plugin says that %d bytes of text were %d tokens", b.bytes, sum(resp.GetTokens()))
	case len(resp.GetOutcomes()) > count:
		return badAnswer("bad_answer", "the plugin answered %d texts with %d outcomes", count, len(resp.GetOutcomes()))
	}
	outcomes := make([]*pluginpb.Outcome, count)
	for _, o := range resp.GetOutcomes() {
		i := o.GetIndex()
		switch {
		case uint64(i) >= uint64(count) || outcomes[i] != nil:
			return badAnswer("bad_answer", "the plugin gave an outcome for text %d of %d, or two", i, count)
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

func sum(tokens []uint32) (all uint64) {
	for _, n := range tokens {
		all += uint64(n)
	}
	return all
}

// mostTokens is what texts can take, with the tokens that a model puts around each: budgets are charged with it.
func mostTokens(b *batch) uint64 {
	const around = 4096
	return uint64(max(maxTokensPerByte*b.bytes, 0) + around*len(b.texts))
}

// checkVector returns why a vector cannot be used, or nil.
func checkVector(v []float32) error {
	// x-x is zero for every finite x and NaN for all others, so one sum and one OR answer both questions without a branch.
	var odd float32
	var bits uint32
	for _, x := range v {
		odd += x - x
		bits |= math.Float32bits(x) << 1 // -0 is zero as well
	}
	if odd != 0 { // NaN
		return &embed.TextError{
			Class: embed.Data, Code: "not_finite",
			Message: "the model's vector holds a number that is not finite",
		}
	}
	if bits == 0 {
		return &embed.TextError{Class: embed.Data, Code: "zero_vector", Message: "the model's vector is all zero"}
	}
	return nil
}

// littleEndian reports whether numbers in memory look as they do on the wire.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// decode turns packed little-endian numbers into one slice of their own. The length is a multiple of 4.
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

// textError turns the failure of one text into the host's words.
func textError(e *pluginpb.Error, text string) error {
	out := &embed.TextError{Class: embed.Data, Message: withoutTexts(e.GetMessage(), []string{text})}
	switch e.GetClass() {
	case pluginpb.ErrorClass_ERROR_CLASS_RETRY_LATER:
		out.Class, out.Code = embed.Transient, "retry_later"
		out.RetryAfter = min(time.Duration(e.GetDelayMs())*time.Millisecond, time.Hour)
	case pluginpb.ErrorClass_ERROR_CLASS_TOO_LONG:
		out.Code = "too_long"
	case pluginpb.ErrorClass_ERROR_CLASS_REFUSED:
		out.Code = "refused"
	case pluginpb.ErrorClass_ERROR_CLASS_INVALID, pluginpb.ErrorClass_ERROR_CLASS_UNSPECIFIED:
		out.Code = "invalid"
	default:
		out.Code = "invalid"
	}
	return out
}
