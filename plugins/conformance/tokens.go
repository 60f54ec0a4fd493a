package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/embedsidecar/embedsidecar/embed"
	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
)

// segment is the longest text that the sidecar sends to Tokenize.
const segment = 32 << 10

var errNotOffered = errors.New("the plugin does not tell where tokens end")

// tokens calls Tokenize within the plugin's limits and checks the answers.
func (t *tester) tokens(ctx context.Context, texts []string) (embed.Tokens, error) {
	var all embed.Tokens
	for _, call := range t.split(texts) {
		told, err := t.askTokens(ctx, call)
		if err != nil {
			return all, err
		}
		if all.Ends != nil && told.Around != all.Around {
			return all, &callError{
				what:   fmt.Sprintf("it puts %d tokens around a text, and then %d", all.Around, told.Around),
				advice: "around is the same for every text: what the model puts around a document by itself",
			}
		}
		all.Ends, all.Around = append(all.Ends, told.Ends...), told.Around
	}
	return all, nil
}

func (t *tester) askTokens(ctx context.Context, texts []string) (embed.Tokens, error) {
	p, err := t.plugin(ctx)
	if err != nil {
		return embed.Tokens{}, err
	}
	bytes, limit := t.allowed(texts)
	callCtx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	resp, err := p.Client().Tokenize(callCtx, &pluginpb.TokenizeRequest{Model: t.about.Model, Texts: texts},
		grpc.MaxCallRecvMsgSize(pluginpb.MaxMessageBytes))
	if status.Code(err) == codes.Unimplemented {
		return embed.Tokens{}, errNotOffered
	}
	if err != nil {
		return embed.Tokens{}, t.explain(callCtx, err, "a call for the tokens of "+size(len(texts), bytes), limit)
	}
	const advice = "tell, for each text in order, the bytes of UTF-8 up to the end of each token: not the characters, not decreasing, never inside of a character"
	told, err := p.ReadTokens(resp, texts)
	if err != nil {
		return told, &callError{
			what: fmt.Sprintf(
				"a call for the tokens of %s was answered by what the sidecar must refuse: %s", size(len(texts), bytes), err),
			advice: advice,
		}
	}
	for i, ends := range told.Ends {
		for _, end := range ends {
			if end < len(texts[i]) && !utf8.RuneStart(texts[i][end]) {
				return told, &callError{what: fmt.Sprintf("a token ends inside of a character, at byte %d of a text of %d", end,
					len(texts[i])), advice: advice}
			}
		}
	}
	return told, nil
}

func checkTokens(ctx context.Context, t *tester) Check {
	texts := slices.Concat(usualTexts, nothing, strangeTexts)
	told, err := t.tokens(ctx, texts)
	if errors.Is(err, errNotOffered) {
		return pass("not offered: chunks of long texts are cut by an estimate")
	}
	if err != nil {
		abandon(suspect(err, func(texts []string) error {
			_, err := t.tokens(ctx, texts)
			return err
		}))
	}
	for _, test := range []func(context.Context, *tester, []string, embed.Tokens) Check{
		tokensAgain, tokensOfAll, tokensOfModel, tokensAsEmbedded, tokensUpToLimit,
	} {
		if f := test(ctx, t, texts, told); f.Verdict != "" {
			return f
		}
	}
	total := 0
	for _, ends := range told.Ends {
		total += len(ends)
	}
	return pass("%d tokens in %d texts, %d around each", total, len(texts), told.Around)
}

// tokensAgain checks that a second call, in reverse, and calls with one text return the same tokens.
func tokensAgain(ctx context.Context, t *tester, texts []string, told embed.Tokens) Check {
	const advice = "tokens depend on the text alone, not on what else is in the call or was before"
	backwards := slices.Clone(texts)
	slices.Reverse(backwards)
	again := must(t.tokens(ctx, backwards))
	slices.Reverse(again.Ends)
	for i := range texts {
		if !slices.Equal(told.Ends[i], again.Ends[i]) {
			return fail(advice, "text %d of %d has other tokens when the call is made again, in the opposite order", i+1,
				len(texts))
		}
	}
	for i, text := range usualTexts {
		alone := must(t.tokens(ctx, []string{text}))
		if !slices.Equal(told.Ends[i], alone.Ends[0]) || told.Around != alone.Around {
			return fail(advice, "text %d has other tokens when it is alone in its call", i+1)
		}
	}
	return Check{}
}

