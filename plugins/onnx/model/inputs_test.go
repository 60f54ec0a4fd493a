package model_test

import (
	"math"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/model"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxtest"
)

// Graphs with other number types and additional inputs.
func TestOpen_InputsOfOtherForms(t *testing.T) {
	for name, change := range map[string]func(*onnxtest.Tiny){
		"input_ids of 32 bits":      func(m *onnxtest.Tiny) { m.Short = true },
		"vectors of 16 bits":        func(m *onnxtest.Tiny) { m.Half = true },
		"past_key_values":           func(m *onnxtest.Tiny) { m.Past = true },
		"all of that":               func(m *onnxtest.Tiny) { m.Short, m.Half, m.Past = true, true, true },
		"one text, so each alone":   func(m *onnxtest.Tiny) { m.Texts, m.Past = 1, true },
		"a table in external files": func(m *onnxtest.Tiny) { m.External, m.Half = "model.onnx_data", true },
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"model.onnx": tinyWith(change)}
			if m := tiny; true {
				change(&m)
				if m.External != "" {
					files[m.External] = string(m.Weights())
				}
			}
			m := mustOpenTiny(t, files)
			for i, r := range mustEmbed(t, m, "a", "a b", "b b b") {
				want := [][]float32{{5. / 3, 2. / 3, 1. / 3}, {1.25, 2.5, 0.25}, {0.2, 5.2, 0.2}}[i]
				if d := distance(r.Vector, want); d > 1e-6 {
					t.Errorf("text %d: %v, want %v", i, r.Vector, want)
				}
			}
		})
	}
}

// The task of documents and queries is a number: its index in a list in config.json.
func TestOpen_Tasks(t *testing.T) {
	graph := tinyWith(func(m *onnxtest.Tiny) { m.Task = true })
	config := `{"max_position_embeddings": 64, "vocab_size": 8, "hidden_size": 3, "lora_adaptations":
		["separation", "retrieval.query", "retrieval.passage"]}`
	m := mustOpenTiny(t, map[string]string{"model.onnx": graph, "config.json": config})
	wantVector(t, m, embed.Document, "a", 5./3+2, 2./3+2, 1./3+2)
	wantVector(t, m, embed.Query, "a", 5./3+1, 2./3+1, 1./3+1)
	if m.Describe().Symmetric {
		t.Error("described as symmetric")
	}
	_, err := openTiny(t, map[string]string{"model.onnx": graph})
	wantError(t, err, "lora_adaptations of config.json does not list retrieval.passage and retrieval.query")
}

// nomic's card applies a layer norm before truncation. Only the user can state it.
func TestOpen_LayerNorm(t *testing.T) {
	kind := map[string]string{"config.json": `{"model_type": "nomic_bert", "max_position_embeddings": 64, "vocab_size": 8,
		"hidden_size": 3}`}
	_, err := tryTiny(t, model.Options{Settings: model.Settings{Dims: 2}}, kind)
	wantError(t, err, "set layer_norm to true or false")
	plain, err := tryTiny(t, model.Options{Settings: model.Settings{Dims: 2, LayerNorm: new(false)}}, kind)
	if err != nil {
		t.Fatal(err)
	}
	wantVector(t, plain, embed.Document, "a", 5./3, 2./3)
	m, err := tryTiny(t, model.Options{Settings: model.Settings{Dims: 2, LayerNorm: new(true)}}, kind)
	if err != nil {
		t.Fatal(err)
	}
	v := []float64{5. / 3, 2. / 3, 1. / 3}
	mean, variance := 8./9, 0.0
	for _, x := range v {
		variance += (x - mean) * (x - mean) / 3
	}
	root := math.Sqrt(variance + 1e-5)
	want := []float32{float32((v[0] - mean) / root), float32((v[1] - mean) / root)}
	if got := mustEmbed(t, m, "a")[0].Vector; distance(got, want) > 1e-6 {
		t.Errorf("got %v, want %v", got, want)
	}
	if m.Describe().Fingerprint == plain.Describe().Fingerprint {
		t.Error("a layer norm leaves the fingerprint as it is")
	}
	said := ""
	for _, s := range m.Describe().Settings {
		said += s.Name + "=" + s.Value + " "
	}
	if !strings.Contains(said, "layer_norm=true") {
		t.Errorf("said %s", said)
	}
}

// pooler_output is used only if the graph has no other output.
func TestOpen_PoolerOutput(t *testing.T) {
	graph := tinyWith(func(m *onnxtest.Tiny) { m.Pooled, m.Output = true, "pooler_output" })
	_, err := openTiny(t, map[string]string{"model.onnx": graph})
	wantError(t, err, "no output named sentence_embedding, text_embeds, last_hidden_state")
	m := mustOpenTiny(t, map[string]string{"model.onnx": graph, "modules.json": ""})
	wantVector(t, m, embed.Document, "a", 4, 1, 1)
	for _, s := range m.Describe().Settings {
		if s.Name == "pooling" && s.Source != "model.onnx, its output pooler_output" {
			t.Errorf("pooling comes from %s", s.Source)
		}
	}
}

// The layout of sparse models since version 5 of sentence-transformers, with the other activation.
func TestSplade_LayoutOfToday(t *testing.T) {
	files := sparseFiles()
	files["modules.json"] = strings.Replace(sparseModules, "MLMTransformer", "Transformer", 1)
	files["sentence_bert_config.json"] = `{"max_seq_length": 16, "transformer_task": "fill-mask"}`
	wantVector(t, mustOpenTiny(t, files), embed.Document, "a b", logs(2, 0.5, 4, 3, 5, 7)...)
	files["model.onnx"] = tinyWith(func(m *onnxtest.Tiny) { m.Output, m.Table = "output", tinyLogits })
	files["1_SpladePooling/config.json"] = `{"pooling_strategy": "max", "activation_function": "log1p_relu"}`
	twice := logs(2, 0.5, 4, 3, 5, 7)
	for i := 1; i < len(twice); i += 2 {
		twice[i] = float32(math.Log1p(float64(twice[i])))
	}
	m := mustOpenTiny(t, files)
	if got := mustEmbed(t, m, "a b")[0].Vector; len(got) != len(twice) || distance(got, twice) > 1e-6 {
		t.Errorf("got %v, want %v", got, twice)
	}
	if m.Describe().Fingerprint == mustOpenTiny(t, sparseFiles()).Describe().Fingerprint {
		t.Error("another activation leaves the fingerprint as it is")
	}
}
