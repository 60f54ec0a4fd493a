package sdk

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
)

// Tokens are where the tokens of some texts end.
type Tokens struct {
	Ends   [][]int // for each text, the offset in bytes after each of its tokens: not decreasing, none beyond the text
	Around int     // tokens that the model puts around every document by itself: special ones, and those of a prefix
}

// Tokenizer is what an Embedder may implement besides: long texts are then cut into chunks by the model's own tokens,
// which is otherwise estimated.
type Tokenizer interface {
	// Tokenize tells where all tokens of the texts end, however long these are. Texts and errors are those of Embed.
	Tokenize(ctx context.Context, model string, texts []string) (Tokens, error)
}

// Tokenize answers for an Embedder that is a Tokenizer.
func (s *server) Tokenize(ctx context.Context, req *pluginpb.TokenizeRequest) (resp *pluginpb.TokenizeResponse,
	err error,
) {
	defer s.recovered("Tokenize", &err)
	impl, ok := s.impl.(Tokenizer)
	if !ok {
		return nil, status.Error(codes.Unimplemented, "this plugin does not tell where tokens end")
	}
	m, err := s.model(ctx, req.GetModel())
	if err != nil {
		return nil, Status(err)
	}
	if len(req.GetTexts()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "no texts")
	}
	tokens, err := impl.Tokenize(ctx, m.Name, req.GetTexts())
	if err != nil {
		return nil, Status(err)
	}
	if len(tokens.Ends) != len(req.GetTexts()) {
		return nil, status.Errorf(codes.Internal, "the embedder told the tokens of %d texts, want %d", len(tokens.Ends),
			len(req.GetTexts()))
	}
	resp = &pluginpb.TokenizeResponse{
		Tokens: make([]*pluginpb.Tokens, len(tokens.Ends)),
		Around: uint32(max(tokens.Around, 0)),
	}
	for i, ends := range tokens.Ends {
		packed := make([]uint32, len(ends))
		for k, end := range ends {
			if end < 0 || end > len(req.GetTexts()[i]) || k > 0 && end < ends[k-1] {
				return nil, status.Errorf(codes.Internal, "the embedder told of a token that ends at byte %d of a text of %d bytes",
					end, len(req.GetTexts()[i]))
			}
			packed[k] = uint32(end)
		}
		resp.Tokens[i] = &pluginpb.Tokens{Ends: packed}
	}
	return resp, nil
}
