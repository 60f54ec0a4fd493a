package model_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/named/models"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/model"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxtest"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/tokenizers"
	"github.com/embedsidecar/embedsidecar/tools"
)

// published writes the files of a layout into a folder with the name of its model.
func published(t *testing.T, l *onnxtest.Layout) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), filepath.Base(l.Hub))
	l.Write(t, folder)
	return folder
}

// openLayout imports a published layout as a user does, and opens the model.
func openLayout(t *testing.T, l *onnxtest.Layout, folder string, stated models.Stated) (*model.Model, error) {
	t.Helper()
	done, err := models.Import(t.Context(), models.ImportOptions{
		From: folder, Into: t.TempDir(), Script: tools.MakeONNX, Stated: stated, File: l.State.File,
	})
	if err != nil {
		return nil, err
	}
	return openWith(t, model.Options{
		Folder: done.Path, Settings: model.Settings{Dims: l.State.Dims, LayerNorm: l.State.LayerNorm},
	})
}

// Each layout gives the same vectors as numpy, or is refused with an error that says what to do.
func TestLayouts(t *testing.T) {
	t.Parallel()
	all := onnxtest.ReadLayouts(t, "testdata")
	for i := range all.Cases {
		l := &all.Cases[i]
		name := l.Hub
		if l.Static != "" { // TestEmbed_AsNumpy of the plugin static
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stated := models.Stated{
				Pooling: l.State.Pooling, QueryPrefix: l.State.QueryPrefix, DocumentPrefix: l.State.DocumentPrefix,
			}
			m, err := openLayout(t, l, published(t, l), stated)
			if len(l.Refused) > 0 {
				wantError(t, err, l.Refused...)
				return
			}
			if errors.Is(err, tokenizers.ErrNotBuilt) && !tokenizers.Linked {
				for _, ours := range []string{"all-MiniLM", "all-mpnet", "bge-small", "e5-small-v2", "text-v1.5", "Splade"} {
					if strings.Contains(l.Hub, ours) {
						t.Errorf("uncased WordPiece needs no crate: %v", err)
					}
				}
				return // the error says so
			}
			if err != nil {
				t.Fatal(err)
			}
			if l.Card {
				plain, err := openLayout(t, l, published(t, l), models.Stated{Pooling: l.State.Pooling})
				if err != nil {
					t.Fatal(err)
				}
				if card := settingsOf(plain)["card"].Value; !strings.Contains(card, "query_prefix: ") {
					t.Errorf("nothing says that the card states prefixes: %q", card)
				}
			}
			if got := m.Describe().MaxTokens; got != l.Limit {
				t.Errorf("%d tokens are read, want %d", got, l.Limit)
			}
			if l.Scores != nil {
				got, err := m.Rerank(t.Context(), all.Queries[1], all.Texts)
				for i, want := range l.Scores {
					if err != nil || math.Abs(float64(got[i])-want) > 1e-5*max(1, math.Abs(want)) {
						t.Errorf("%q: got %v, %v, want %v", all.Texts[i], got, err, want)
					}
				}
				return
			}
			for kind, texts := range map[embed.Kind][]string{embed.Document: all.Texts, embed.Query: all.Queries} {
				want := l.Documents
				if kind == embed.Query {
					want = l.Queries
				}
				results, err := m.Embed(t.Context(), kind, texts)
				if err != nil {
					t.Fatal(err)
				}
				for i, text := range texts {
					if results[i].Err != nil {
						t.Errorf("%q: %v", text, results[i].Err)
						continue
					}
					compare(t, m.Describe().Sparse, text, results[i].Vector, want[i])
				}
			}
		})
	}
}

// settingsOf returns a model's settings.
func settingsOf(m *model.Model) map[string]embed.Setting {
	said := map[string]embed.Setting{}
	for _, s := range m.Describe().Settings {
		said[s.Name] = s
	}
	return said
}

func compare(t *testing.T, sparse bool, text string, vector []float32, wanted json.RawMessage) {
	t.Helper()
	got, want := map[uint32]float64{}, map[uint32]float64{}
	var dense []float64
	if sparse {
		places, numbers := embed.SplitPairs(vector)
		for i, place := range places {
			got[place] = float64(numbers[i])
		}
		if err := json.Unmarshal(wanted, &want); err != nil {
			t.Fatal(err)
		}
	} else {
		for i, x := range vector {
			got[uint32(i)] = float64(x)
		}
		if err := json.Unmarshal(wanted, &dense); err != nil {
			t.Fatal(err)
		}
		for i, x := range dense {
			want[uint32(i)] = x
		}
	}
	square := 0.0
	for _, x := range want {
		square += x * x
	}
	if len(got) != len(want) || len(want) == 0 {
		t.Errorf("%q: %d numbers, want %d", text, len(got), len(want))
		return
	}
	for i, x := range want {
		if math.Abs(got[i]-x) > 1e-5*max(1, math.Sqrt(square)) {
			t.Errorf("%q: number %d is %v, want %v", text, i, got[i], x)
			return
		}
	}
}

