package model_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/model"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxtest"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/tokenizers"
)

// bpe is a tokenizer that only the crate supports: words and their letters, <s> text </s>. The vectors are {1,1,0} for
// <s>, {0,1,1} for </s>, {4,0,0} for a and {0,8,0} for b.
const bpe = `{"version": "1.0", "truncation": {"direction": "Left", "max_length": 4, "strategy": "LongestFirst", "stride": 0},
	"padding": {"strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
	"pad_type_id": 0, "pad_token": "<pad>"},
	"added_tokens": [{"id": 2, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
	"normalized": false, "special": true}],
	"normalizer": null, "pre_tokenizer": {"type": "WhitespaceSplit"}, "decoder": null,
	"post_processor": {"type": "BertProcessing", "cls": ["<s>", 2], "sep": ["</s>", 3]},
	"model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
	"end_of_word_suffix": null,
		"fuse_unk": false, "byte_fallback": false, "vocab": {"<pad>": 0, "<unk>": 1, "<s>": 2, "</s>": 3, "a": 4, "b": 5}, "merges": []}}`

func TestOpen_TokenizerOfTheCrate(t *testing.T) {
	files := map[string]string{"tokenizer.json": bpe}
	if !tokenizers.Linked {
		_, err := tryTiny(t, model.Options{}, files)
		if !errors.Is(err, tokenizers.ErrNotBuilt) {
			t.Errorf("got %v, want the build that has the crate", err)
		}
		wantError(t, err, `read tokenizer.json: model type "BPE" is not supported`, "go build -tags tokenizers")
		return
	}
	m, err := tryTiny(t, model.Options{}, files)
	if err != nil {
		t.Fatal(err)
	}
	wantVector(t, m, embed.Document, "a", 5./3, 2./3, 1./3)
	wantVector(t, m, embed.Document, "ab", 5./4, 10./4, 1./4)
	for _, empty := range []string{"", " \n", "<s>"} {
		if result := mustEmbed(t, m, empty)[0]; !result.Empty {
			t.Errorf("%q: got %+v, want it to be empty", empty, result)
		}
	}

	// The unknown token counts as content, even if the file marks it as special.
	unknown := strings.Replace(bpe, `"added_tokens": [`,
		`"added_tokens": [{"id": 1, "content": "<unk>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}, `, 1)
	if m, err = openTiny(t, map[string]string{"tokenizer.json": unknown}); err != nil {
		t.Fatal(err)
	}
	wantVector(t, m, embed.Document, "\u4f60", 2./3, 2./3, 1./3)

	// A text is cut at the same place, whatever its length.
	side := func(truncate string) *model.Model {
		m, err := tryTiny(t, model.Options{Settings: model.Settings{MaxTokens: 3, Truncate: truncate}}, files)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	rightSide, leftSide := side("right"), side("left")
	for _, middle := range []string{
		"b ", strings.Repeat("bb ", 1000), strings.Repeat("b", 100_000) + " ",
		strings.Repeat("  b", 100_000) + " ",
	} {
		for _, got := range []embed.Result{
			mustEmbed(t, rightSide, "a "+middle)[0], mustEmbed(t, rightSide, "a"+middle+"b")[0],
			mustEmbed(t, leftSide, middle+"a")[0],
		} {
			if !slices.Equal(got.Vector, []float32{5. / 3, 2. / 3, 1. / 3}) || !got.Truncated || got.Tokens != 3 {
				t.Errorf("a text of %d bytes: got %+v, want that of a, truncated", len(middle), got)
			}
		}
	}
	if got := mustEmbed(t, rightSide, strings.Repeat(" ", 1<<20)+"a"+strings.Repeat(" ", 1<<20))[0]; got.Truncated ||
		got.Tokens != 3 {
		t.Errorf("spaces: got %+v", got)
	}
}

func TestOpen_TokensOfSeveralTypes(t *testing.T) {
	if !tokenizers.Linked {
		t.Log("only the crate reads such tokenizers: this build says that it has none, see TestOpen_TokenizerOfTheCrate")
		return
	}
	typed := strings.Replace(bpe, `{"type": "BertProcessing", "cls": ["<s>", 2], "sep": ["</s>", 3]}`,
		`{"type": "TemplateProcessing",
		"single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<s>", "type_id": 2}}],
		"pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
		"special_tokens": {"<s>": {"id": "<s>", "ids": [2], "tokens": ["<s>"]}}}`, 1)
	if _, err := openTiny(t, map[string]string{"tokenizer.json": typed}); err != nil {
		t.Errorf("the graph takes no types: %v", err)
	}
	_, err := openTiny(t, map[string]string{
		"tokenizer.json": typed,
		"model.onnx":     tinyWith(func(m *onnxtest.Tiny) { m.Input = "token_type_ids" }),
	})
	wantError(t, err, "tokens of other types than 0")
}
