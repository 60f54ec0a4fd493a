package host

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/embedsidecar/embedsidecar/embed"
	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
)

func places(places ...uint32) []byte {
	var b []byte
	for _, p := range places {
		b = binary.LittleEndian.AppendUint32(b, p)
	}
	return b
}

func TestReadSparse_RefusesWhatBreaksTheContract(t *testing.T) {
	t.Parallel()
	good := func() *pluginpb.EmbedResponse {
		return &pluginpb.EmbedResponse{
			Dims: 30522, Outcomes: []*pluginpb.Outcome{{Index: 1, Empty: true}},
			Sparse: &pluginpb.SparseVectors{Counts: []uint32{2, 0, 1}, Indices: places(0, 30521, 7), Values: packed(0.5, -2, 3)},
		}
	}
	for name, tt := range map[string]struct {
		spoil func(*pluginpb.EmbedResponse)
		code  string
	}{
		"good": {func(*pluginpb.EmbedResponse) {}, ""},
		"dims": {func(r *pluginpb.EmbedResponse) { r.Dims = 30521 }, "wrong_dims"},
		"dense": {
			func(r *pluginpb.EmbedResponse) { r.Sparse, r.Vectors = nil, make([]byte, 3*4*30522) },
			"bad_answer",
		},
		"dense as well": {func(r *pluginpb.EmbedResponse) { r.Vectors = packed(1) }, "bad_answer"},
		"nothing":       {func(r *pluginpb.EmbedResponse) { r.Sparse = nil }, "wrong_count"},
		"one too few":   {func(r *pluginpb.EmbedResponse) { r.Sparse.Counts = []uint32{2, 1} }, "wrong_count"},
		"more counted":  {func(r *pluginpb.EmbedResponse) { r.Sparse.Counts[0] = 3 }, "wrong_count"},
		"many counted":  {func(r *pluginpb.EmbedResponse) { r.Sparse.Counts[0] = math.MaxUint32 }, "wrong_count"},
		"a byte short":  {func(r *pluginpb.EmbedResponse) { r.Sparse.Values = r.Sparse.Values[1:] }, "wrong_count"},
		"a place short": {func(r *pluginpb.EmbedResponse) { r.Sparse.Indices = r.Sparse.Indices[4:] }, "wrong_count"},
		"out of range":  {func(r *pluginpb.EmbedResponse) { r.Sparse.Indices = places(0, 30522, 7) }, "bad_answer"},
		"unsorted":      {func(r *pluginpb.EmbedResponse) { r.Sparse.Indices = places(9, 8, 7) }, "bad_answer"},
		"twice":         {func(r *pluginpb.EmbedResponse) { r.Sparse.Indices = places(8, 8, 7) }, "bad_answer"},
		"zero":          {func(r *pluginpb.EmbedResponse) { r.Sparse.Values = packed(1, 0, 1) }, "bad_answer"},
		"negative zero": {
			func(r *pluginpb.EmbedResponse) { r.Sparse.Values = packed(1, float32(math.Copysign(0, -1)), 1) },
			"bad_answer",
		},
		"empty with some": {func(r *pluginpb.EmbedResponse) { r.Outcomes[0].Index = 2 }, "bad_answer"},
	} {
		resp := good()
		tt.spoil(resp)
		results, err := answerTo(3, embed.Description{Dims: 30522, Sparse: true}, resp)
		checkCode(t, name, err, embed.Data, tt.code)
		if err == nil && (!cmp.Equal(results[0].Vector, []float32{0, 0.5, 30521, -2}) || !results[1].Empty ||
			!cmp.Equal(results[2].Vector, []float32{7, 3})) {
			t.Errorf("%s: %v", name, results)
		}
	}
}

// Sparse vectors are searched by inner product, so their length matters.
func TestJudge_ChecksTheLengthOfSparseVectors(t *testing.T) {
	t.Parallel()
	known := [][]float32{{3, 1.5, 9, 0.5}, {4, 2}, {7, 1}, {8, 0.25, 9, 3}}
	for _, tt := range []struct {
		deterministic bool
		got           []float32
		code          string
	}{
		{true, []float32{3, 1.5, 9, 0.5}, ""},
		{true, []float32{3, 1.5001, 9, 0.5}, ""},
		{true, []float32{3, 0.15, 9, 0.05}, "drift"},
		{true, []float32{3, 15, 9, 5}, "drift"},
		{true, []float32{3, 1.53, 9, 0.51}, "drift"},
		{false, []float32{3, 1.53, 9, 0.51}, ""},
		{false, []float32{3, 1.6, 9, 0.6}, "drift"},
		{true, []float32{4, 2}, "order"},
	} {
		i := &instance{desc: embed.Description{Dims: 30522, Sparse: true, Deterministic: tt.deterministic}}
		checkCode(t, fmt.Sprintf("deterministic %t, %v", tt.deterministic, tt.got), i.judge(tt.got, known, 0),
			embed.Configuration, tt.code)
	}
}

