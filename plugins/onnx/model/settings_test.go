package model_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/model"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxtest"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/tokenizers"
)

func mustOpenTiny(t testing.TB, changes map[string]string) *model.Model {
	t.Helper()
	m, err := openTiny(t, changes)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func wantVector(t testing.TB, m *model.Model, kind embed.Kind, text string, want ...float32) {
	t.Helper()
	results, err := m.Embed(t.Context(), kind, []string{text})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(results[0].Vector, want) {
		t.Errorf("Embed(%s, %q) = %v, want %v", kind, text, results[0].Vector, want)
	}
}

// cased is case-sensitive, unless tokenizer_config.json says otherwise.
var cased = strings.Replace(tiny.Files()["tokenizer.json"], `"lowercase": true`,
	`"strip_accents": null, "lowercase": false`, 1)

const (
	clsPooling = `{"pooling_mode_cls_token": true}`
	lowercase  = `{"tokenizer_class": "BertTokenizer", "do_lower_case": true}`
	normalized = `[{"path": "", "type": "x.Transformer"}, {"path": "1_Pooling", "type": "x.Pooling"}, {"path": "2", "type": "x.Normalize"}]`
	prompts    = `{"prompts": {"query": "query ", "passage": "passage "}}`
)

// The tokens of "a" are [CLS] a [SEP] = {1,1,0} {4,0,0} {0,1,1}.
func TestOpen_FollowsTheSettings(t *testing.T) {
	t.Run("mean", func(t *testing.T) {
		m := mustOpenTiny(t, nil)
		wantVector(t, m, embed.Document, "a", 5./3, 2./3, 1./3)
		wantVector(t, m, embed.Query, "a", 5./3, 2./3, 1./3)
		if about := m.Describe(); !about.Symmetric || about.Name != "tiny" || about.MaxTokens != 16 || !about.Deterministic {
			t.Errorf("got %+v", about)
		}
	})
	t.Run("a bare encoder as the user states", func(t *testing.T) {
		m, err := tryTiny(t, model.Options{Settings: model.Settings{Pooling: "mean"}}, map[string]string{"modules.json": ""})
		if err != nil {
			t.Fatal(err)
		}
		wantVector(t, m, embed.Document, "a", 5./3, 2./3, 1./3)
	})
	t.Run("first token", func(t *testing.T) {
		wantVector(t, mustOpenTiny(t, map[string]string{"1_Pooling/config.json": clsPooling}), embed.Document, "a b a b", 1,
			1, 0)
	})
	t.Run("pooled by the graph", func(t *testing.T) {
		m := mustOpenTiny(t, map[string]string{"modules.json": "", "model.onnx": tinyWith(pooled)})
		wantVector(t, m, embed.Document, "a b", 4, 8, 1)
	})
	t.Run("length 1", func(t *testing.T) {
		m := mustOpenTiny(t, map[string]string{"modules.json": normalized, "1_Pooling/config.json": clsPooling})
		wantVector(t, m, embed.Document, "a", 0.70710677, 0.70710677, 0)
	})
	t.Run("prefixes", func(t *testing.T) {
		m := mustOpenTiny(t, map[string]string{"config_sentence_transformers.json": prompts})
		wantVector(t, m, embed.Document, "a", 5./4, 2./4, 25./4)
		wantVector(t, m, embed.Query, "a", 5./4, 2./4, 13./4)
		wantVector(t, m, embed.Query, " ") // the prefix does not make it non-empty
		if m.Describe().Symmetric {
			t.Error("symmetric, with two prefixes")
		}
	})
	t.Run("prefix for all", func(t *testing.T) {
		m := mustOpenTiny(t, map[string]string{"config_sentence_transformers.json": `{"prompts": {"x": "query "}, "default_prompt_name": "x"}`})
		wantVector(t, m, embed.Document, "a", 5./4, 2./4, 13./4)
	})
	t.Run("limit of tokens", func(t *testing.T) {
		for want, changes := range map[int]map[string]string{
			16: nil,
			64: {"sentence_bert_config.json": ""},
			32: {"sentence_bert_config.json": "", "tokenizer_config.json": `{"model_max_length": 32}`},
			63: {"sentence_bert_config.json": `{"max_seq_length": 63}`, "tokenizer_config.json": `{"model_max_length": 1e30}`},
		} {
			m := mustOpenTiny(t, changes)
			result := mustEmbed(t, m, strings.Repeat("a ", 100))[0]
			if m.Describe().MaxTokens != want || result.Tokens != want || !result.Truncated {
				t.Errorf("%v: limit %d, saw %d tokens, truncated %t, want %d", changes, m.Describe().MaxTokens, result.Tokens,
					result.Truncated, want)
			}
		}
	})
}

func TestOpen_RefusesSettingsItWouldNotFollow(t *testing.T) {
	for _, test := range []struct{ file, content, want string }{
		{"sentence_bert_config.json", `{"max_seq_length": 2}`, "limit of 2 tokens is not between 3 and 64"},
		{"sentence_bert_config.json", `{"max_seq_length": 65}`, "limit of 65 tokens is not between 3 and 64"},
		{"sentence_bert_config.json", `{"max_seq_length": 16, "do_lower_case": true}`, "do_lower_case=true"},
		{"sentence_bert_config.json", `{`, "parse sentence_bert_config.json"},
		{"modules.json", `[{"path": "", "type": "x.Transformer"}, {"path": "1_Pooling", "type": "x.Pooling"}, {"path": "2", "type": "x.Dense"}]`, "read the settings of a dense layer 2/config.json"},
		{"modules.json", `[]`, "modules.json"},
		{"modules.json", "", "no file of the folder states how tokens are pooled"},
		{"modules.json", `[{"path": "", "type": "x.Transformer"}, {"path": "1_Pooling", "type": "x.Pooling"}, {"path": "2", "type": "x.CNN"}]`, "CNN is not supported"},
		{
			"modules.json", `[{"path": "", "type": "x.Transformer"}, {"path": "../../etc", "type": "x.Pooling"}]`,
			"../../etc/config.json",
		},
		{"1_Pooling/config.json", `{"pooling_mode_best_tokens": true}`, `pooling ["best_tokens"] is none of`},
		{
			"1_Pooling/config.json", `{"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": true}`,
			`pooling ["cls_token" "mean_tokens"]`,
		},
		{"1_Pooling/config.json", `{"pooling_mode_mean_tokens": true, "include_prompt": false}`, "include_prompt=false"},
		{"1_Pooling/config.json", "", "1_Pooling/config.json"},
		{
			"config.json", `{"max_position_embeddings": 64, "vocab_size": 7, "hidden_size": 3}`,
			"tokens up to 7, the model knows 7",
		},
		{"tokenizer.json", `{"model": {"type": "Unigram"}}`, "read tokenizer.json"},
		{"tokenizer_config.json", `{"truncation_side": "middle"}`, `truncation_side "middle"`},
		{"tokenizer.json", "", "tokenizer.json"},
		{"model.onnx", "", "model.onnx"},
		{"model.onnx", "no graph", "parse ONNX"},
		{"model.onnx", tinyWith(func(m *onnxtest.Tiny) { m.Input = "pixel_values" }), `input "pixel_values" (int64[?,?])`},
		{
			"model.onnx", tinyWith(func(m *onnxtest.Tiny) { m.Output = "logits" }),
			`only "logits" (float32[?,?,3]); logits for each token are what a sparse model gives`,
		},
		{"model.onnx", tinyWith(func(m *onnxtest.Tiny) { m.Type = 11 }), `only "last_hidden_state" (float64[?,?,3])`},
		{
			"model.onnx", tinyWith(func(m *onnxtest.Tiny) { m.Tokens = 16 }),
			`input "input_ids" (int64[?,16]) is not for any number of texts and tokens`,
		},
		{"model.onnx", tinyWith(func(m *onnxtest.Tiny) { m.Texts = 8 }), `(int64[8,?]) is not for any number`},
	} {
		_, err := openTiny(t, map[string]string{test.file: test.content})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s = %.80q: got error %v, want one with %q", test.file, test.content, err, test.want)
		}
	}
}

