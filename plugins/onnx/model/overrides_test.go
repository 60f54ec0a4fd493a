package model_test

import (
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/model"
)

type files = map[string]string

// The tokens of "a" are [CLS] a [SEP] = {1,1,0} {4,0,0} {0,1,1}.
var meanOfA, meanOfQueryA, firstOfA, lastOfA = []float32{5. / 3, 2. / 3, 1. / 3}, []float32{5. / 4, 2. / 4, 13. / 4},
	[]float32{1, 1, 0}, []float32{0, 1, 1}

// overrides are user settings or files, with a text and its vector.
var overrides = []struct {
	name     string
	settings model.Settings
	changes  files
	kind     embed.Kind
	text     string
	want     []float32
}{
	{"last token", model.Settings{Pooling: "last"}, nil, embed.Document, "a", lastOfA},
	{
		"last token, said by the folder",
		model.Settings{},
		files{"1_Pooling/config.json": `{"pooling_mode_lasttoken": true}`},
		embed.Document, "a", lastOfA,
	},
	{
		"a name for the way",
		model.Settings{},
		files{"1_Pooling/config.json": `{"pooling_mode": "cls"}`},
		embed.Document, "a",
		firstOfA,
	},
	{
		"a list of one name",
		model.Settings{},
		files{"1_Pooling/config.json": `{"pooling_mode": ["lasttoken"]}`},
		embed.Document, "a", lastOfA,
	},
	{"first token", model.Settings{Pooling: "cls"}, nil, embed.Document, "a", firstOfA},
	{"mean", model.Settings{Pooling: "mean"}, files{"1_Pooling/config.json": clsPooling}, embed.Document, "a", meanOfA},
	{
		"length 1",
		model.Settings{Pooling: "cls", Normalize: new(true)},
		nil, embed.Document, "a",
		[]float32{0.70710677, 0.70710677, 0},
	},
	{
		"length as it is",
		model.Settings{Pooling: "cls", Normalize: new(false)},
		files{"modules.json": normalized},
		embed.Document, "a", firstOfA,
	},
	{"fewer dims", model.Settings{Dims: 2}, nil, embed.Document, "a", meanOfA[:2]},
	{
		"fewer dims of length 1",
		model.Settings{Pooling: "last", Normalize: new(true), Dims: 2},
		nil, embed.Document, "a",
		[]float32{0, 1},
	},
	{"query prefix", model.Settings{QueryPrefix: new("query ")}, nil, embed.Query, "a", meanOfQueryA},
	{"query prefix, document", model.Settings{QueryPrefix: new("query ")}, nil, embed.Document, "a", meanOfA},
	{
		"no document prefix",
		model.Settings{DocumentPrefix: new("")},
		files{"config_sentence_transformers.json": prompts},
		embed.Document, "a", meanOfA,
	},
	{"the end is cut off", model.Settings{MaxTokens: 3}, nil, embed.Document, "a b b b", meanOfA},
	{
		"the beginning is cut off", model.Settings{MaxTokens: 3, Truncate: "left"}, nil, embed.Document, "b b b a", meanOfA,
	},
	{
		"the same, said by the folder",
		model.Settings{MaxTokens: 3},
		files{"tokenizer_config.json": `{"truncation_side": "left"}`},
		embed.Document, "b b b a", meanOfA,
	},
}

func TestOpen_Overrides(t *testing.T) {
	for _, test := range overrides {
		t.Run(test.name, func(t *testing.T) {
			m, err := tryTiny(t, model.Options{Settings: test.settings}, test.changes)
			if err != nil {
				t.Fatal(err)
			}
			wantVector(t, m, test.kind, test.text, test.want...)
			if got := m.Describe().Dims; got != len(test.want) {
				t.Errorf("described as %d dims, not %d", got, len(test.want))
			}
		})
	}
}

