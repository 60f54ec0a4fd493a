package config

import (
	"strings"
	"testing"
)

func TestLoad_MistakesInSettingsOfAModel(t *testing.T) {
	for setting, want := range map[string]string{
		"dims: 0":            "expected a number from 1 to 16000",
		"dims: many":         "expected a whole number",
		"max_tokens: -1":     "expected a number from 1",
		"pooling: max":       "expected mean, cls, last or splade, not",
		"truncate: middle":   "expected right or left",
		"precision: int4":    "expected fp32, fp16 or int8",
		"provider: gpu":      "expected cpu, auto, cuda",
		"normalize: perhaps": "perhaps",
		"query_prefix: " + strings.Repeat("x", 5000): "expected at most 4096 bytes, not 5000",
	} {
		_, _, err := Load(Source{Flags: map[string][]string{"config": {write(t, "models:\n- name: a\n  "+setting+"\n")}}})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(),
			"models[0]."+strings.Split(setting, ":")[0]) {
			t.Errorf("%.40s: got %v, want its path and %q", setting, err, want)
		}
	}
}

// The plugin remote has settings of its own by the same names: it gets them as they are, and onnx gets ours.
func TestLoad_SettingsOfTheModelsPlugin(t *testing.T) {
	c, _, err := Load(Source{Flags: map[string][]string{"config": {write(t, `
models:
- {name: here, plugin: onnx, dims: 64, truncate: left, query_prefix: ""}
- {name: there, dialect: openai, url: "https://example.com", dims: 64, truncate: end}
`)}}})
	if err != nil {
		t.Fatal(err)
	}
	if here := c.Models[0]; here.Dims != 64 || here.Truncate != "left" || here.QueryPrefix == nil || here.Remote.set() {
		t.Errorf("here: got %+v", here)
	}
	there := c.Models[1]
	if len(there.env()) != 0 || there.Plugin != "remote" || there.Remote.Settings["DIMS"] != "64" ||
		there.Remote.Settings["TRUNCATE"] != "end" {
		t.Errorf("there: got %+v", there)
	}
	_, _, err = Load(Source{Flags: map[string][]string{"config": {write(t,
		"models:\n- {name: there, dialect: openai, pooling: cls}\n")}}})
	if err == nil || !strings.Contains(err.Error(), "models[0].pooling: it belongs to models of the plugin onnx") {
		t.Errorf("got %v, want a word about the plugin that pooling is for", err)
	}
}
