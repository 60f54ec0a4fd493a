package host

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/embedsidecar/embedsidecar/embed"
	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
)

var _ embed.Tokenizer = (*Host)(nil)

// Tokenize implements embed.Tokenizer. It splits calls as Embed does and has the same errors; embed.ErrNoTokens is
// the cause of the Configuration error "no_tokens" of a plugin without that method. A text that cannot be sent at all
// fails the whole call.
func (h *Host) Tokenize(ctx context.Context, texts []string) (embed.Tokens, error) {
	all := embed.Tokens{Ends: make([][]int, 0, len(texts))}
	if len(texts) == 0 {
		return all, nil
	}
	p, err := h.acquire(ctx)
	if err != nil {
		return embed.Tokens{}, err
	}
	defer func() { h.release(p) }()
	err = limitsOf(p.inst.desc).inBatches(texts, invalid, func(b *batch) error {
		part, err := h.tokenize(ctx, &p, b)
		all.Ends, all.Around = append(all.Ends, part.Ends...), part.Around
		return err
	})
	if err != nil {
		return embed.Tokens{}, err
	}
	return all, nil
}

// tokenize sends one batch and checks its answer, which does not prove that the plugin can embed: no failure is
// forgotten for it.
func (h *Host) tokenize(ctx context.Context, p *permit, b *batch) (tokens embed.Tokens, err error) {
	inst := p.inst
	var resp *pluginpb.TokenizeResponse
	var unknown bool
	err = h.exchange(ctx, p, exchange{
		batch: b,
		send: func(ctx context.Context) (err error) {
			resp, err = inst.rpc.Tokenize(ctx, &pluginpb.TokenizeRequest{Model: inst.desc.Model, Texts: b.texts},
				grpc.MaxCallRecvMsgSize(tokensLimit(b)), atMost(len(b.texts)))
			unknown = status.Code(err) == codes.Unimplemented
			return err
		},
		read: func() (err error) { tokens, err = readTokens(resp, b.texts); return err },
	})
	if unknown {
		err = configuration("no_tokens", fmt.Errorf("plugin %q: %w", inst.slot.opts.Name, embed.ErrNoTokens))
	}
	return tokens, err
}

// maxTokensPerByte is what the contract allows.
const maxTokensPerByte = 4

// tokensLimit is the largest answer in bytes that can be to the point: a token a byte, in five bytes each.
func tokensLimit(b *batch) int { return 5*b.bytes + 64*len(b.texts) + 64<<10 }

// readTokens checks an answer.
func readTokens(resp *pluginpb.TokenizeResponse, texts []string) (embed.Tokens, error) {
	if n := len(resp.GetTokens()); n != len(texts) {
		return embed.Tokens{}, badAnswer("wrong_count", "the plugin told the tokens of %d texts, want %d", n, len(texts))
	}
	tokens := embed.Tokens{Ends: make([][]int, len(texts)), Around: int(min(resp.GetAround(), maxInt32))}
	for i, text := range texts {
		told := resp.GetTokens()[i].GetEnds()
		if n := len(told); n > maxTokensPerByte*len(text) {
			return embed.Tokens{}, badAnswer("bad_answer", "the plugin told of %d tokens in a text of %d bytes", n, len(text))
		}
		ends, last := make([]int, len(told)), 0
		for k, end := range told {
			if int64(end) < int64(last) || int64(end) > int64(len(text)) {
				return embed.Tokens{}, badAnswer("bad_answer",
					"the plugin told of a token that ends at byte %d, after one that ends at %d, in a text of %d bytes", end, last,
					len(text))
			}
			last = int(end)
			ends[k] = last
		}
		tokens.Ends[i] = ends
	}
	return tokens, nil
}