// Files that are damaged, do not belong to this model, or contradict each other are refused or reported, with the file
// and the reason.
func TestLayouts_WhatDoesNotFitTogether(t *testing.T) {
	t.Parallel()
	const mini, m3, jina = "sentence-transformers/all-MiniLM-L6-v2", "BAAI/bge-m3", "jinaai/jina-embeddings-v2-base-en"
	const distiluse, page = "sentence-transformers/distiluse-base-multilingual-cased-v2", "<!DOCTYPE html><html>Log in</html>"
	half := func(content string) string { return content[:len(content)/2] }
	instead := func(old, put string) func(string) string {
		return func(content string) string {
			if !strings.Contains(content, old) {
				return "" // which no case wants
			}
			return strings.Replace(content, old, put, 1)
		}
	}
	html := func(string) string { return page }
	broken := func(content string) string { return "\x00\x00\xc0\x7f" + content[4:] } // NaN
	all := onnxtest.ReadLayouts(t, "testdata")
	for _, test := range []struct {
		hub, file string
		change    func(string) string // nil: the file is removed
		want      []string
	}{
		{mini, "config.json", instead(`{`, `{"auto_map": {"AutoModel": "x"}, `), []string{"config.json: auto_map", "of its own"}},
		{mini, "config.json", instead(`"hidden_size": 24`, `"hidden_size": 32`), []string{"config.json", "[56, 24], not F32 [56, 32]"}},
		{mini, "modules.json", instead(`"path": ""`, `"path": "0_Transformer"`), []string{"modules.json", "0_Transformer"}},
		{
			mini, "tokenizer_config.json", instead(`{`, `{"add_eos_token": true, "eos_token": {"content": "[UNK]"}, `),
			[]string{"tokenizer_config.json: add_eos_token is true", "tokenizer.json", "[UNK]"},
		},
		{
			mini, "tokenizer_config.json", instead(`"BertTokenizer"`, `"LlamaTokenizer", "add_bos_token": false, "bos_token": "[CLS]"`),
			[]string{"tokenizer_config.json: add_bos_token is false", "[CLS]"},
		},
		{mini, "tokenizer.json", html, []string{"tokenizer.json: it is no JSON"}},
		{mini, "model.safetensors", half, []string{"model.safetensors", "not whole"}},
		{mini, "model.safetensors", html, []string{"model.safetensors"}},
		{mini, "model.safetensors", nil, []string{"model.safetensors"}},
		{mini, "model.safetensors", func(s string) string {
			first := 8 + binary.LittleEndian.Uint64([]byte(s[:8])) // after the header
			return s[:first] + "\x00\x00\xc0\x7f" + s[first+4:]
		}, []string{"embeddings.LayerNorm.bias has numbers that are not finite"}},
		{m3, "config.json", half, []string{"config.json: unexpected end"}},
		{m3, "config.json", html, []string{"config.json: invalid character '<'"}},
		{m3, "tokenizer.json", half, []string{"tokenizer.json: it is no JSON"}},
		{m3, "tokenizer_config.json", half, []string{"tokenizer_config.json: unexpected end"}},
		{m3, "modules.json", half, []string{"modules.json: unexpected end"}},
		{m3, "1_Pooling/config.json", html, []string{"1_Pooling/config.json: invalid character '<'"}},
		{m3, "onnx/model.onnx", half, []string{"model.onnx: parse ONNX"}},
		{m3, "onnx/model.onnx_data", half, []string{"model.onnx", "weights in model.onnx_data"}},
		{m3, "onnx/model.onnx_data", nil, []string{"onnx/model.onnx", "weights in onnx/model.onnx_data", "not there"}},
		{m3, "onnx/model.onnx_data", broken, []string{"model.onnx", "not finite"}},
		{jina, "tokenizer.json", instead(`"##z": 55`, `"##z": 55, "zzz": 56`), []string{"tokenizer.json has tokens up to 56", "config.json", "vocab_size"}},
		{jina, "config.json", instead(`"vocab_size": 56`, `"vocab_size": 57`), nil},
		{distiluse, "2_Dense/config.json", instead(`"in_features": 24`, `"in_features": 16`), []string{"2_Dense/model.safetensors", "config.json says [16 16]"}},
	} {
		var l onnxtest.Layout
		for _, one := range all.Cases {
			if one.Hub == test.hub {
				l = one
			}
		}
		folder := published(t, &l)
		path := filepath.Join(folder, test.file)
		data, err := os.ReadFile(path)
		if err == nil && test.change != nil {
			err = os.WriteFile(path, []byte(test.change(string(data))), 0o600)
		} else if err == nil {
			err = os.Remove(path)
		}
		if err != nil {
			t.Fatal(err)
		}
		_, err = openLayout(t, &l, folder, models.Stated{})
		if errors.Is(err, tokenizers.ErrNotBuilt) && !tokenizers.Linked {
			continue
		}
		if len(test.want) == 0 && err != nil {
			t.Errorf("%s: %v", test.file, err)
		}
		wantError(t, err, test.want...)
	}
}

