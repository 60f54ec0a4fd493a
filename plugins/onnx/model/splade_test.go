package model_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/model"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxtest"
)

// tinyLogits are the outputs of the tiny sparse model for each of its tokens: one logit for each of 8 vocabulary words.
var tinyLogits = [][]float32{
	{9, 9, 9, 9, 9, 9, 9, 9},                    // 0 [PAD], which must not affect any vector
	{0, 1, 0, 0, 0, 0, 0, 0},                    // 1 [UNK]
	{-1, -1, 0.5, -1, -1, -1, -1, -1},           // 2 [CLS]
	{-1, -1, 0.25, -1, -1, -1, -1, -1},          // 3 [SEP]
	{-2, -2, 0.25, 0, 3, 1, -4, -1},             // 4 a
	{-2, -2, -2, 0, 1, 7, -4, -1},               // 5 b
	{0, 0, 0, 0, 0, 0, 2, 0},                    // 6 query
	{0, 0, 0, 0, float32(math.Inf(1)), 0, 0, 2}, // 7 passage, with an infinite output
}

const (
	sparseModules = `[{"path": "", "type": "sentence_transformers.sparse_encoder.models.MLMTransformer"}, {"path": "1_SpladePooling", "type": "sentence_transformers.sparse_encoder.models.SpladePooling"}]`
	sparsePooling = `{"pooling_strategy": "max", "activation_function": "relu", "word_embedding_dimension": null}`
)

// sparseFiles make a sparse model of the tiny one.
func sparseFiles() map[string]string {
	return map[string]string{
		"model.onnx":                  tinyWith(func(m *onnxtest.Tiny) { m.Output, m.Table = "logits", tinyLogits }),
		"modules.json":                sparseModules,
		"1_SpladePooling/config.json": sparsePooling, "1_Pooling/config.json": "",
	}
}

// logs returns pairs whose numbers are log(1 + x).
func logs(pairs ...float32) []float32 {
	for i := 1; i < len(pairs); i += 2 {
		pairs[i] = float32(math.Log1p(float64(pairs[i])))
	}
	return pairs
}

func TestSplade_IsTheLargestOfEachWord(t *testing.T) {
	t.Parallel()
	m := mustOpenTiny(t, sparseFiles())
	if about := m.Describe(); !about.Sparse || about.Dims != 8 || !about.Deterministic {
		t.Errorf("described as %+v", about)
	}
	wantVector(t, m, embed.Document, "a", logs(2, 0.5, 4, 3, 5, 1)...)
	wantVector(t, m, embed.Document, "a b a", logs(2, 0.5, 4, 3, 5, 7)...)
	wantVector(t, m, embed.Query, "nonsense", logs(1, 1, 2, 0.5)...)
	// A short text padded beside longer ones has the same vector as alone.
	results, err := m.Embed(t.Context(), embed.Document, []string{"a", strings.Repeat("b ", 10), "", "b", "passage"})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range [][]float32{
		logs(2, 0.5, 4, 3, 5, 1), logs(2, 0.5, 4, 1, 5, 7), nil, logs(2, 0.5, 4, 1, 5, 7),
		logs(2, 0.5, 4, float32(math.Inf(1)), 7, 2),
	} {
		got := results[i].Vector
		if len(got) != len(want) || results[i].Empty != (want == nil) {
			t.Fatalf("text %d: %+v, want %v", i, results[i], want)
		}
		for k := range want {
			if got[k] != want[k] {
				t.Errorf("text %d: %v, want %v", i, got, want)
			}
		}
	}
}

