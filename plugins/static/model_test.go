package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxtest"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/safetensors"
)

// layoutFolder copies a layout of testdata, with some files replaced, and writes its SHA256SUMS.
func layoutFolder(t testing.TB, name string, files map[string]string) string {
	t.Helper()
	layout, all := os.DirFS(filepath.Join("testdata", "layouts", name)), map[string]string{}
	err := fs.WalkDir(layout, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(layout, path)
		all[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(all, files)
	made := filepath.Join(t.TempDir(), name)
	onnxtest.WriteFolder(t, made, all)
	return made
}

func reference(t testing.TB) (texts []string, vectors map[string][][]float64) {
	t.Helper()
	var file struct {
		Texts   []string               `json:"texts"`
		Vectors map[string][][]float64 `json:"vectors"`
	}
	data, err := os.ReadFile("testdata/vectors.json")
	if err == nil {
		err = json.Unmarshal(data, &file)
	}
	if err != nil {
		t.Fatal(err)
	}
	return file.Texts, file.Vectors
}

// Every layout gives the same vectors as numpy.
func TestEmbed_AsNumpy(t *testing.T) {
	t.Parallel()
	texts, vectors := reference(t)
	for name, want := range vectors {
		m, err := openModel(options{folder: layoutFolder(t, name, nil)})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for i, text := range texts {
			got, _ := m.embed(embed.Document, text, nil)
			if got.Err != nil || len(got.Vector) != len(want[i]) || got.Empty != (want[i] == nil) {
				t.Errorf("%s %q: %+v, want %v", name, text, got, want[i])
				continue
			}
			for k, x := range got.Vector {
				if math.Abs(float64(x)-want[i][k]) > 1e-5*max(1, math.Abs(want[i][k])) {
					t.Errorf("%s %q: %v, want %v", name, text, got.Vector, want[i])
					break
				}
			}
		}
	}
}

func TestEmbed_AsTheUserSays(t *testing.T) {
	t.Parallel()
	made, no := layoutFolder(t, "model2vec", nil), false
	plain, err := openModel(options{folder: made})
	if err != nil {
		t.Fatal(err)
	}
	short, err := openModel(options{
		folder: made, dims: 3, maxTokens: 2, normalize: &no, prefixes: map[embed.Kind]string{embed.Query: "the "},
	})
	if err != nil {
		t.Fatal(err)
	}
	if short.fingerprint == plain.fingerprint || short.dims != 3 {
		t.Errorf("got %d dims, fingerprint %s", short.dims, short.fingerprint)
	}
	query, _ := short.embed(embed.Query, "house by the sea", nil)
	document, _ := short.embed(embed.Document, "the house", nil)
	if fmt.Sprint(query.Vector) != fmt.Sprint(document.Vector) || !query.Truncated || document.Truncated ||
		len(query.Vector) != 3 {
		t.Errorf("got %+v and %+v", query, document)
	}
	if _, err := openModel(options{folder: made, dims: 9}); err == nil {
		t.Error("9 dims of 8")
	}
	if _, err := openModel(options{folder: made, weights: strings.Repeat("0", 64)}); err == nil {
		t.Error("other weights than those that are pinned")
	}
}

// tensors returns the content of a tensors file.
func tensors(t testing.TB, list ...*safetensors.Tensor) string {
	t.Helper()
	var out bytes.Buffer
	if err := safetensors.Write(&out, list...); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func lying(header string) string {
	return string(binary.LittleEndian.AppendUint64(nil, uint64(len(header)))) + header
}

// Errors in a folder name the file and the field, and never result in a vector.
func TestOpen_RefusesWhatNoModelCanHave(t *testing.T) {
	t.Parallel()
	const file = "model.safetensors"
	table := func(rows int) *safetensors.Tensor {
		return &safetensors.Tensor{Name: "embeddings", Shape: []int{rows, 2}, Floats: make([]float32, 2*rows)}
	}
	number := table(17)
	number.Floats[5] = float32(math.NaN())
	infinite := table(17)
	infinite.Floats[5] = float32(math.Inf(1))
	whole := tensors(t, table(17))
	far := `{"embeddings":{"dtype":"F32","shape":[17,2],"data_offsets":[0,136]},"mapping":{"dtype":"I64","shape":[17],"data_offsets":[136,272]}}`
	for _, test := range []struct{ file, content, want string }{
		{file, tensors(t, table(16)), "embeddings has 16 rows, and tokenizer.json has tokens up to 16"},
		{file, tensors(t, number), "number 5 of tensor embeddings is not finite"},
		{file, tensors(t, infinite), "number 5 of tensor embeddings is not finite"},
		{file, tensors(t, table(17), &safetensors.Tensor{Name: "weights", Shape: []int{2}, Floats: []float32{1, 1}}), "weights has 2"},
		{file, lying(far) + strings.Repeat("\x00", 136) + strings.Repeat("\x7f", 136), "mapping leads from token 0 to row"},
		{file, lying(far) + strings.Repeat("\x00", 136) + strings.Repeat("\xff", 136), "from token 0 to row -1"},
		{file, lying(`{"embeddings":{"dtype":"F32","shape":[17,2],"data_offsets":[0,136]},"mapping":{"dtype":"F32","shape":[17],"data_offsets":[136,204]}}`) + strings.Repeat("\x00", 204), "mapping has 0 whole numbers"},
		{file, whole[:len(whole)/2], "is not whole"},
		{file, whole[:5], "ends within its first 8 bytes"},
		{file, "<html>404 Not Found</html>", "no safetensors file"},
		{file, strings.Repeat("\xff", 8) + "{}", "no safetensors file"},
		{file, string(binary.LittleEndian.AppendUint64(nil, 17<<20)) + strings.Repeat(" ", 17<<20), "at most 16777216"},
		{file, lying(`{"embeddings":{"dtype":"F32","shape":[17,2],"data_offsets":[0,999999]}}`), "not whole"},
		{file, lying(`{"embeddings":{"dtype":"F32","shape":[17,2],"data_offsets":[-8,128]}}`) + whole, "that is not its size"},
		{file, lying(`{"embeddings":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}}`), "does not fit"},
		{file, lying(`{"embeddings":{"dtype":"I4","shape":[17,2],"data_offsets":[0,17]}}`), `of the type "I4"`},
		{file, lying(`{"embeddings":[1]}`), "tensor embeddings: parse"},
		{file, lying(`{"other":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`) + "0000", "no table of vectors"},
		{"config.json", `{"model_type":"model2vec","max_length":-1}`, "config.json: max_length"},
		{"config.json", `<html>`, "parse config.json"},
		{"modules.json", `[{"type":"Transformer"}]`, "modules.json: module 0 is Transformer"},
		{"tokenizer.json", `{"model":{"type":"BPE"}}`, `tokenizer.json: model type "BPE"`},
	} {
		_, err := openModel(options{folder: layoutFolder(t, "model2vec", map[string]string{test.file: test.content})})
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), test.file) {
			t.Errorf("%.90q: got %v, want one of %s with %q", test.content, err, test.file, test.want)
		}
	}
	made := layoutFolder(t, "model2vec", nil)
	if err := os.WriteFile(filepath.Join(made, file), []byte(whole), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openModel(options{folder: made}); err == nil || !strings.Contains(err.Error(), "damaged or was changed") {
		t.Errorf("another file than its sum says: %v", err)
	}
	_, err := openModel(options{folder: layoutFolder(t, "static", map[string]string{"modules.json": "[]"})})
	if err == nil || !strings.Contains(err.Error(), "says that this is a static model") {
		t.Errorf("nobody says that it is one: %v", err)
	}
}