// The graph's table has 56 rows, and tokenizer and configuration have one more token.
func TestLayouts_ATableShorterThanBoth(t *testing.T) {
	t.Parallel()
	files := tiny.Files()
	short := tiny
	short.Table = short.Table[:7]
	files["model.onnx"] = string(short.Graph())
	_, err := openFolder(t, writeFolder(t, files))
	wantError(t, err, "model.onnx", "tokenizer.json has tokens up to 7", "out of data bounds")
}

// A graph with vectors of whole texts may lack the dense layers; the width shows it.
func TestLayouts_AGraphWithoutTheLastLayers(t *testing.T) {
	t.Parallel()
	files := denseFiles("linear.Identity", false)
	files["model.onnx"] = tinyWith(pooled)
	_, err := openTiny(t, files)
	wantError(t, err, "model.onnx", "sentence_embedding has 3 numbers", "2_Dense/model.safetensors gives 2")
}

// Prompts with unknown names are reported and not used.
func TestLayouts_PromptsOfOtherNames(t *testing.T) {
	t.Parallel()
	m := mustOpenTiny(t, map[string]string{
		"config_sentence_transformers.json": `{"prompts": {"STS": "same: ", "Retrieval": "find: "}}`,
	})
	got := settingsOf(m)["prompts"]
	if got.Value != "Retrieval, STS" || !strings.Contains(got.Source, "none of them is used") {
		t.Errorf("got %+v", got)
	}
}

var update = flag.Bool("update", false, "rewrite the table of docs/models.md")

// The documentation's table is generated from the layouts, so it has exactly the tested ones.
func TestLayouts_AreInThePaper(t *testing.T) {
	t.Parallel()
	const path, mark = "../../../docs/models.md", "<!-- written by: go test ./plugins/onnx/model -update -->\n"
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(content), mark)
	_, after, found := strings.Cut(rest, "\n## ")
	if !ok || !found {
		t.Fatalf("%s has no place for the table", path)
	}
	all := onnxtest.ReadLayouts(t, "testdata")
	table := "\n| model | flags of `pull`, settings | pooling | prefixes | licence | memory | tried |\n" +
		"| --- | --- | --- | --- | --- | --- | --- |\n"
	for i := range all.Cases {
		table += row(&all.Cases[i])
	}
	wanted := before + mark + table + "\n## " + after
	if *update {
		if err := os.WriteFile(path, []byte(wanted), 0o600); err != nil {
			t.Fatal(err)
		}
	} else if wanted != string(content) {
		t.Errorf("%s does not have the layouts that are tried: go test ./plugins/onnx/model -update", path)
	}
	if len(all.Cases) < 40 {
		t.Errorf("%d layouts, want 40", len(all.Cases))
	}
}

// row is a layout's line of the table.
func row(l *onnxtest.Layout) string {
	model, tried := "`"+l.Hub+"`", "layout"
	if l.Also != "" {
		model += "; also " + l.Also
	}
	if l.Note != "" {
		tried += ", " + l.Note
	}
	pooling, prefixes := l.Pool, "none"
	switch {
	case l.Kind == "static":
		pooling = "static"
	case l.Kind == "reranker":
		pooling, prefixes = "reranker", ""
	case pooling == "pooler":
		pooling = "graph"
	case l.State.QueryPrefix != nil:
		prefixes = "you state them"
	case l.Prefix != [2]string{}:
		prefixes = "in its files"
	}
	if len(l.Refused) > 0 {
		return fmt.Sprintf("| %s | **refused**: %s | | | %s | %s | %s |\n", model, l.Reason, l.Licence, sizeOf(l), tried)
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %s |\n", model, flagsOf(l), pooling, prefixes, l.Licence, sizeOf(l),
		tried)
}

// sizeOf is the memory of the weights, doubled if the plugin holds them twice.
func sizeOf(l *onnxtest.Layout) string {
	const twice, bytes = 268, 4
	size := l.Params * bytes
	if strings.Contains(l.State.File, "fp16") {
		size /= 2
	}
	if l.Static == "" && l.Kind != "sparse" && len(l.Refused) == 0 && size <= twice {
		return fmt.Sprintf("2 × %.0f MB", size)
	}
	if size >= 1000 {
		return fmt.Sprintf("%.1f GB", size/1000)
	}
	return fmt.Sprintf("%.0f MB", size)
}

// flagsOf are a user's flags.
func flagsOf(l *onnxtest.Layout) string {
	var flags []string
	for _, f := range []struct{ name, value string }{
		{"--file", l.State.File},
		{"--pooling", l.State.Pooling},
		{"--document-prefix", deref(l.State.DocumentPrefix)},
		{"--query-prefix", deref(l.State.QueryPrefix)},
	} {
		value := strings.NewReplacer("\n", `\n`, "|", `\|`).Replace(f.value)
		if strings.ContainsAny(value, " :") {
			value = "'" + value + "'"
			if strings.Contains(value, `\n`) {
				value = "$" + value
			}
		}
		if value != "" {
			flags = append(flags, f.name+" "+value)
		}
	}
	text := ""
	if len(flags) > 0 {
		text = "`" + strings.Join(flags, " ") + "`"
	}
	if l.State.LayerNorm != nil {
		text += "; with `dims`, also `layer_norm: true`"
	}
	return strings.TrimPrefix(text, "; ")
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
