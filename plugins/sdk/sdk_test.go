package sdk

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
)

// stub is an embedder made of functions.
type stub struct {
	info  Info
	err   error
	embed func(kind Kind, texts []string) ([]Answer, error)
}

func (s *stub) Describe(context.Context) (Info, error) { return s.info, s.err }

func (s *stub) Embed(_ context.Context, _ string, kind Kind, texts []string) ([]Answer, error) {
	return s.embed(kind, texts)
}

// giving returns an Embed that always gives the same.
func giving(answers []Answer, err error) func(Kind, []string) ([]Answer, error) {
	return func(Kind, []string) ([]Answer, error) { return answers, err }
}

// asking returns a request for queries.
func asking(model string, texts ...string) *pluginpb.EmbedRequest {
	return &pluginpb.EmbedRequest{Model: model, Kind: pluginpb.Kind_KIND_QUERY, Texts: texts}
}

func twoDims() Info {
	return Info{Name: "stub", Version: "1", Models: []Model{{
		Name: "m", Fingerprint: "f", Dims: 2, MaxTokens: 3,
		MaxBatch: 4, MaxBatchBytes: 5, Symmetric: true, Deterministic: true,
	}}}
}

func TestServer_Describe(t *testing.T) {
	t.Parallel()
	got, err := NewServer(&stub{info: twoDims()}, t.Output()).Describe(t.Context(), &pluginpb.DescribeRequest{})
	if err != nil {
		t.Fatal(err)
	}
	want := &pluginpb.DescribeResponse{Name: "stub", Version: "1", Models: []*pluginpb.Model{{
		Name: "m", Fingerprint: "f", Dims: 2, MaxTokens: 3, MaxBatch: 4, MaxBatchBytes: 5, Symmetric: true,
		Deterministic: true,
	}}}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("description (-want +got):\n%s", diff)
	}
}

func TestServer_DescribeTellsTheAuthorOfMistakes(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*Info){
		"no name":        func(i *Info) { i.Name = "" },
		"no models":      func(i *Info) { i.Models = nil },
		"no model name":  func(i *Info) { i.Models[0].Name = "" },
		"twice":          func(i *Info) { i.Models = append(i.Models, i.Models[0]) },
		"no fingerprint": func(i *Info) { i.Models[0].Fingerprint = "" },
		"no dims":        func(i *Info) { i.Models[0].Dims = 0 },
		"too wide":       func(i *Info) { i.Models[0].Dims = 16001 },
		"sparse, wide":   func(i *Info) { i.Models[0].Dims, i.Models[0].Sparse = 1<<24+1, true },
		"negative":       func(i *Info) { i.Models[0].MaxBatch = -1 },
	} {
		info := twoDims()
		spoil(&info)
		_, err := NewServer(&stub{info: info}, t.Output()).Describe(t.Context(), &pluginpb.DescribeRequest{})
		if status.Code(err) != codes.FailedPrecondition {
			t.Errorf("%s: %v, want FailedPrecondition", name, err)
		}
	}
}

