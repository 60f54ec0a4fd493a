package wordpiece_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/plugins/onnx/wordpiece"
)

const small = `{
	"truncation": {"max_length": 2}, "padding": {"strategy": {"Fixed": 128}},
	"added_tokens": [{"id": 1, "content": "[CLS]", "special": true}, {"id": 2, "content": "[SEP]", "special": true}],
	"normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null,
	"lowercase": true},
	"pre_tokenizer": {"type": "BertPreTokenizer"},
	"post_processor": {"type": "TemplateProcessing",
		"single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}},
		{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
		"special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [1]}, "[SEP]": {"id": "[SEP]", "ids": [2]}}},
	"model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
	"max_input_chars_per_word": 100,
		"vocab": {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "a": 3}}}`

func TestNew_IgnoresTruncationAndPadding(t *testing.T) {
	tok, err := wordpiece.New([]byte(small))
	if err != nil {
		t.Fatal(err)
	}
	if ids, info := tok.Encode(nil, "a a a a", 0); len(ids) != 6 || info.Truncated {
		t.Errorf("got %v, truncated %t, want 6 tokens", ids, info.Truncated)
	}
	if tok.Around() != 2 || tok.MaxID() != 3 {
		t.Errorf("got %d tokens around and %d as largest id, want 2 and 3", tok.Around(), tok.MaxID())
	}
}

func TestNew_RefusesWhatItWouldNotTokenizeExactly(t *testing.T) {
	for _, test := range []struct{ old, new, want string }{
		{`"type": "WordPiece"`, `"type": "BPE"`, `model type "BPE" is not supported, only "WordPiece" is`},
		{`"vocab": {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "a": 3}`, `"vocab": [["a", -1.5]]`, `vocab`},
		{`"type": "WordPiece"`, `"type": null`, `model type "none"`},
		{`"BertNormalizer"`, `"NFKC"`, `normalizer type "NFKC"`},
		{`"BertPreTokenizer"`, `"ByteLevel"`, `pre_tokenizer type "ByteLevel"`},
		{`"TemplateProcessing"`, `"RobertaProcessing"`, `cls and sep must be pairs`},
		{`"lowercase": true`, `"lowercase": false`, `only uncased`},
		{`"clean_text": true`, `"clean_text": false`, `clean_text=false`},
		{`"handle_chinese_chars": true`, `"handle_chinese_chars": false`, `handle_chinese_chars=false`},
		{`"strip_accents": null`, `"strip_accents": false`, `strip_accents=false`},
		{`"unk_token": "[UNK]"`, `"unk_token": "<unk>"`, `unk_token "<unk>" is not in the vocabulary`},
		{`"##"`, `""`, `continuing_subword_prefix is empty`},
		{`"max_input_chars_per_word": 100`, `"max_input_chars_per_word": 0`, `max_input_chars_per_word=0`},
		{`"a": 3`, `"a": -3`, `id -3`},
		{`"a": 3`, `"a": 3000000000`, `id 3000000000`},
		{`"a": 3`, `"": 3`, `token 3 is empty`},
		{`"id": 2, "content": "[SEP]", `, `"id": 2, "content": "[SEP]", "single_word": true, `, `"[SEP]" has single_word or normalized`},
		{`"id": 2, "content": "[SEP]", `, `"id": 2, "content": "", `, `token 2 is empty`},
		{`{"Sequence": {"id": "A", "type_id": 0}}, `, ``, `the text 0 times`},
		{`"Sequence": {"id": "A", "type_id": 0}`, `"Sequence": {"id": "A", "type_id": 1}`, `token types other than 0`},
		{`"normalizer": {`, `"normalizer_": {`, `normalizer type "none"`},
		{`"pre_tokenizer": {`, `"pre_tokenizer_": {`, `pre_tokenizer type "none"`},
		{`"added_tokens": [`, `"added_tokens": 5, "x": [`, `parse`},
	} {
		content := strings.Replace(small, test.old, test.new, 1)
		if content == small {
			t.Fatalf("nothing replaced for %q", test.old)
		}
		_, err := wordpiece.New([]byte(content))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s -> %s: got error %v, want one with %q", test.old, test.new, err, test.want)
		}
	}
}

// For any file, New returns an error or a usable tokenizer.
func FuzzNew(f *testing.F) {
	f.Add([]byte(small))
	f.Add([]byte(`{"post_processor": {"type": "BertProcessing", "cls": ["[CLS]", 1e99], "sep": [1, "x"]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		tok, err := wordpiece.New(data)
		if err != nil {
			return
		}
		if !json.Valid(data) {
			t.Fatal("read a file that is not JSON")
		}
		for _, limit := range []int{0, 1, 16} {
			tok.Encode(nil, "a [CLS] \u00e9\uac01", limit)
		}
	})
}
