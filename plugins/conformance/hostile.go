package conformance

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/embedsidecar/embedsidecar/embed"
)

func checkUnicode(ctx context.Context, t *tester) Check {
	var results []embed.Result
	for _, call := range t.split(strangeTexts) {
		r, err := t.ask(ctx, embed.Document, call)
		if err != nil {
			abandon(suspect(err, func(texts []string) error {
				_, err := t.ask(ctx, embed.Document, texts)
				return err
			}))
		}
		results = append(results, r...)
	}
	var without []string
	for i, r := range results {
		if r.Err != nil {
			without = append(without, fmt.Sprintf("%s (%s)", strange[i].what, r.Err))
		}
	}
	if len(without) > 0 {
		return warn("such texts occur in every table: give each a vector, as their rows stay without one", "no vector for %s",
			strings.Join(without, ", "))
	}
	return pass("%d kinds of strange text", len(strange))
}

func checkEmpty(ctx context.Context, t *tester) Check {
	alone := must(t.alone(ctx))
	for _, text := range nothing {
		if _, err := t.ask(ctx, embed.Document, []string{text}); err != nil {
			abandon(fmt.Errorf("a text of %q alone: %w", text, err))
		}
	}
	var texts []string // every second one is without content
	for i, text := range nothing {
		texts = append(texts, usualTexts[i], text)
	}
	empties, at := 0, 0
	for _, call := range t.split(texts) {
		results, err := t.ask(ctx, embed.Document, call)
		if err != nil {
			abandon(fmt.Errorf("texts without content between others: %w", err))
		}
		for _, r := range results {
			i, ordinary := at/2, at%2 == 0
			at++
			switch {
			case ordinary && (r.Vector == nil || t.distance(alone[i], r.Vector) > small):
				return fail("keep the place of a text without content, filled with zeros",
					"the neighbour of a text without content lost its vector")
			case ordinary:
			case r.Err != nil:
				return fail("mark such a text as empty in its outcome: its row then has no vector, which is right, instead of an error",
					"a text of %q: %s", nothing[i], r.Err)
			case r.Empty:
				empties++
			case nothing[i] == "":
				return warn("mark it as empty: a search would find rows without text", `the text "" has a vector`)
			}
		}
	}
	return pass("%d of %d texts without content are called empty", empties, len(nothing))
}

func checkHuge(ctx context.Context, t *tester) Check {
	bytes := t.bytes(math.MaxInt)
	results := must(t.ask(ctx, embed.Document, []string{long(bytes)}))
	how := "embedded"
	switch r := results[0]; {
	case r.Err != nil && strings.Contains(r.Err.Error(), "too_long"):
		how = "refused as too long"
	case r.Err != nil:
		return fail("cut it (truncated), or give it an error of the class TOO_LONG", "%s: %s", size(1, bytes), r.Err)
	case r.Truncated:
		how = "cut"
	}
	texts := sentences(5, t.batch(1024))
	total := 0
	for i := range texts {
		total += len(texts[i])
		if total > bytes {
			texts = texts[:max(1, i)]
			break
		}
	}
	must(t.vectors(ctx, embed.Document, texts))
	return pass("%s was %s, %d texts in one call were embedded", size(1, bytes), how, len(texts))
}

func checkTruncation(ctx context.Context, t *tester) Check {
	most := t.about.MaxTokens
	if most == 0 {
		return pass("max_tokens is not described")
	}
	bytes := t.bytes(most*16 + 1<<10)
	results := must(t.ask(ctx, embed.Document, []string{sentence(6, 1), long(max(bytes, 100))}))
	short, cut := results[0], results[1]
	switch {
	case short.Truncated:
		return fail("truncated is for texts that lost a part",
			"a text of a few words is called truncated, with max_tokens %d", most)
	case cut.Tokens > most:
		return fail("tokens counts what the model saw, after cutting", "%d tokens of a text are reported, with max_tokens %d",
			cut.Tokens, most)
	case cut.Err != nil && strings.Contains(cut.Err.Error(), "too_long"):
		return warn("cut at max_tokens if you can: the row stays without a vector",
			"a text above max_tokens is refused as too long")
	case cut.Err != nil:
		return fail("cut it, or give it an error of the class TOO_LONG", "a text above max_tokens: %s", cut.Err)
	case !cut.Truncated && bytes == most*16+1<<10:
		return fail("set truncated in the text's outcome: operators want to know",
			"a text far above max_tokens (%d) is not reported as truncated", most)
	case cut.Tokens == 0:
		return warn("report tokens if the tokenizer tells them: they are counted in the metrics",
			"a text above max_tokens is truncated; its tokens are not reported")
	}
	return pass("cut at %d of %d tokens", cut.Tokens, most)
}