func TestServer_PacksAnswers(t *testing.T) {
	t.Parallel()
	srv := NewServer(&stub{info: twoDims(), embed: func(kind Kind, texts []string) ([]Answer, error) {
		if kind != Query || !cmp.Equal(texts, []string{"a", "b", "c", "d"}) {
			return nil, fmt.Errorf("got %v %v", kind, texts)
		}
		return []Answer{
			{Vector: []float32{1, -2.5}, Tokens: 7},
			{Empty: true, Vector: []float32{9, 9, 9}},
			{Vector: []float32{3, 4}, Truncated: true},
			{Err: &TextError{Class: RetryLater, Delay: 2 * time.Hour, Message: "later"}},
		}, nil
	}}, t.Output())
	got, err := srv.Embed(t.Context(), asking("m", "a", "b", "c", "d"))
	if err != nil {
		t.Fatal(err)
	}
	want := &pluginpb.EmbedResponse{Dims: 2, Tokens: []uint32{7, 0, 0, 0}, Outcomes: []*pluginpb.Outcome{
		{Index: 1, Empty: true},
		{Index: 2, Truncated: true},
		{Index: 3, Error: &pluginpb.Error{
			Class: pluginpb.ErrorClass_ERROR_CLASS_RETRY_LATER, DelayMs: 3600000,
			Message: "later",
		}},
	}}
	for _, x := range []float32{1, -2.5, 0, 0, 3, 4, 0, 0} {
		want.Vectors = binary.LittleEndian.AppendUint32(want.Vectors, math.Float32bits(x))
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
}

func sparse() Info {
	return Info{Name: "stub", Version: "1", Models: []Model{{Name: "m", Fingerprint: "f", Dims: 30522, Sparse: true}}}
}

func TestServer_PacksSparseAnswers(t *testing.T) {
	t.Parallel()
	srv := NewServer(&stub{info: sparse(), embed: giving([]Answer{
		{Vector: []float32{1, -2.5}, Indices: []uint32{0, 30521}, Tokens: 7},
		{Empty: true, Vector: []float32{9}},
		{Vector: []float32{3}, Indices: []uint32{258}, Truncated: true},
		{Err: &TextError{Class: Refused}},
	}, nil)}, t.Output())
	about, err := srv.Describe(t.Context(), &pluginpb.DescribeRequest{})
	if err != nil || !about.Models[0].Sparse {
		t.Fatalf("%v, %v", about, err)
	}
	got, err := srv.Embed(t.Context(), asking("m", "a", "b", "c", "d"))
	if err != nil {
		t.Fatal(err)
	}
	want := &pluginpb.EmbedResponse{Dims: 30522, Tokens: []uint32{7, 0, 0, 0}, Outcomes: []*pluginpb.Outcome{
		{Index: 1, Empty: true},
		{Index: 2, Truncated: true},
		{Index: 3, Error: &pluginpb.Error{Class: pluginpb.ErrorClass_ERROR_CLASS_REFUSED}},
	}, Sparse: &pluginpb.SparseVectors{
		Counts: []uint32{2, 0, 1, 0}, Indices: []byte{0, 0, 0, 0, 0x39, 0x77, 0, 0, 2, 1, 0, 0},
	}}
	for _, x := range []float32{1, -2.5, 3} {
		want.Sparse.Values = binary.LittleEndian.AppendUint32(want.Sparse.Values, math.Float32bits(x))
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
}

func TestServer_TellsTheAuthorOfSparseMistakes(t *testing.T) {
	t.Parallel()
	for name, a := range map[string]Answer{
		"no indices":   {Vector: []float32{1, 2}},
		"too few":      {Vector: []float32{1, 2}, Indices: []uint32{1}},
		"out of range": {Vector: []float32{1}, Indices: []uint32{30522}},
		"unsorted":     {Vector: []float32{1, 2}, Indices: []uint32{2, 1}},
		"twice":        {Vector: []float32{1, 2}, Indices: []uint32{2, 2}},
		"zero":         {Vector: []float32{1, 0}, Indices: []uint32{1, 2}},
	} {
		srv := NewServer(&stub{info: sparse(), embed: giving([]Answer{a}, nil)}, t.Output())
		_, err := srv.Embed(t.Context(), asking("m", "a"))
		if status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "indices") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestServer_ErrorsHaveTheCodesOfTheContract(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	var none []int
	for name, tt := range map[string]struct {
		req     *pluginpb.EmbedRequest
		embed   func(Kind, []string) ([]Answer, error)
		code    codes.Code
		delay   time.Duration
		message string
	}{
		"plain": {embed: giving(nil, cause), code: codes.Unknown, message: "cause"},
		"again": {embed: giving(nil, Again(cause, time.Second)), code: codes.Unavailable, delay: time.Second},
		"misconfigured": {
			embed: giving(nil, fmt.Errorf("x: %w", Misconfigured(cause))), code: codes.FailedPrecondition,
			message: "x: cause",
		},
		"resources": {embed: giving(nil, OutOfResources(cause, 0)), code: codes.ResourceExhausted},
		"context":   {embed: giving(nil, context.DeadlineExceeded), code: codes.DeadlineExceeded},
		"status":    {embed: giving(nil, status.Error(codes.DataLoss, "x")), code: codes.DataLoss},
		"panic": {
			embed: func(Kind, []string) ([]Answer, error) { panic("a secret") }, code: codes.Internal,
			message: "panic in Embed: string",
		},
		"runtime panic": {
			embed: func(Kind, []string) ([]Answer, error) { _ = none[0]; return nil, nil },
			code:  codes.Internal, message: "index out of range",
		},
		"count":    {embed: giving(nil, nil), code: codes.Internal, message: "0 answers for 1 texts"},
		"width":    {embed: giving([]Answer{{Vector: []float32{1}}}, nil), code: codes.Internal, message: "1 dims"},
		"model":    {req: asking("other", "a"), code: codes.NotFound},
		"kind":     {req: &pluginpb.EmbedRequest{Model: "m", Texts: []string{"a"}}, code: codes.InvalidArgument},
		"no texts": {req: asking("m"), code: codes.InvalidArgument},
	} {
		req := tt.req
		if req == nil {
			req = &pluginpb.EmbedRequest{Model: "m", Kind: pluginpb.Kind_KIND_DOCUMENT, Texts: []string{"a"}}
		}
		var stderr bytes.Buffer
		_, err := NewServer(&stub{info: twoDims(), embed: tt.embed}, &stderr).Embed(t.Context(), req)
		st := status.Convert(err)
		if st.Code() != tt.code || !strings.Contains(st.Message(), tt.message) {
			t.Errorf("%s: %v, want %s %q", name, err, tt.code, tt.message)
		}
		var delay time.Duration
		for _, d := range st.Details() {
			if info, ok := d.(*errdetails.RetryInfo); ok {
				delay = info.GetRetryDelay().AsDuration()
			}
		}
		if delay != tt.delay {
			t.Errorf("%s: delay %s, want %s", name, delay, tt.delay)
		}
		if strings.Contains(st.Message()+stderr.String(), "secret") {
			t.Errorf("%s: what was panicked with is told: %v, %s", name, err, &stderr)
		}
	}
	broken := NewServer(&stub{err: errors.New("no model file")}, t.Output())
	if _, err := broken.Embed(t.Context(), &pluginpb.EmbedRequest{Model: "m"}); status.Code(err) != codes.Unknown {
		t.Errorf("an embedder that cannot describe itself: %v", err)
	}
}

// gRPC delivers neither a status with a message of 64 KiB nor a string that is not valid UTF-8. The host would get an
// error of the texts, which uses up their attempts, although the plugin has said that they may be sent again.
func TestTrust_ALongMessageDoesNotChangeAnErrorsClass(t *testing.T) {
	t.Parallel()
	page := strings.Repeat("<p>ä\xff", 64<<10)
	for name, err := range map[string]error{
		"again": Again(errors.New(page), time.Second), "plain": errors.New(page),
		"status": status.Error(codes.Unavailable, page),
	} {
		st := status.Convert(Status(err))
		if n := len(st.Message()); n < 300 || n > 400 || !utf8.ValidString(st.Message()) || st.Code() == codes.Internal {
			t.Errorf("%s: %s with a message of %d bytes", name, st.Code(), n)
		}
	}
	if d := status.Convert(Status(Again(errors.New(page), time.Second))).Details(); len(d) != 1 {
		t.Errorf("its delay is lost: %v", d)
	}
	if Status(nil) != nil {
		t.Error("no error became one")
	}
	answers := []Answer{{Err: &TextError{Class: RetryLater, Message: page}}}
	resp, err := NewServer(&stub{info: twoDims(), embed: giving(answers, nil)}, t.Output()).Embed(t.Context(),
		asking("m", "a"))
	if err != nil {
		t.Fatal(err)
	}
	if raw, err := proto.Marshal(resp); err != nil || len(raw) > 400 {
		t.Errorf("an answer of %d bytes: %v", len(raw), err)
	}
}