// The fingerprint changes if and only if vectors can change.
func TestOpen_Fingerprint(t *testing.T) {
	seen := map[string]string{mustOpenTiny(t, nil).Describe().Fingerprint: "as it is"}
	if len(seen) != 1 || seen[mustOpenTiny(t,
		map[string]string{"README.md": "other words"}).Describe().Fingerprint] == "" {
		t.Error("a file that no vector depends on changes the fingerprint")
	}
	for name, changes := range map[string]map[string]string{
		"weights":    {"model.onnx": tinyWith(pooled)},
		"pooling":    {"1_Pooling/config.json": clsPooling},
		"normalize":  {"modules.json": normalized},
		"prefixes":   {"config_sentence_transformers.json": prompts},
		"max tokens": {"sentence_bert_config.json": `{"max_seq_length": 15}`},
		"lowercase":  {"tokenizer.json": cased, "tokenizer_config.json": lowercase},
		"tokenizer":  {"tokenizer.json": strings.Replace(tiny.Files()["tokenizer.json"], `"a":4`, `"aa":4`, 1)},
	} {
		fingerprint := mustOpenTiny(t, changes).Describe().Fingerprint
		if other, ok := seen[fingerprint]; ok {
			t.Errorf("%s: the same fingerprint as %s", name, other)
		}
		seen[fingerprint] = name
	}
}

