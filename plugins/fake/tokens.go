package main

import (
	"context"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
)

// Tokenize implements pluginpb.EmbedderServer.
func (b *breaker) Tokenize(ctx context.Context, req *pluginpb.TokenizeRequest) (*pluginpb.TokenizeResponse, error) {
	if b.does["any-model"] {
		req.Model = "fake"
	}
	if b.does["tokens-die"] && slices.ContainsFunc(req.GetTexts(),
		func(text string) bool { return strings.ContainsRune(text, '\ufeff') }) {
		die(syscall.SIGKILL)
	}
	resp, err := b.EmbedderServer.Tokenize(ctx, req)
	if err != nil {
		return nil, err
	}
	shorter := b.told.Add(1)%2 == 0 && b.does["tokens-vary"]
	for i, told := range resp.GetTokens() {
		if b.does["tokens-in-characters"] {
			for k, end := range told.GetEnds() {
				told.Ends[k] = uint32(utf8.RuneCountInString(req.GetTexts()[i][:end]))
			}
		}
		if n := len(told.GetEnds()); shorter && n > 0 {
			told.Ends = told.GetEnds()[:n-1]
		}
		if most := 50; b.does["tokens-cut"] && len(told.GetEnds()) > most {
			told.Ends = told.GetEnds()[:most]
		}
		b.age(told)
	}
	if b.does["tokens-around"] {
		resp.Around = 2
	}
	b.age(resp)
	return resp, nil
}