// tokensOfAll checks that tokens cover the whole text, of any length, and that an empty text has none.
func tokensOfAll(ctx context.Context, t *tester, texts []string, told embed.Tokens) Check {
	for i, text := range texts {
		if text == "" && len(told.Ends[i]) > 0 {
			return fail("leave out the tokens that the model puts around a text: their number is around",
				`the text "" has %d tokens`, len(told.Ends[i]))
		}
	}
	usual := told.Ends[:len(usualTexts)]
	longest := long(t.bytes(segment))
	more := must(t.tokens(ctx, []string{longest}))
	for i, ends := range append(slices.Clone(usual), more.Ends[0]) {
		text := longest
		if i < len(usual) {
			text = usualTexts[i]
		}
		if len(ends) == 0 || ends[len(ends)-1] <= strings.LastIndexByte(text, ' ') {
			return fail("return the tokens of the whole text, not only of the part that the model reads: long texts are cut by them",
				"the last words of %s are in no token", size(1, len(text)))
		}
	}
	return Check{}
}

// tokensOfModel checks that an unknown model is refused.
func tokensOfModel(ctx context.Context, t *tester, _ []string, _ embed.Tokens) Check {
	ctx, cancel := context.WithTimeout(ctx, t.opts.CallTimeout(1, len(usualTexts[0])))
	defer cancel()
	_, err := t.run.Client().Tokenize(ctx, &pluginpb.TokenizeRequest{Model: "no-such-" + t.about.Model, Texts: usualTexts[:1]})
	return t.refusal(strangeModel, err, modelCodes...)
}

// tokensAsEmbedded checks that Embed reports the same number of tokens, if any.
func tokensAsEmbedded(ctx context.Context, t *tester, _ []string, told embed.Tokens) Check {
	at := 0
	for _, call := range t.split(usualTexts) {
		results := must(t.ask(ctx, embed.Document, call))
		for _, r := range results {
			want := len(told.Ends[at]) + told.Around
			at++
			if r.Tokens > 0 && !r.Truncated && r.Tokens != want {
				return warn("report in Embed the tokens that the model saw, those around the text included, and here those of the text, and around it",
					"Embed reports %d tokens of a text, here it has %d and %d around it", r.Tokens, want-told.Around, told.Around)
			}
		}
	}
	return Check{}
}

// tokensUpToLimit checks that Embed cuts a text if and only if its tokens exceed the limit.
func tokensUpToLimit(ctx context.Context, t *tester, _ []string, told embed.Tokens) Check {
	most := t.about.MaxTokens
	if most == 0 {
		return Check{}
	}
	room := most - told.Around
	if room < 1 {
		return fail("max_tokens counts the tokens around a text, too", "of max_tokens %d, %d are around a text", most,
			told.Around)
	}
	text := long(t.bytes(most*16 + 1<<10))
	whole := must(t.tokens(ctx, []string{text}))
	ends := whole.Ends[0]
	if len(ends) <= room {
		return Check{} // the sidecar never sends a text of that length
	}
	for _, n := range []int{room, room + 1} {
		piece := text[:ends[n-1]]
		counted := must(t.tokens(ctx, []string{piece})) // the end of a text can change its last tokens
		results := must(t.ask(ctx, embed.Document, []string{piece}))
		tokens, fits := len(counted.Ends[0]), len(counted.Ends[0]) <= room
		if cut := results[0].Truncated || results[0].Err != nil; cut == fits {
			is := map[bool]string{true: "is cut", false: "is not cut"}[cut]
			return fail("a text of n tokens must be read whole as long as n + around <= max_tokens, and is cut above; count what stands around it, prefixes included",
				"a text of %d tokens, with %d around it, %s at max_tokens %d", tokens, told.Around, is, most)
		}
	}
	return Check{}
}
