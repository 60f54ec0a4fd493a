package model_test

import (
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
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

// layouts are well-known models as they are published: testdata/layouts/make.py made their files, and their vectors by
// numpy.
type layouts struct {
	Texts, Queries []string
	Cases          []layout
}

type layout struct {
	Hub, Licence, Also, Note, Kind string
	Params                         float64 // millions
	Static                         string  // the layout among those of the plugin static; "": it is not static
	Weights                        string  // the folder of ../architectures with model.safetensors; "": among the files
	Files, Binary                  map[string]string
	State                          struct { // what a user says
		Pooling, File  string
		QueryPrefix    *string `json:"query_prefix"`
		DocumentPrefix *string `json:"document_prefix"`
		Dims           int
		LayerNorm      *bool `json:"layer_norm"`
	}
	Card    bool     // only the model's card says what the prefixes are
	Refused []string // parts of the error; none: it runs
	Limit   int      // tokens that are read of a text

	Documents, Queries []json.RawMessage // vectors; of sparse models objects
	Scores             []float64
}

func readLayouts(t *testing.T) (all layouts) {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", "layouts", "layouts.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	unzipped, err := gzip.NewReader(file)
	if err == nil {
		err = json.NewDecoder(unzipped).Decode(&all)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// folder writes what is published.
func (l *layout) folder(t *testing.T) string {
	t.Helper()
	into := filepath.Join(t.TempDir(), filepath.Base(l.Hub))
	files := map[string][]byte{}
	for name, content := range l.Files {
		files[name] = []byte(content)
	}
	for name, content := range l.Binary {
		data, err := base64.StdEncoding.DecodeString(content)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = data
	}
	if l.Weights != "" {
		data, err := os.ReadFile(filepath.Join("testdata", "architectures", l.Weights, "model.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		files["model.safetensors"] = data
	}
	for name, data := range files {
		path := filepath.Join(into, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, data, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return into
}

// open imports what is published as a user does, and opens the model.
func (l *layout) open(t *testing.T, stated models.Stated) (*model.Model, error) {
	t.Helper()
	done, err := models.Import(t.Context(), models.ImportOptions{
		From: l.folder(t), Into: t.TempDir(), Script: tools.MakeONNX, Stated: stated, File: l.State.File,
	})
	if err != nil {
		return nil, err
	}
	m, err := model.Open(t.Context(), model.Options{
		Folder: done.Path, Library: onnxtest.Library(t), Threads: 1,
		Settings: model.Settings{Dims: l.State.Dims, LayerNorm: l.State.LayerNorm},
	})
	if err == nil {
		t.Cleanup(func() {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return m, err
}

// Each layout gives what numpy makes of it, or is refused with a sentence that says what to do.
func TestLayouts(t *testing.T) {
	t.Parallel()
	all := readLayouts(t)
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
			m, err := l.open(t, stated)
			if len(l.Refused) > 0 {
				wantError(t, err, l.Refused...)
				return
			}
			if errors.Is(err, tokenizers.ErrNotBuilt) && !tokenizers.Linked {
				return // which the error says
			}
			if err != nil {
				t.Fatal(err)
			}
			if l.Card {
				plain, err := l.open(t, models.Stated{Pooling: l.State.Pooling})
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

// settingsOf returns what a model goes by.
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
