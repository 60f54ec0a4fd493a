package model

import (
	"strings"
	"testing"
)

// The combination of the two files in transformers 5.23, by class.
func TestTokenizerConfig_ByClass(t *testing.T) {
	t.Parallel()
	const (
		bytes = `{"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": true}}`
		words = `{"normalizer": {"type": "BertNormalizer", "lowercase": false, "strip_accents": null, "handle_chinese_chars": true}}`
	)
	truth := func(b bool) *bool { return &b }
	for _, test := range []struct {
		file   string
		config tokenizerConfig
		want   string // in the result; "": unchanged
	}{
		{bytes, tokenizerConfig{Class: "RobertaTokenizer"}, `"add_prefix_space":false`},
		{bytes, tokenizerConfig{Class: "GPT2TokenizerFast"}, `"add_prefix_space":false`},
		{bytes, tokenizerConfig{Class: "RobertaTokenizer", PrefixSpace: truth(true)}, ""},
		{bytes, tokenizerConfig{Class: "PreTrainedTokenizerFast", PrefixSpace: truth(false)}, ""},
		{bytes, tokenizerConfig{}, ""},
		{words, tokenizerConfig{Class: "BertTokenizerFast"}, `"lowercase":true`},
		{words, tokenizerConfig{Class: "SqueezeBertTokenizer"}, `"lowercase":true`},
		{words, tokenizerConfig{Class: "BertTokenizer", Lowercase: truth(false)}, ""},
		{words, tokenizerConfig{Class: "ConvBertTokenizer", Lowercase: truth(true)}, ""},
		{words, tokenizerConfig{Class: "TokenizersBackend", Lowercase: truth(true)}, ""},
		{words, tokenizerConfig{Class: "RobertaTokenizer"}, ""},
	} {
		got, err := test.config.apply([]byte(test.file))
		if err != nil {
			t.Fatal(err)
		}
		if changed := string(got) != test.file; changed != (test.want != "") || !strings.Contains(string(got), test.want) ||
			changed != (test.config.changed != "") {
			t.Errorf("%s of %s: %s, noted as %q, want %q in it", test.config.Class, test.file, got, test.config.changed,
				test.want)
		}
	}
}