// With a large vocabulary, a piece has few tokens, fewer than the texts compared when a model is opened.
func TestSplade_OpensAnyWidth(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ words, limit int }{{30522, 64}, {30522, 16}, {105879, 40}, {250002, 5}} {
		wide := tiny
		wide.Output, wide.Table = "logits", nil
		for word := range tiny.Words {
			row := make([]float32, test.words)
			row[word], row[test.words-1-word] = 1, 2
			wide.Table = append(wide.Table, row)
		}
		files := sparseFiles()
		files["model.onnx"] = string(wide.Graph())
		files["sentence_bert_config.json"] = fmt.Sprintf(`{"max_seq_length": %d}`, test.limit)
		m, err := openTiny(t, files)
		if err != nil {
			t.Errorf("%d words, %d tokens: %v", test.words, test.limit, err)
			continue
		}
		if about := m.Describe(); about.Dims != test.words || about.MaxTokens != test.limit || !about.Deterministic {
			t.Errorf("%d words, %d tokens: described as %+v", test.words, test.limit, about)
		}
		end := float32(test.words - 1)
		wantVector(t, m, embed.Document, "a b", logs(2, 1, 3, 1, 4, 1, 5, 1, end-5, 2, end-4, 2, end-3, 2, end-2, 2)...)
		wantVector(t, m, embed.Document, strings.Repeat("a ", test.limit+9), logs(2, 1, 3, 1, 4, 1, end-4, 2, end-3, 2, end-2,
			2)...)
	}
}

// NaN must reach the host, which refuses the vector, even if few numbers are kept.
func TestSplade_KeepsWhatIsNoNumber(t *testing.T) {
	t.Parallel()
	for _, most := range []int{0, 1, 2} {
		files := sparseFiles()
		files["config_sentence_transformers.json"] = fmt.Sprintf(`{"max_active_dims": %d}`, most)
		files["model.onnx"] = tinyWith(func(m *onnxtest.Tiny) {
			m.Output, m.Table = "logits", slices.Clone(tinyLogits)
			m.Table[7] = []float32{1, 0, 0, 0, float32(math.NaN()), 0, 0, 2}
		})
		results, err := mustOpenTiny(t, files).Embed(t.Context(), embed.Document, []string{"b passage a", "b a"})
		if err != nil {
			t.Fatal(err)
		}
		_, broken := embed.SplitPairs(results[0].Vector)
		if !slices.ContainsFunc(broken, func(x float32) bool { return x != x }) || most > 0 && len(broken) != most {
			t.Errorf("%d numbers kept: %v", most, results[0].Vector)
		}
		if got := results[1].Vector; embed.CheckPairs(got, 8) != nil {
			t.Errorf("%d numbers kept, a text without it: %v", most, got)
		}
	}
}

func TestSplade_FollowsTheSettings(t *testing.T) {
	t.Parallel()
	with := func(name, content string) map[string]string {
		files := sparseFiles()
		files[name] = content
		return files
	}
	t.Run("numbers that are kept", func(t *testing.T) {
		m := mustOpenTiny(t, with("config_sentence_transformers.json",
			`{"model_type": "SparseEncoder", "max_active_dims": 2}`))
		wantVector(t, m, embed.Document, "a b", logs(4, 3, 5, 7)...)
		if m.Describe().Dims != 8 || m.Describe().Fingerprint == mustOpenTiny(t, sparseFiles()).Describe().Fingerprint {
			t.Errorf("described as %+v", m.Describe())
		}
	})
	t.Run("by the user", func(t *testing.T) {
		files := sparseFiles()
		files["modules.json"], files["1_SpladePooling/config.json"] = "", ""
		settings := model.Settings{Pooling: "splade", Dims: 1, Normalize: new(true)}
		m, err := tryTiny(t, model.Options{Threads: 2, Settings: settings}, files)
		if err != nil {
			t.Fatal(err)
		}
		wantVector(t, m, embed.Document, "a b", 5, 1)
	})
	for _, test := range []struct{ file, content, want string }{
		{"1_SpladePooling/config.json", `{"pooling_strategy": "sum"}`, `pooling_strategy "sum" is not max`},
		{
			"1_SpladePooling/config.json", `{"activation_function": "gelu"}`,
			`activation_function "gelu" is neither relu nor log1p_relu`,
		},
		{"1_SpladePooling/config.json", "", "read pooling settings 1_SpladePooling/config.json"},
		{"config_sentence_transformers.json", `{"max_active_dims": 9}`, "9 dims are to be kept"},
		{
			"modules.json", strings.Replace(sparseModules, "SpladePooling", "SparseAutoEncoder", 2),
			"SparseAutoEncoder is not supported",
		},
		{"model.onnx", string(tiny.Graph()), "a head for masked words"},
	} {
		if _, err := openTiny(t, with(test.file, test.content)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s = %.60q: %v, want %q", test.file, test.content, err, test.want)
		}
	}
}

