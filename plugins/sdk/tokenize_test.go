package sdk

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
)

// tokenStub is a stub that also knows tokens.
type tokenStub struct {
	stub
	tokens func(texts []string) (Tokens, error)
}

func (s *tokenStub) Tokenize(_ context.Context, _ string, texts []string) (Tokens, error) {
	return s.tokens(texts)
}

func TestServer_Tokenizes(t *testing.T) {
	t.Parallel()
	srv := NewServer(&tokenStub{stub{info: twoDims()}, func(texts []string) (Tokens, error) {
		if !cmp.Equal(texts, []string{"a bc", ""}) {
			return Tokens{}, errors.New("other texts")
		}
		return Tokens{Ends: [][]int{{1, 4}, {}}, Around: 2}, nil
	}}, t.Output())
	got, err := srv.Tokenize(t.Context(), &pluginpb.TokenizeRequest{Model: "m", Texts: []string{"a bc", ""}})
	if err != nil {
		t.Fatal(err)
	}
	want := &pluginpb.TokenizeResponse{Tokens: []*pluginpb.Tokens{{Ends: []uint32{1, 4}}, {}}, Around: 2}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
}

func TestServer_TokenizeErrorsHaveTheCodesOfTheContract(t *testing.T) {
	t.Parallel()
	answer := func(ends ...int) func([]string) (Tokens, error) {
		return func([]string) (Tokens, error) { return Tokens{Ends: [][]int{ends}}, nil }
	}
	one := &pluginpb.TokenizeRequest{Model: "m", Texts: []string{"abc"}}
	for name, tt := range map[string]struct {
		req    *pluginpb.TokenizeRequest
		tokens func([]string) (Tokens, error)
		want   codes.Code
	}{
		"no texts":      {&pluginpb.TokenizeRequest{Model: "m"}, answer(), codes.InvalidArgument},
		"no such model": {&pluginpb.TokenizeRequest{Model: "x", Texts: one.Texts}, answer(), codes.NotFound},
		"one too many": {
			one, func([]string) (Tokens, error) { return Tokens{Ends: make([][]int, 2)}, nil },
			codes.Internal,
		},
		"beyond the text": {one, answer(4), codes.Internal},
		"before it":       {one, answer(-1), codes.Internal},
		"going down":      {one, answer(2, 1), codes.Internal},
		"panic":           {one, func([]string) (Tokens, error) { panic("secret text") }, codes.Internal},
		"misconfigured": {
			one, func([]string) (Tokens, error) { return Tokens{}, Misconfigured(errors.New("no file")) },
			codes.FailedPrecondition,
		},
	} {
		_, err := NewServer(&tokenStub{stub{info: twoDims()}, tt.tokens}, t.Output()).Tokenize(t.Context(), tt.req)
		if status.Code(err) != tt.want {
			t.Errorf("%s: %v, want %s", name, err, tt.want)
		}
	}
	_, err := NewServer(&stub{info: twoDims()}, t.Output()).Tokenize(t.Context(), one)
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("an embedder without the method: %v, want Unimplemented", err)
	}
}