// If the two files disagree, transformers uses tokenizer_config.json.
func TestOpen_TokenizerConfigWins(t *testing.T) {
	for _, config := range []string{
		lowercase,
		`{"do_lower_case": true, "strip_accents": null, "tokenize_chinese_chars": true}`,
		`{"tokenizer_class": "BertTokenizerFast"}`,
	} {
		m := mustOpenTiny(t, map[string]string{"tokenizer.json": cased, "tokenizer_config.json": config})
		wantVector(t, m, embed.Document, "\u00c1", 5./3, 2./3, 1./3) // a, without the accent
	}
	typed := func(kind string) string {
		return strings.Replace(tiny.Files()["config.json"], "{", `{"model_type": "`+kind+`", `, 1)
	}
	// which names the class
	m := mustOpenTiny(t, map[string]string{
		"tokenizer.json": cased, "tokenizer_config.json": `{}`,
		"config.json": typed("bert"),
	})
	wantVector(t, m, embed.Document, "\u00c1", 5./3, 2./3, 1./3)
	same := mustOpenTiny(t, nil).Describe().Fingerprint
	for kind, config := range map[string]string{
		"modernbert": `{"do_lower_case": false}`, "bert": `{}`,
		"roberta": `{"tokenizer_class": "ConvBertTokenizer", "do_lower_case": false}`,
	} {
		m := mustOpenTiny(t, map[string]string{"tokenizer_config.json": config, "config.json": strings.Replace(typed(kind),
			"64", "66", 1)})
		if got := m.Describe().Fingerprint; got != same {
			t.Errorf("%s with %s changes nothing and gives another fingerprint", kind, config)
		}
	}
	for _, config := range []string{
		lowercase, `{"strip_accents": true}`,
		`{"do_lower_case": false, "tokenizer_class": "PreTrainedTokenizerFast"}`, `{"add_prefix_space": true}`,
	} {
		if got := mustOpenTiny(t, map[string]string{"tokenizer_config.json": config}).Describe().Fingerprint; got != same {
			t.Errorf("%s changes nothing and gives another fingerprint", config)
		}
	}
	// Settings that only the crate supports are not ignored.
	m, err := openTiny(t, map[string]string{"tokenizer_config.json": `{"do_lower_case": false}`})
	if !tokenizers.Linked {
		wantError(t, err, "lowercase=false")
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	wantVector(t, m, embed.Document, "a", 5./3, 2./3, 1./3)
	wantVector(t, m, embed.Document, "A", 2./3, 2./3, 1./3) // [UNK]
}

// The graph has no mask, so padding and other texts would change a vector.
func TestOpen_AGraphWithoutAMaskGetsTextsAlone(t *testing.T) {
	unmasked := func(m *onnxtest.Tiny) {
		m.Pooled, m.Table = true, slices.Clone(m.Table)
		m.Table[0] = []float32{99, -99, 99}
	}
	for name, graph := range map[string]string{
		"no mask": tinyWith(unmasked), "one text at a time": tinyWith(func(m *onnxtest.Tiny) { m.Pooled, m.Texts = true, 1 }),
	} {
		m := mustOpenTiny(t, map[string]string{"modules.json": "", "model.onnx": graph})
		results := mustEmbed(t, m, "a", "a b a b a b", "b")
		for i, want := range [][]float32{{4, 1, 1}, {4, 8, 1}, {1, 8, 1}} {
			if !slices.Equal(results[i].Vector, want) {
				t.Errorf("%s: text %d is %v, want %v", name, i, results[i].Vector, want)
			}
		}
		if about := m.Describe(); !about.Alone || !about.Deterministic {
			t.Errorf("%s: described as %+v", name, about)
		}
	}
	if m := mustOpenTiny(t, nil); m.Describe().Alone {
		t.Error("texts are run alone without need")
	}
}
