package host

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/embedsidecar/embedsidecar/embed"
	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
)

func packed(xs ...float32) []byte {
	var b []byte
	for _, x := range xs {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// answerTo reads an answer to n texts.
func answerTo(n int, d embed.Description, resp *pluginpb.EmbedResponse) ([]embed.Result, error) {
	results := make([]embed.Result, n)
	return results, readAnswer(resp, d, batchOf(slices.Repeat([]string{"text"}, n)), results)
}

// checkCode checks that an error has the class and the code; code "" means no error.
func checkCode(t *testing.T, name string, err error, class embed.Class, code string) {
	t.Helper()
	if code == "" && err == nil {
		return
	}
	if gotClass, gotCode := embed.Classify(err); err == nil || gotClass != class || gotCode != code {
		t.Errorf("%s: %v, want %s %q", name, err, class, code)
	}
}

func TestReadAnswer_RefusesWhatBreaksTheContract(t *testing.T) {
	t.Parallel()
	good := func() *pluginpb.EmbedResponse {
		return &pluginpb.EmbedResponse{Dims: 2, Vectors: packed(1, 2, 3, 4), Tokens: []uint32{1, 2}}
	}
	for name, tt := range map[string]struct {
		spoil func(*pluginpb.EmbedResponse)
		code  string
	}{
		"good":         {func(*pluginpb.EmbedResponse) {}, ""},
		"no tokens":    {func(r *pluginpb.EmbedResponse) { r.Tokens = nil }, ""},
		"dims":         {func(r *pluginpb.EmbedResponse) { r.Dims = 4 }, "wrong_dims"},
		"no dims":      {func(r *pluginpb.EmbedResponse) { r.Dims = 0 }, "wrong_dims"},
		"one too few":  {func(r *pluginpb.EmbedResponse) { r.Vectors = r.Vectors[8:] }, "wrong_count"},
		"one too many": {func(r *pluginpb.EmbedResponse) { r.Vectors = append(r.Vectors, r.Vectors...) }, "wrong_count"},
		"a byte short": {func(r *pluginpb.EmbedResponse) { r.Vectors = r.Vectors[1:] }, "wrong_count"},
		"nothing":      {func(r *pluginpb.EmbedResponse) { r.Vectors = nil }, "wrong_count"},
		"many tokens":  {func(r *pluginpb.EmbedResponse) { r.Tokens = []uint32{1, 1 << 31} }, "bad_answer"},
		"tokens":       {func(r *pluginpb.EmbedResponse) { r.Tokens = []uint32{1} }, "bad_answer"},
		"index":        {func(r *pluginpb.EmbedResponse) { r.Outcomes = []*pluginpb.Outcome{{Index: 2}} }, "bad_answer"},
		"twice": {
			func(r *pluginpb.EmbedResponse) { r.Outcomes = []*pluginpb.Outcome{{Index: 1}, {Index: 1}} },
			"bad_answer",
		},
		"too many": {func(r *pluginpb.EmbedResponse) { r.Outcomes = make([]*pluginpb.Outcome, 3) }, "bad_answer"},
		"empty and cut": {func(r *pluginpb.EmbedResponse) {
			r.Outcomes = []*pluginpb.Outcome{{
				Empty:     true,
				Truncated: true,
			}}
		}, "bad_answer"},
		"sparse": {func(r *pluginpb.EmbedResponse) { r.Sparse = &pluginpb.SparseVectors{} }, "bad_answer"},
		"error and else": {func(r *pluginpb.EmbedResponse) {
			r.Outcomes = []*pluginpb.Outcome{{Empty: true, Error: &pluginpb.Error{}}}
		}, "bad_answer"},
	} {
		resp := good()
		tt.spoil(resp)
		results, err := answerTo(2, embed.Description{Dims: 2}, resp)
		checkCode(t, name, err, embed.Data, tt.code)
		if err == nil && (!cmp.Equal(results[0].Vector, []float32{1, 2}) || !cmp.Equal(results[1].Vector, []float32{3, 4})) {
			t.Errorf("%s: %v", name, results)
		}
	}
}

func TestReadAnswer_JudgesEachVector(t *testing.T) {
	t.Parallel()
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	negZero, tiny, huge := float32(math.Copysign(0, -1)), float32(math.SmallestNonzeroFloat32), float32(math.MaxFloat32)
	for _, tt := range []struct {
		v    []float32
		code string
	}{
		{[]float32{1, 0}, ""},
		{[]float32{tiny, 0}, ""},
		{[]float32{huge, -huge}, ""},
		{[]float32{0, 0}, "zero_vector"},
		{[]float32{0, negZero}, "zero_vector"},
		{[]float32{nan, 1}, "not_finite"},
		{[]float32{0, inf}, "not_finite"},
		{[]float32{inf, -inf}, "not_finite"},
		{[]float32{0, nan}, "not_finite"},
	} {
		results, err := answerTo(1, embed.Description{Dims: 2}, &pluginpb.EmbedResponse{Dims: 2, Vectors: packed(tt.v...)})
		if err != nil {
			t.Errorf("%v: %v", tt.v, err)
			continue
		}
		checkVectorOrCode(t, fmt.Sprint(tt.v), results[0], tt.v, tt.code)
	}
}

// checkVectorOrCode checks that a result has the vector, or, with a code, no vector and a data error of that code.
func checkVectorOrCode(t *testing.T, name string, r embed.Result, vector []float32, code string) {
	t.Helper()
	if code != "" {
		vector = nil
	}
	if _, ofText := errors.AsType[*embed.TextError](r.Err); r.Err != nil && !ofText {
		t.Errorf("%s: the error %T is not that of a text", name, r.Err)
	}
	checkCode(t, name, r.Err, embed.Data, code)
	if !cmp.Equal(r.Vector, vector) {
		t.Errorf("%s: another vector of %d numbers, want %d", name, len(r.Vector), len(vector))
	}
}

// For any answer, the call fails, or each text has exactly one of: a good vector, no vector, an error.
func FuzzReadAnswer(f *testing.F) {
	seed, err := proto.Marshal(&pluginpb.EmbedResponse{
		Dims: 2, Vectors: packed(1, 2, 0, 0, 5, 6), Tokens: []uint32{1, 2, 3},
		Outcomes: []*pluginpb.Outcome{
			{Index: 1, Empty: true},
			{Index: 2, Error: &pluginpb.Error{Class: 1, DelayMs: math.MaxUint32, Message: "ccc"}},
		},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte{})
	seed, err = proto.Marshal(&pluginpb.EmbedResponse{
		Dims: 2, Outcomes: []*pluginpb.Outcome{{Index: 1, Empty: true}},
		Sparse: &pluginpb.SparseVectors{
			Counts: []uint32{2, 0, 1}, Indices: []byte{0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0},
			Values: packed(1, 2, 3),
		},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, raw []byte) {
		resp := &pluginpb.EmbedResponse{}
		if proto.Unmarshal(raw, resp) != nil {
			return
		}
		d := embed.Description{Dims: 2, Sparse: resp.Sparse != nil}
		results, err := answerTo(3, d, resp)
		if err != nil {
			return
		}
		results, err = allLater(results)
		if err != nil {
			return
		}
		for _, r := range results {
			n := 0
			for _, is := range []bool{r.Vector != nil, r.Empty, r.Err != nil} {
				if is {
					n++
				}
			}
			var text *embed.TextError
			if n != 1 || r.Vector != nil && (d.Sparse && embed.CheckPairs(r.Vector, 2) != nil || !d.Sparse &&
				len(r.Vector) != 2) || r.Err != nil && !errors.As(r.Err, &text) || r.Tokens < 0 {
				t.Errorf("%+v", r)
			}
		}
	})
}

func TestDescribe_RefusesWhatBreaksTheContract(t *testing.T) {
	t.Parallel()
	model := func(spoil func(*pluginpb.Model)) *pluginpb.Model {
		m := &pluginpb.Model{Name: "m", Fingerprint: "f", Dims: 3}
		spoil(m)
		return m
	}
	fine := model(func(*pluginpb.Model) {})
	other := model(func(m *pluginpb.Model) { m.Name = "n" })
	offering := func(models ...*pluginpb.Model) *pluginpb.DescribeResponse {
		return &pluginpb.DescribeResponse{Name: "p", Models: models}
	}
	spoiled := func(spoil func(*pluginpb.Model)) *pluginpb.DescribeResponse { return offering(model(spoil)) }
	for name, tt := range map[string]struct {
		resp  *pluginpb.DescribeResponse
		model string
		code  string
	}{
		"good":    {offering(fine), "", ""},
		"by name": {offering(other, fine), "m", ""},
		"several": {offering(other, fine), "", "unknown_model"},
		"other":   {offering(fine), "n", "unknown_model"},
		"no name": {&pluginpb.DescribeResponse{Models: []*pluginpb.Model{fine}}, "", "describe"},
		"control": {&pluginpb.DescribeResponse{Name: "a\nb", Models: []*pluginpb.Model{fine}}, "", "describe"},
		"long version": {
			&pluginpb.DescribeResponse{Name: "p", Version: strings.Repeat("1", 65), Models: []*pluginpb.Model{fine}}, "",
			"describe",
		},
		"no models":        {offering(), "", "describe"},
		"too many":         {offering(make([]*pluginpb.Model, 1001)...), "", "describe"},
		"twice":            {offering(fine, fine), "m", "describe"},
		"no fingerprint":   {spoiled(func(m *pluginpb.Model) { m.Fingerprint = "" }), "", "describe"},
		"long fingerprint": {spoiled(func(m *pluginpb.Model) { m.Fingerprint = strings.Repeat("f", 257) }), "", "describe"},
		"no dims":          {spoiled(func(m *pluginpb.Model) { m.Dims = 0 }), "", "describe"},
		"wide":             {spoiled(func(m *pluginpb.Model) { m.Dims = 16001 }), "", "describe"},
		"limit":            {spoiled(func(m *pluginpb.Model) { m.MaxBatch = 1 << 31 }), "", "describe"},
	} {
		got, err := describe(tt.resp, tt.model)
		checkCode(t, name, err, embed.Configuration, tt.code)
		if err == nil && (got.Model != "m" || got.Dims != 3) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestFromStatus_FollowsTheContract(t *testing.T) {
	t.Parallel()
	for code, want := range map[codes.Code]string{
		codes.Canceled: "transient unavailable", codes.Unknown: "transient unavailable",
		codes.InvalidArgument:  "data invalid",
		codes.DeadlineExceeded: "transient deadline", codes.NotFound: "configuration misconfigured",
		codes.AlreadyExists:    "transient unavailable",
		codes.PermissionDenied: "configuration misconfigured", codes.ResourceExhausted: "resource resource",
		codes.FailedPrecondition: "configuration misconfigured", codes.Aborted: "transient unavailable",
		codes.OutOfRange:    "data invalid",
		codes.Unimplemented: "configuration misconfigured", codes.Internal: "data internal",
		codes.Unavailable: "transient unavailable",
		codes.DataLoss:    "data internal", codes.Unauthenticated: "configuration misconfigured",
		codes.Code(99): "transient unknown",
	} {
		st, err := status.New(code, "a message").WithDetails(
			&errdetails.RetryInfo{RetryDelay: durationpb.New(48 * time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		got := fromStatus(st.Err(), nil)
		if fmt.Sprint(got.Class, " ", got.Code) != want || got.RetryAfter != time.Hour {
			t.Errorf("%s: %s %s after %s, want %s after 1h", code, got.Class, got.Code, got.RetryAfter, want)
		}
	}
}

// A text above a plugin's own limit of gRPC would be retried forever, if its error were one of resources.
func TestP5_AMessageTooLargeForGRPCIsTheTextsFault(t *testing.T) {
	t.Parallel()
	for _, message := range []string{
		"grpc: received message larger than max (5 vs. 4)",
		"grpc: received message after decompression larger than max 4",
		"grpc: trying to send message larger than max (5 vs. 4)",
		"Received message larger than max (5 vs. 4)",         // C++ and Python, older
		"SERVER: Received message larger than max (5 vs. 4)", // C++ and Python
		"CLIENT: Sent message larger than max (5 vs. 4)",
		"Received message larger than max (5 vs 4)",                     // JavaScript
		"gRPC message exceeds maximum size 4: 5",                        // Java
		"Received message exceeds the maximum configured message size.", // .NET
		"Sending message exceeds the maximum configured message size.",  // .NET
		"io.grpc.StatusRuntimeException: gRPC message exceeds maximum size 4: 5",
	} {
		err := fromStatus(status.Error(codes.ResourceExhausted, message), nil)
		if err.Class != embed.Data || err.Code != "message_size" {
			t.Errorf("%q: %v", message, err)
		}
	}
	for _, message := range []string{"CUDA out of memory", "you sent messages faster than the maximum of 5 a second"} {
		if err := fromStatus(status.Error(codes.ResourceExhausted, message), nil); err.Class != embed.Resource {
			t.Errorf("%q: %v", message, err)
		}
	}
}

func TestWithoutTexts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		message string
		texts   []string
		want    string
	}{
		{"fine", []string{"a text"}, "fine"},
		{"cannot embed a text", []string{"x", "a text"}, "(message withheld: it quotes the text)"},
		{
			"bad: the beginning of it...",
			[]string{"the beginning of it and its end"},
			"(message withheld: it quotes the text)",
		},
		{"the", []string{"the"}, "the"},
		{
			`'ascii' codec: \u00c4rztin \u00dcmit \u00c7elik`,
			[]string{"Die Ärztin Ümit Çelik"},
			"(message withheld: it quotes the text)",
		},
		{`bad: caf\xe9 des f\xEAtes`, []string{"café des fêtes"}, "(message withheld: it quotes the text)"},
		{"bad: THE MIDDLE OF%20IT", []string{"the end, the middle of it"}, "(message withheld: it quotes the text)"},
		{"600 tokens are more than 512", []string{"tokens are coins of metal, more than once"}, "600 tokens are more than 512"},
		{"two\nlines\x7f \xff", nil, "two lines  ?"},
		{strings.Repeat("x", 400), nil, strings.Repeat("x", 300) + "..."},
	} {
		if got := withoutTexts(tt.message, tt.texts); got != tt.want {
			t.Errorf("withoutTexts(%q, %q) = %q, want %q", tt.message, tt.texts, got, tt.want)
		}
	}
}

func TestOutput_IsBoundedAndKeepsTheLastLines(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	out := newOutput(slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug})),
		redactor(nil, nil))
	now := time.Unix(1000, 0)
	out.now = func() time.Time { return now }
	lines := &splitter{to: out}
	write := func(s string) {
		t.Helper()
		if n, err := io.WriteString(lines, s); n != len(s) || err != nil {
			t.Fatalf("write: %d, %v", n, err)
		}
	}
	write("first ")
	write("line\r\n\n  \nsecond line\n")
	write(strings.Repeat("x", 3<<20) + "\n")
	write(`{"level":"ERROR","msg":"slog"}` + "\n" + `{"@level":"warn","@message":"hclog"}` + "\n" + `{"@message":1}` +
		"\n" + `{"level":"DEBUG","msg":"m"}` + "\n")
	write("no end")
	lines.flush()
	want := []string{
		"first line", "second line", strings.Repeat("x", maxLine), "slog", "hclog", `{"@message":1}`, "m",
		"no end",
	}
	if diff := cmp.Diff(want, out.Last()); diff != "" {
		t.Errorf("last lines (-want +got):\n%s", diff)
	}
	for level, n := range map[string]int{"ERROR": 1, "WARN": 1, "DEBUG": 1, "INFO": 5} {
		if got := strings.Count(logged.String(), "level="+level+" msg=\"plugin output\""); got != n {
			t.Errorf("%d lines at %s, want %d", got, level, n)
		}
	}
	logged.Reset()
	for range 1000 {
		write("flood\n")
	}
	if got, want := strings.Count(logged.String(), "\n"), linesPerSecond-8; got != want {
		t.Errorf("%d lines logged of a flood, want %d", got, want)
	}
	now = now.Add(time.Second)
	write("after\n")
	if !strings.Contains(logged.String(), "lines=958") || !strings.Contains(logged.String(), "line=after") {
		t.Errorf("after the flood: %s", logged.String()[max(0, logged.Len()-300):])
	}
	if got := len(out.Last()); got != lastLines {
		t.Errorf("%d lines kept, want %d", got, lastLines)
	}
}
