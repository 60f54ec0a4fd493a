package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLoad_MistakesInSettingsOfAModel(t *testing.T) {
	for setting, want := range map[string]string{
		"dims: 0":            "expected a number from 1 to 16000",
		"dims: many":         "expected a whole number",
		"max_tokens: -1":     "expected a number from 1",
		"pooling: best":      "expected mean, cls, last, max, weightedmean, mean_sqrt_len or splade, not",
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

// The plugin remote has its own settings of the same names: it gets their values unchanged, and onnx gets ours.
func TestLoad_SettingsOfTheModelsPlugin(t *testing.T) {
	c, _, err := Load(Source{Flags: map[string][]string{"config": {write(t, `
models:
- {name: here, plugin: onnx, dims: 64, truncate: left, query_prefix: ""}
- {name: there, dialect: openai, url: "https://example.com", dims: 64, truncate: end}
`)}}})
	if err != nil {
		t.Fatal(err)
	}
	want := []map[string]string{
		{"DIMS": "64", "TRUNCATE": "left", "QUERY_PREFIX": ""},
		{"REMOTE_DIALECT": "openai", "REMOTE_URL": "https://example.com", "REMOTE_DIMS": "64", "REMOTE_TRUNCATE": "end"},
	}
	for i, plugin := range []string{"onnx", "remote"} {
		m := c.Models[i]
		if diff := cmp.Diff(want[i], m.Settings.Values); diff != "" || m.Plugin != plugin {
			t.Errorf("%s, of plugin %s (-want +got):\n%s", m.Name, m.Plugin, diff)
		}
	}
	if c.Models[0].Settings.Dims() != 64 || c.Models[1].Settings.Dims() != 0 {
		t.Error("the width of vectors is not that of the settings for every plugin")
	}
	_, _, err = Load(Source{Flags: map[string][]string{"config": {write(t,
		"models:\n- {name: there, dialect: openai, pooling: cls}\n")}}})
	if err == nil || !strings.Contains(err.Error(), "models[0].pooling: it belongs to models of the plugin onnx") {
		t.Errorf("got %v, want a word about the plugin that pooling is for", err)
	}
}
