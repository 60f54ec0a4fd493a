package model_test

import (
	"math"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/plugins/onnx/model"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxtest"
)

func openPairs(t *testing.T, m onnxtest.Pairs, change func(files map[string]string)) (*model.Model, error) {
	t.Helper()
	files := m.Files()
	if change != nil {
		change(files)
	}
	return openWith(t, model.Options{Folder: writeFolder(t, files), Threads: 2})
}

// answers are texts of all lengths; some are cut.
func answers() []string {
	texts := []string{"a", "bc de", "", "zzz", "a b c d e f g", "9 8 7 6 5", "q", "xy"}
	for n := 1; n < 60; n += 7 {
		texts = append(texts, strings.Repeat("k2 ", n), strings.Repeat("m ", n)+"end")
	}
	return texts
}

// cutPair cuts a pair like the reference: the longer one first.
func cutPair(query, text []int32, room int) ([]int32, []int32) {
	for len(query)+len(text) > room {
		if len(query) > len(text) {
			query = query[:len(query)-1]
		} else {
			text = text[:len(text)-1]
		}
	}
	return query, text
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// TestRerank_IsThatOfPlainSums compares the scores with those of the same cross-encoder in plain Go.
func TestRerank_IsThatOfPlainSums(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(m *onnxtest.Pairs){
		"as BERT puts pairs together":    func(*onnxtest.Pairs) {},
		"without types":                  func(m *onnxtest.Pairs) { m.Types = nil },
		"as RoBERTa puts pairs together": func(m *onnxtest.Pairs) { m.Types, m.Roberta = nil, true },
	} {
		tiny := onnxtest.CrossEncoder(8, 7)
		change(&tiny)
		m, err := openPairs(t, tiny, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		about := m.Describe()
		if !about.Reranks || about.Dims != 1 || about.Sparse || about.MaxTokens != 2*onnxtest.TinyTokens {
			t.Errorf("%s: described as %+v", name, about)
		}
		around := 3
		if tiny.Roberta {
			around = 4
		}
		for _, query := range []string{"what is it", "k2", strings.Repeat("long ", 30), strings.Repeat("m ", 14)} {
			texts := answers()
			scores, err := m.Rerank(t.Context(), query, texts)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for i, text := range texts {
				q, b := cutPair(tiny.Tokens(query), tiny.Tokens(text), about.MaxTokens-around)
				if want := sigmoid(tiny.Score(q, b)); math.Abs(float64(scores[i])-want) > 1e-5 {
					t.Errorf("%s: %.20q, %.20q: score %g, want %g", name, query, text, scores[i], want)
				}
			}
		}
	}
}

// TestRerank_FollowsTheFolder: the activation and its source are described.
func TestRerank_FollowsTheFolder(t *testing.T) {
	t.Parallel()
	tiny := onnxtest.CrossEncoder(8, 7)
	config := tiny.Files()["config.json"]
	want := tiny.Score(tiny.Tokens("q"), tiny.Tokens("some text"))
	prints := map[string]bool{}
	for _, test := range []struct {
		config, said, source string
		score                float64
	}{
		{"", "sigmoid", "not stated", sigmoid(want)},
		{`, "sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}`, "the graph's number, any", "config.json", want},
		{`, "sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid"}}`, "sigmoid", "config.json", sigmoid(want)},
	} {
		m, err := openPairs(t, tiny, func(files map[string]string) {
			if test.config != "" {
				files["config.json"] = strings.TrimSuffix(config, "}") + test.config
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		scores, err := m.Rerank(t.Context(), "q", []string{"some text"})
		if err != nil || math.Abs(float64(scores[0])-test.score) > 1e-5 {
			t.Errorf("%s: %v, %v, want %g", test.config, scores, err, test.score)
		}
		said := m.Describe().Settings
		if said[0].Name != "score" || !strings.HasPrefix(said[0].Value, test.said) || !strings.HasPrefix(said[0].Source, test.source) {
			t.Errorf("%s: said %+v", test.config, said)
		}
		prints[m.Describe().Fingerprint] = true
	}
	if len(prints) != 2 {
		t.Errorf("%d fingerprints, want one for each meaning of a score", len(prints))
	}
}

// TestRerank_RefusesWhatItWouldNotFollow: unsupported settings are refused.
func TestRerank_RefusesWhatItWouldNotFollow(t *testing.T) {
	t.Parallel()
	tiny := onnxtest.CrossEncoder(8, 7)
	replace := func(name, old, with string) func(map[string]string) {
		return func(files map[string]string) { files[name] = strings.Replace(files[name], old, with, 1) }
	}
	for want, change := range map[string]func(map[string]string){
		"is neither Sigmoid nor Identity": replace("config.json", `{"arch`, `{"sbert_ce_default_activation_function": "x.Tanh", "arch`),
		"how a pair of texts is put together": replace("tokenizer.json",
			`"post_processor": {"type": "BertProcessing", "cls": ["[CLS]", 2], "sep": ["[SEP]", 3]}`, `"post_processor":
			{"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A",
			"type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}], "pair": [], "special_tokens":
			{"[CLS]": {"ids": [2]}, "[SEP]": {"ids": [3]}}}`),
		"leaves no room": replace("config.json", `"max_position_embeddings": 32`, `"max_position_embeddings": 4`),
	} {
		if _, err := openPairs(t, tiny, change); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
