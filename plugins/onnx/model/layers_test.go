package model_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/model"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxtest"
)

// tensors returns a safetensors file of 32-bit numbers.
func tensors(shapes map[string][]int, numbers map[string][]float32) string {
	header, body := map[string]any{}, []byte{}
	for name, shape := range shapes {
		begin := len(body)
		for _, x := range numbers[name] {
			body = binary.LittleEndian.AppendUint32(body, math.Float32bits(x))
		}
		header[name] = map[string]any{"dtype": "F32", "shape": shape, "data_offsets": []int{begin, len(body)}}
	}
	head, err := json.Marshal(header)
	if err != nil {
		panic(err) // maps of strings and numbers
	}
	return string(binary.LittleEndian.AppendUint64(nil, uint64(len(head)))) + string(head) + string(body)
}

// denseFiles are a dense layer from three to two dims, in the folder 2_Dense, and its modules.json.
func denseFiles(activation string, bias bool, more ...string) map[string]string {
	shapes := map[string][]int{"linear.weight": {2, 3}}
	numbers := map[string][]float32{"linear.weight": {0.1, 0.2, 0, 0, -0.1, 0.5}}
	if bias {
		shapes["linear.bias"], numbers["linear.bias"] = []int{2}, []float32{0.5, -1}
	}
	modules := `[{"path": "", "type": "x.Transformer"}, {"path": "1_Pooling", "type": "x.Pooling"}, {"path": "2_Dense", "type": "x.Dense"}`
	for _, kind := range more {
		modules += fmt.Sprintf(`, {"path": "3", "type": "x.%s"}`, kind)
	}
	return map[string]string{
		"modules.json": modules + "]",
		"2_Dense/config.json": fmt.Sprintf(
			`{"in_features": 3, "out_features": 2, "bias": %t, "activation_function": "torch.nn.modules.%s"}`, bias, activation),
		"2_Dense/model.safetensors": tensors(shapes, numbers),
	}
}

// The mean of the text "a" is 5/3, 2/3, 1/3.
func TestOpen_DenseLayers(t *testing.T) {
	first, second := 0.1*5/3+0.2*2/3, -0.1*2/3+0.5/3
	length := math.Hypot(first, second)
	for name, test := range map[string]struct {
		files map[string]string
		want  []float64
	}{
		"linear":           {denseFiles("linear.Identity", false), []float64{first, second}},
		"with a bias":      {denseFiles("linear.Identity", true), []float64{first + 0.5, second - 1}},
		"tanh":             {denseFiles("activation.Tanh", true), []float64{math.Tanh(first + 0.5), math.Tanh(second - 1)}},
		"made length 1":    {denseFiles("linear.Identity", false, "Normalize"), []float64{first / length, second / length}},
		"and kept in part": {denseFiles("linear.Identity", false), []float64{first}},
	} {
		o := model.Options{}
		if len(test.want) == 1 {
			o.Settings.Dims = 1
		}
		m, err := tryTiny(t, o, test.files)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := mustEmbed(t, m, "a")[0].Vector
		if len(got) != len(test.want) || m.Describe().Dims != len(got) {
			t.Errorf("%s: %d dims, described %d, want %d", name, len(got), m.Describe().Dims, len(test.want))
			continue
		}
		for i, want := range test.want {
			if math.Abs(float64(got[i])-want) > 1e-6 {
				t.Errorf("%s: got %v, want %v", name, got, test.want)
				break
			}
		}
	}
	if linear, tanh := mustOpenTiny(t, denseFiles("linear.Identity", true)), mustOpenTiny(t,
		denseFiles("activation.Tanh", true)); linear.Describe().Fingerprint == tanh.Describe().Fingerprint {
		t.Error("another activation leaves the fingerprint as it is")
	}
}

func TestOpen_RefusesDenseLayers(t *testing.T) {
	short := tensors(map[string][]int{"linear.weight": {2, 2}}, map[string][]float32{"linear.weight": {1, 2, 3, 4}})
	never := tensors(map[string][]int{"linear.weight": {2, 3}},
		map[string][]float32{"linear.weight": {1, 2, 3, 4, 5, float32(math.NaN())}})
	for _, test := range []struct{ file, content, want string }{
		{"2_Dense/config.json", "", "2_Dense/config.json"},
		{"2_Dense/config.json", `{"in_features": 3, "out_features": 2, "bias": false, "activation_function": "torch.nn.ReLU"}`, `"torch.nn.ReLU" is neither Tanh nor Identity`},
		{"2_Dense/config.json", `{"in_features": 4, "out_features": 2, "bias": false, "activation_function": "x.Identity"}`, "has the shape [2 3], and config.json says [2 4]"},
		{"2_Dense/config.json", `{"in_features": 3, "out_features": 2, "activation_function": "x.Identity"}`, "no tensor linear.bias"},
		{"2_Dense/model.safetensors", "", "pytorch_model.bin"},
		{"2_Dense/model.safetensors", "no tensors", "no safetensors file"},
		{"2_Dense/model.safetensors", short, "has the shape [2 2]"},
		{"2_Dense/model.safetensors", never, "number 5 of tensor linear.weight is not finite"},
	} {
		files := denseFiles("linear.Identity", false)
		files[test.file] = test.content
		_, err := openTiny(t, files)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s = %.60q: got error %v, want one with %q", test.file, test.content, err, test.want)
		}
	}
}