func TestOpen_RefusesOverrides(t *testing.T) {
	for _, test := range []struct {
		options model.Options
		want    string
	}{
		{
			model.Options{Settings: model.Settings{Pooling: "best"}},
			`pooling "best" is not known: want mean, cls, last, max, weightedmean, mean_sqrt_len or splade`,
		},
		{model.Options{Settings: model.Settings{Truncate: "middle"}}, `truncation side "middle" is not known`},
		{model.Options{Settings: model.Settings{MaxTokens: 65}}, "limit of 65 tokens is not between 3 and 64"},
		{model.Options{Settings: model.Settings{MaxTokens: 2}}, "limit of 2 tokens is not between 3 and 64"},
		{model.Options{Settings: model.Settings{Dims: 4}}, "4 dims are to be kept, but the model's vectors have 3"},
		{model.Options{Settings: model.Settings{Dims: -1}}, "-1 dims"},
		{
			model.Options{Precision: "int8"},
			"precision int8: there is no model_int8.onnx, and model.onnx holds fp32 weights; embedsidecar models import --int8 makes it",
		},
		{model.Options{Precision: "fp64"}, `precision "fp64": model.onnx holds fp32 weights`},
		{model.Options{Provider: "gpu"}, `provider "gpu" is not known: want auto, cpu, cuda`},
		{model.Options{Provider: "tensorrt"}, "has only cpu; use one that was built for tensorrt"},
	} {
		_, err := tryTiny(t, test.options, nil)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: got error %v, want one with %q", test.options, err, test.want)
		}
	}
}

// A model whose graph already has the requested precision is used as it is.
func TestOpen_Precision(t *testing.T) {
	graphs := map[string]string{"model_int8.onnx": tinyWith(pooled)}
	_, err := tryTiny(t, model.Options{Precision: "int8"}, graphs)
	wantError(t, err, `precision "int8": model_int8.onnx holds fp32 weights`)
	m, err := tryTiny(t, model.Options{Precision: "fp32"}, graphs)
	if err != nil || m.Describe().Precision != "fp32" {
		t.Errorf("got %v, want the model in 32 bits", err)
	}
}

func TestOpen_ProviderAuto(t *testing.T) {
	m, err := tryTiny(t, model.Options{Provider: "auto"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	// The library of tools/fetch-onnxruntime.sh supports only CPUs.
	if got := m.Describe().Provider; got != "cpu" && got != "cuda" {
		t.Errorf("computes with %q", got)
	}
	wantVector(t, m, embed.Document, "a", 5./3, 2./3, 1./3)
}

// Models that count positions from the padding index have fewer positions for tokens than configured.
func TestOpen_PositionsOfRoBERTa(t *testing.T) {
	for config, want := range map[string]int{
		`{"model_type": "roberta", "max_position_embeddings": 64, "vocab_size": 8, "hidden_size": 3}`:                    62,
		`{"model_type": "roberta", "max_position_embeddings": 64, "pad_token_id": 0, "vocab_size": 8, "hidden_size": 3}`: 63,
		`{"model_type": "distilbert", "max_position_embeddings": 64, "vocab_size": 8, "dim": 3}`:                         64,
	} {
		m, err := tryTiny(t, model.Options{}, map[string]string{"config.json": config, "sentence_bert_config.json": `{}`})
		if err != nil || m.Describe().MaxTokens != want {
			t.Errorf("%s: got %v, want %d tokens", config, err, want)
		}
	}
}

// A user's settings are part of the fingerprint.
func TestOpen_FingerprintOfOverrides(t *testing.T) {
	seen := map[string]string{mustOpenTiny(t, nil).Describe().Fingerprint: "nothing"}
	for name, settings := range map[string]model.Settings{
		"pooling": {Pooling: "last"}, "normalize": {Normalize: new(true)}, "max tokens": {MaxTokens: 5},
		"side": {Truncate: "left"}, "dims": {Dims: 2},
		"document prefix": {DocumentPrefix: new("query ")}, "query prefix": {QueryPrefix: new("query ")},
	} {
		m, err := tryTiny(t, model.Options{Settings: settings}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[m.Describe().Fingerprint]; ok {
			t.Errorf("%s: the same fingerprint as %s", name, other)
		}
		seen[m.Describe().Fingerprint] = name
	}
	same, err := tryTiny(t, model.Options{Precision: "fp32", Provider: "cpu", Settings: model.Settings{
		Pooling: "mean", Normalize: new(false), MaxTokens: 16, Truncate: "right", Dims: 3,
		DocumentPrefix: new(""), QueryPrefix: new(""),
	}}, nil)
	if err != nil || seen[same.Describe().Fingerprint] != "nothing" {
		t.Errorf("settings that say what the folder says change the fingerprint (%v)", err)
	}
}