// weighedFiles make a sparse model with a weight table for queries.
func weighedFiles(weights ...float32) map[string]string {
	files := sparseFiles()
	files["modules.json"] = `[{"path": "", "type": "sentence_transformers.models.Router"}]`
	files["router_config.json"] = `{
		"types": {"": "x.MLMTransformer", "1_SpladePooling": "x.SpladePooling", "q": "x.SparseStaticEmbedding"},
		"structure": {"query": ["q"], "document": ["", "1_SpladePooling"]}}`
	shape := map[string][]int{"weight": {len(weights)}}
	files["q/model.safetensors"] = tensors(shape, map[string][]float32{"weight": weights})
	files["q/tokenizer.json"] = tiny.Files()["tokenizer.json"]
	return files
}

func TestSplade_QueriesAreWeighedByATable(t *testing.T) {
	t.Parallel()
	files := weighedFiles(9, 9, 9, 9, 0.5, 2, 0, 3)
	m := mustOpenTiny(t, files)
	about := m.Describe()
	if about.Symmetric || !about.Sparse || settingsOf(m)["queries"].Source != "q/model.safetensors" {
		t.Errorf("described as %+v", about)
	}
	wantVector(t, m, embed.Document, "a b a", logs(2, 0.5, 4, 3, 5, 7)...)
	wantVector(t, m, embed.Query, "b a b query", 4, 0.5, 5, 2) // each token once, without those of weight 0
	results, err := m.Embed(t.Context(), embed.Query, []string{" ", strings.Repeat("a ", 500)})
	if err != nil || !results[0].Empty || !results[1].Truncated || len(results[1].Vector) != 2 {
		t.Errorf("%+v, %v", results, err)
	}
	other := mustOpenTiny(t, weighedFiles(9, 9, 9, 9, 0.5, 2, 0, 4))
	if other.Describe().Fingerprint == about.Fingerprint {
		t.Error("other weights have the same fingerprint")
	}
	nan := float32(math.NaN())
	for _, test := range []struct {
		change func(files map[string]string)
		want   string
	}{
		{func(f map[string]string) { f["q/model.safetensors"] = "" }, "q/model.safetensors"},
		{func(f map[string]string) { maps.Copy(f, weighedFiles(1, 2, 3)) }, "q/model.safetensors has 3 weights"},
		{func(f map[string]string) { maps.Copy(f, weighedFiles(1, 2, nan)) }, "number 2 of tensor weight is not finite"},
		{func(f map[string]string) { f["q/config.json"] = `{"path": "idf.json"}` }, `weights in "idf.json" are not read`},
		{func(f map[string]string) { f["q/tokenizer.json"] = "<html>" }, "q/tokenizer.json: it is no JSON"},
		{func(f map[string]string) { f["q/tokenizer.json"] = `{"model": {}}` }, "q/tokenizer.json makes other tokens"},
		{func(f map[string]string) { f["router_config.json"] = "" }, "router_config.json"},
		{func(f map[string]string) {
			f["router_config.json"] = strings.Replace(f["router_config.json"], "SparseStaticEmbedding", "MLMTransformer", 1)
		}, "router_config.json: Router gives queries another network"},
		{func(f map[string]string) { // two words for the type of one path
			f["router_config.json"] = `{"types": {"": "x.Transformer SpladePooling", "q": "x.SparseStaticEmbedding"},
				"structure": {"query": ["q"], "document": [""]}}`
		}, "router_config.json: Router gives queries another network"},
	} {
		changed := maps.Clone(files)
		test.change(changed)
		if _, err := openTiny(t, changed); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("got %v, want %q", err, test.want)
		}
	}
}