func TestReadSparse_JudgesEachVector(t *testing.T) {
	t.Parallel()
	many := make([]uint32, embed.MaxSparseNumbers+1)
	ones := make([]float32, len(many))
	for i := range many {
		many[i], ones[i] = uint32(i), 1
	}
	for _, tt := range []struct {
		at   []uint32
		v    []float32
		code string
	}{
		{[]uint32{3}, []float32{math.SmallestNonzeroFloat32}, ""},
		{[]uint32{3, 4}, []float32{math.MaxFloat32, -math.MaxFloat32}, ""},
		{many[:embed.MaxSparseNumbers], ones[:embed.MaxSparseNumbers], ""},
		{many, ones, "too_many_numbers"},
		{nil, nil, "zero_vector"},
		{[]uint32{3}, []float32{float32(math.NaN())}, "not_finite"},
		{[]uint32{3, 5}, []float32{1, float32(math.Inf(-1))}, "not_finite"},
	} {
		resp := &pluginpb.EmbedResponse{Dims: 30522, Sparse: &pluginpb.SparseVectors{
			Counts:  []uint32{uint32(len(tt.at))},
			Indices: places(tt.at...), Values: packed(tt.v...),
		}}
		results, err := answerTo(1, embed.Description{Dims: 30522, Sparse: true}, resp)
		if err != nil {
			t.Errorf("%d numbers: %v", len(tt.v), err)
			continue
		}
		checkVectorOrCode(t, fmt.Sprint(len(tt.v), " numbers"), results[0], embed.Pairs(tt.at, tt.v), tt.code)
	}
}

// The largest answer within a plugin's limits is within the message limits.
func TestLimits_ALargeSparseAnswerIsLetThrough(t *testing.T) {
	t.Parallel()
	for _, dims := range []int{1, 16000, 30522, pluginpb.MaxSparseDims} {
		d := embed.Description{Dims: dims, Sparse: true}
		texts, numbers := limitsOf(d).texts, min(dims, pluginpb.MaxSparseNumbers)
		sparse := &pluginpb.SparseVectors{
			Counts: make([]uint32, texts), Indices: make([]byte, 4*texts*numbers),
			Values: make([]byte, 4*texts*numbers),
		}
		for i := range sparse.Counts {
			sparse.Counts[i] = uint32(numbers)
		}
		if size := proto.Size(&pluginpb.EmbedResponse{Dims: uint32(dims), Sparse: sparse}); size > answerLimit(texts, d) ||
			size > pluginpb.MaxMessageBytes {
			t.Errorf("%d dims: %d texts are %d bytes, %d are let through", dims, texts, size, answerLimit(texts, d))
		}
	}
}

// A host without support for sparse vectors ignores their fields in the model and the answer.
func TestReadSparse_OlderHostsRefuseIt(t *testing.T) {
	t.Parallel()
	if _, err := describe(&pluginpb.DescribeResponse{Name: "p", Models: []*pluginpb.Model{{
		Name: "m", Fingerprint: "f",
		Dims: 30522,
	}}}, ""); err == nil {
		t.Error("30522 dense numbers passed")
	}
	_, err := answerTo(1, embed.Description{Dims: 100}, &pluginpb.EmbedResponse{Dims: 100})
	checkCode(t, "an answer without its sparse vectors", err, embed.Data, "wrong_count")
	d, err := describe(&pluginpb.DescribeResponse{Name: "p", Models: []*pluginpb.Model{
		{Name: "sparse", Fingerprint: "f", Dims: 30522}, {Name: "dense", Fingerprint: "g", Dims: 384},
	}}, "dense")
	if err != nil || d.Dims != 384 {
		t.Errorf("the other model of that plugin: %+v, %v", d, err)
	}
}
