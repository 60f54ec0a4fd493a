package conformance

import (
	"context"
	"slices"

	"github.com/embedsidecar/embedsidecar/embed"
)

// together embeds texts in calls as large as the plugin accepts.
func (t *tester) together(ctx context.Context, kind embed.Kind, texts []string) ([][]float32, error) {
	var list [][]float32
	for _, call := range t.split(texts) {
		v, err := t.vectors(ctx, kind, call)
		if err != nil {
			return nil, err
		}
		list = append(list, v...)
	}
	return list, nil
}

func checkOrder(ctx context.Context, t *tester) Check {
	alone := must(t.alone(ctx))
	// In reverse and with each text twice, to detect sorting and deduplication.
	texts := slices.Concat(usualTexts, usualTexts)
	slices.Reverse(texts)
	wants := slices.Concat(alone, alone)
	slices.Reverse(wants)
	got := must(t.together(ctx, embed.Document, texts))
	wrong := 0
	for i, v := range got {
		own := t.distance(wants[i], v)
		if own > small && slices.ContainsFunc(alone, func(other []float32) bool { return t.distance(other, v) < own/2 }) {
			wrong++
		}
	}
	if wrong > 0 {
		return fail("if texts are sorted or merged before they are embedded, put the vectors back into the order of the request",
			"%d of %d vectors of a batch belong to other texts of it", wrong, len(texts))
	}
	equal := 0
	for i, v := range alone {
		if i > 0 && t.distance(alone[0], v) < 1e-6 {
			equal++
		}
	}
	if equal == len(alone)-1 {
		return fail("compute vectors from the texts", "%d different texts all have the same vector", len(alone))
	}
	if equal > 0 {
		return warn("such a model cannot tell these texts apart", "%d of %d different texts have the same vector", equal+1,
			len(alone))
	}
	return pass("%d texts, each twice, backwards", len(usualTexts))
}

// compared is the largest distance between two lists of vectors.
func (t *tester) compared(a, b [][]float32) (farthest float64, identical bool) {
	identical = true
	for i := range a {
		farthest = max(farthest, t.distance(a[i], b[i]))
		identical = identical && same(a[i], b[i])
	}
	return farthest, identical
}

// judge makes a finding of the difference between vectors of the same texts.
func (t *tester) judge(where string, a, b [][]float32, advice string) Check {
	farthest, identical := t.compared(a, b)
	switch {
	case identical:
		return pass("%s: bit for bit the same", where)
	case farthest > small:
		return fail(advice, "%s: vectors differ by up to %.3g of their length (cosine about %.5f)", where, farthest,
			1-farthest*farthest/2)
	case t.about.Deterministic:
		return fail("describe deterministic = false, or make it true: "+advice,
			"%s: described as deterministic, but vectors differ by up to %.3g of their length", where, farthest)
	case farthest > tiny:
		return warn(advice, "%s: vectors differ by up to %.3g of their length", where, farthest)
	}
	return pass("%s: rounding only, %.2g of the length", where, farthest)
}

func checkDeterminism(ctx context.Context, t *tester) Check {
	first := must(t.together(ctx, embed.Document, usualTexts))
	second := must(t.together(ctx, embed.Document, usualTexts))
	if f := t.judge("the same call twice", first, second,
		"switch off dropout and sampling (evaluation mode), set seeds, fix the number of threads"); f.Verdict != Pass {
		return f
	}
	t.stop()
	third := must(t.together(ctx, embed.Document, usualTexts))
	return t.judge("the same call after a restart", first, third,
		"nothing that changes with each start (weights, seeds, hash seeds of the language) may reach a vector")
}

func checkBatchInvariance(ctx context.Context, t *tester) Check {
	alone := must(t.alone(ctx))
	const advice = "padding must not reach the result: pass the attention mask, pool over real tokens only; int8 models with one scale per batch need one text a run"
	texts := append(slices.Clone(usualTexts), sentence(77, 300)) // one is much longer, so the others are padded
	if len(texts[len(texts)-1]) > t.bytes(1<<20) {
		texts = texts[:len(usualTexts)]
	}
	got := must(t.together(ctx, embed.Document, texts))
	return t.judge("alone and beside longer texts", alone, got[:len(alone)], advice)
}

func checkKinds(ctx context.Context, t *tester) Check {
	documents := must(t.alone(ctx))
	var queries [][]float32
	for _, text := range usualTexts {
		v := must(t.vectors(ctx, embed.Query, []string{text}))
		queries = append(queries, v[0])
	}
	farthest, _ := t.compared(documents, queries)
	switch {
	case t.symmetric && farthest > small:
		return fail("describe symmetric = false", "described as symmetric, but queries have other vectors than documents")
	case !t.symmetric && farthest < 1e-6:
		return warn("describe symmetric = true, or use the kind (a prefix, for most models)",
			"described as not symmetric, but queries have the vectors of documents")
	case t.symmetric:
		return pass("symmetric, as described")
	}
	return pass("queries differ from documents by up to %.2g of the length, as described", farthest)
}