// The tokens of "a b" are [CLS] a b [SEP]: 1 1 0, 4 0 0, 0 8 0, 0 1 1.
func TestOpen_WaysOfPooling(t *testing.T) {
	for mode, want := range map[string][]float32{
		"pooling_mode_max_tokens":           {4, 8, 1},
		"pooling_mode_weightedmean_tokens":  {0.9, 2.9, 0.4},
		"pooling_mode_mean_sqrt_len_tokens": {2.5, 5, 0.5},
		"pooling_mode_lasttoken":            {0, 1, 1},
	} {
		m := mustOpenTiny(t, map[string]string{"1_Pooling/config.json": `{"` + mode + `": true}`})
		wantVector(t, m, embed.Document, "a b", want...)
	}
}

// In some models prefixes have other names, and a limit is in another file.
func TestOpen_NamesOfOtherModels(t *testing.T) {
	for _, name := range []string{"search_query", "web_search_query", "retrieval.query", "s2p_query"} {
		m := mustOpenTiny(t, map[string]string{"config_sentence_transformers.json": `{"prompts": {"` + name + `": "query "}}`})
		wantVector(t, m, embed.Query, "a", 5./4, 2./4, 13./4)
		wantVector(t, m, embed.Document, "a", 5./3, 2./3, 1./3)
	}
	m := mustOpenTiny(t, map[string]string{
		"sentence_bert_config.json": "", "sentence_roberta_config.json": `{"max_seq_length": 12}`,
	})
	if got := m.Describe().MaxTokens; got != 12 {
		t.Errorf("%d tokens, want 12", got)
	}
}

// A model's settings are described with their sources, including defaults.
func TestOpen_SaysWhatItGoesBy(t *testing.T) {
	said := func(m *model.Model) map[string]string {
		all := map[string]string{}
		for _, s := range m.Describe().Settings {
			all[s.Name] = s.Value + " | " + s.Source
		}
		return all
	}
	long := `{"max_position_embeddings": 32768, "vocab_size": 8, "hidden_size": 3, "_name_or_path": "intfloat/e5-small-v2", "model_type": "bert"}`
	got := said(mustOpenTiny(t, map[string]string{"sentence_bert_config.json": "", "config.json": long}))
	for name, want := range map[string]string{
		"pooling":      "mean | 1_Pooling/config.json",
		"normalize":    "false | modules.json",
		"max_tokens":   "8192 | config.json, which says 32768: at most 8192 are read",
		"query_prefix": " | not stated by any file",
	} {
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
	if !strings.Contains(got["card"], `query_prefix: "query: "`) {
		t.Errorf("the card's prefixes are not offered: %q", got["card"])
	}
	graph := tinyWith(func(m *onnxtest.Tiny) { m.Pooled, m.Output = true, "text_embeds" })
	if got := said(mustOpenTiny(t, map[string]string{"modules.json": "", "model.onnx": graph})); got["pooling"] !=
		"graph | model.onnx, its output text_embeds" {
		t.Errorf("pooling: %q", got["pooling"])
	}
}

// An added token may be outside the model's table: texts without it are embedded, a text with it is an error.
func TestOpen_ATokenBeyondTheTable(t *testing.T) {
	with := strings.Replace(tiny.Files()["tokenizer.json"], `"added_tokens": []`,
		`"added_tokens": [{"id": 8, "content": "<image>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}]`, 1)
	m := mustOpenTiny(t, map[string]string{"tokenizer.json": with})
	results := mustEmbed(t, m, "a", "a <image>")
	if results[0].Err != nil || results[1].Err == nil {
		t.Errorf("got %v and %v, want an error for the second alone", results[0].Err, results[1].Err)
	}
}

// A graph with an output logits for whole texts is not an embedder.
func TestOpen_SaysWhatLogitsAre(t *testing.T) {
	graph := tinyWith(func(m *onnxtest.Tiny) { m.Pooled, m.Output = true, "logits" })
	_, err := openTiny(t, map[string]string{"model.onnx": graph})
	wantError(t, err, "what a classifier gives")
}
