package model_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/named/models"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/model"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxfile"
	"github.com/embedsidecar/embedsidecar/tools"
)

// imported makes a model folder from published files with random weights, made by testdata/architectures/make.py.
func imported(t *testing.T, name string, short bool) (folder string, err error) {
	t.Helper()
	done, err := models.Import(t.Context(), models.ImportOptions{
		From: filepath.Join("testdata", "architectures", name), Into: t.TempDir(), Int8: short, Script: tools.MakeONNX,
		Stated: models.Stated{Pooling: "mean"},
	})
	return done.Path, err
}

// Vectors of each architecture equal those of transformers, from weights to the mean of the tokens.
func TestOpen_Architectures(t *testing.T) {
	for _, name := range []string{
		"bert", "bert_fp16", "bert_bf16", "roberta", "xlm-roberta", "camembert", "distilbert",
		"mpnet",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			withInt8 := name != "mpnet"
			folder, err := imported(t, name, withInt8)
			if err != nil {
				t.Fatal(err)
			}
			var want struct {
				Texts   []string
				Vectors [][]float32
			}
			data, err := os.ReadFile(filepath.Join("testdata", "architectures", name, "vectors.json"))
			if err == nil {
				err = json.Unmarshal(data, &want)
			}
			if err != nil {
				t.Fatal(err)
			}
			check := func(precision string, threads int, least float64) {
				t.Helper()
				m, err := openWith(t, model.Options{Folder: folder, Threads: threads, Precision: precision})
				if err != nil {
					t.Fatal(err)
				}
				if about := m.Describe(); about.Precision != precision || about.Name != name {
					t.Errorf("described as %+v", about)
				}
				together := mustEmbed(t, m, want.Texts...)
				for i, text := range want.Texts {
					if c := embed.Cosine(together[i].Vector, want.Vectors[i]); c < least {
						t.Errorf("%s, %d tokens: cosine to the reference %.7f, want %g", precision, together[i].Tokens, c, least)
					}
					// A text's vector does not depend on the other texts of the batch.
					if alone := mustEmbed(t, m, text)[0].Vector; distance(alone, together[i].Vector) > near {
						t.Errorf("%s: text %d is off by %g alone", precision, i, distance(alone, together[i].Vector))
					}
				}
			}
			for threads := 1; threads <= 3; threads++ { // each number of threads splits rows and columns in another way
				check("fp32", threads, 0.999999)
				if withInt8 {
					check("int8", threads, 0.98)
				}
			}
		})
	}
}

// 8-bit matrices have a multiple of 16 columns, or fewer than 16, because some libraries compute others wrongly on some
// CPUs. The padding changes nothing, also that of attention heads.
func TestImport_PadsInt8(t *testing.T) {
	for _, heads := range []int{3, 1} { // heads of 8 and of 24 numbers
		from := t.TempDir()
		if err := os.CopyFS(from, os.DirFS("testdata/architectures/bert")); err != nil {
			t.Fatal(err)
		}
		config, err := os.ReadFile(filepath.Join(from, "config.json"))
		if err != nil {
			t.Fatal(err)
		}
		changed := strings.Replace(string(config), `"num_attention_heads": 3`, fmt.Sprintf(`"num_attention_heads": %d`,
			heads), 1)
		if err := os.WriteFile(filepath.Join(from, "config.json"), []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		done, err := models.Import(t.Context(), models.ImportOptions{
			From: from, Name: "bert", Into: t.TempDir(), Int8: true,
			Script: tools.MakeONNX, Stated: models.Stated{Pooling: "mean"},
		})
		if err != nil {
			t.Fatal(err)
		}
		file, err := os.ReadFile(filepath.Join(done.Path, "model_int8.onnx"))
		if err != nil {
			t.Fatal(err)
		}
		graph, err := onnxfile.Parse(file)
		if err != nil {
			t.Fatal(err)
		}
		if len(graph.Products) < 3 {
			t.Errorf("%d heads: products %v", heads, graph.Products)
		}
		for _, p := range graph.Products {
			if p.Elements != onnxfile.Int8s || p.Columns >= 16 && p.Columns%16 != 0 {
				t.Errorf("%d heads: a product of %+v", heads, p)
			}
		}
		texts := []string{"a", "hello world", "the quick brown fox jumps over the lazy dog", strings.Repeat("zz ", 30)}
		var vectors [2][]embed.Result
		for i, precision := range []string{"fp32", "int8"} {
			m, err := openWith(t, model.Options{Folder: done.Path, Threads: 2, Precision: precision})
			if err != nil {
				t.Fatal(err)
			}
			vectors[i] = mustEmbed(t, m, texts...)
		}
		for i := range texts {
			if c := embed.Cosine(vectors[0][i].Vector, vectors[1][i].Vector); c < 0.98 {
				t.Errorf("%d heads, text %d: cosine of 8 bits to 32 %.4f", heads, i, c)
			}
		}
	}
}

func TestImport_Int8OfMPNet(t *testing.T) {
	if _, err := imported(t, "mpnet", true); err == nil || !strings.Contains(err.Error(),
		"int8 is not supported for mpnet") {
		t.Errorf("got %v", err)
	}
}
