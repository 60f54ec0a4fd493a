package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// loadChunking reads a file with one pipeline that has these lines.
func loadChunking(t *testing.T, lines string) (pipeline.Spec, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "embedsidecar.yaml")
	body := "pipelines:\n  - table: docs\n    columns: [body]\n" + lines
	if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	c, _, err := Load(Source{Flags: map[string][]string{"config": {path}}})
	if err != nil {
		return pipeline.Spec{}, err
	}
	return c.Pipelines[0], nil
}

func TestLoad_Chunking(t *testing.T) {
	t.Parallel()
	const into = "    into: {table: docs_chunk}\n"
	for name, tt := range map[string]struct {
		lines string
		want  pipeline.Chunking
	}{
		"all of it": {
			into + "    chunking: {strategy: markdown, tokens: 128, overlap: 16, context: title, store_text: false}\n",
			pipeline.Chunking{Strategy: "markdown", Tokens: 128, Overlap: 16, Context: "title", NoText: true},
		},
		"defaults": {into + "    chunking: {strategy: sentences}\n", pipeline.Chunking{Strategy: "sentences", Tokens: 256}},
		"recursive": {
			into + "    chunking: {strategy: recursive, characters: 800, overlap: 400, separators: [\"\\n\\n\", ' ', '']}\n",
			pipeline.Chunking{Strategy: "recursive", Characters: 800, Overlap: 400, Separators: `["\n\n"," ",""]`},
		},
		"character": {
			into + "    chunking: {strategy: character, context: title, context_separator: ': '}\n",
			pipeline.Chunking{Strategy: "character", Characters: 1000, Context: "title", Between: ": "},
		},
		"none":    {into + "    chunking: {strategy: none}\n", pipeline.Chunking{}},
		"silence": {into, pipeline.Chunking{}},
	} {
		got, err := loadChunking(t, tt.lines)
		if diff := cmp.Diff(tt.want, got.Chunking); err != nil || diff != "" {
			t.Errorf("%s: %v, (-want +got):\n%s", name, err, diff)
		}
	}
	for lines, want := range map[string]string{
		into + "    chunking: {strategy: pages}\n":                                  "expected none, tokens, sentences, markdown, character, recursive or whole",
		into + "    chunking: {strategy: tokens, tokens: 5}\n":                      "16",
		into + "    chunking: {strategy: tokens, tokens: 32, overlap: 20}\n":        "an overlap of 20 tokens",
		into + "    chunking: {strategy: tokens, characters: 100}\n":                "for character and recursive",
		into + "    chunking: {strategy: recursive, tokens: 100}\n":                 "in characters",
		into + "    chunking: {strategy: character, separators: [a, b]}\n":          "one separator",
		into + "    chunking: {strategy: character, characters: 10, overlap: 11}\n": "at most the 10",
		into + "    chunking: {tokens: 32}\n":                                       "no strategy",
		into + "    chunking: {strategy: tokens, size: 32}\n":                       "size",
		"    into: {column: embedding}\n    chunking: {strategy: tokens}\n":         "chunks need an embedding table",
		into + "    chunking: {strategy: tokens, context: ''}\n":                    "expected an SQL expression",
	} {
		if _, err := loadChunking(t, lines); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %q", lines, err, want)
		}
	}
}
