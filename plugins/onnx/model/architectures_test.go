package model_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/models"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/model"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxtest"
	"github.com/embedsidecar/embedsidecar/tools"
)

// imported makes a model folder of published files with random weights, which testdata/architectures/make.py made.
func imported(t *testing.T, name string, short bool) (folder string, err error) {
	t.Helper()
	done, err := models.Import(t.Context(), models.ImportOptions{
		From: filepath.Join("testdata", "architectures", name), Into: t.TempDir(), Int8: short, Script: tools.MakeONNX,
	})
	return done.Path, err
}

// Vectors of each architecture as transformers computes them, from weights to the mean of the tokens.
func TestOpen_Architectures(t *testing.T) {
	for _, name := range []string{"bert", "bert_fp16", "bert_bf16", "roberta", "xlm-roberta", "camembert", "distilbert", "mpnet"} {
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
			check := func(precision string, least float64) {
				t.Helper()
				m, err := model.Open(t.Context(), model.Options{Folder: folder, Library: onnxtest.Library(t), Threads: 1, Precision: precision})
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := m.Close(); err != nil {
						t.Error(err)
					}
				}()
				if about := m.Describe(); about.Precision != precision || about.Name != name {
					t.Errorf("described as %+v", about)
				}
				together := mustEmbed(t, m, want.Texts...)
				for i, text := range want.Texts {
					if c := embed.Cosine(together[i].Vector, want.Vectors[i]); c < least {
						t.Errorf("%s, %d tokens: cosine to the reference %.7f, want %g", precision, together[i].Tokens, c, least)
					}
					// The same text always gets the same vector, whatever it is embedded with.
					if alone := mustEmbed(t, m, text)[0].Vector; distance(alone, together[i].Vector) > near {
						t.Errorf("%s: text %d is off by %g alone", precision, i, distance(alone, together[i].Vector))
					}
				}
			}
			check("fp32", 0.999999)
			if withInt8 {
				check("int8", 0.98)
			}
		})
	}
}

func TestImport_Int8OfMPNet(t *testing.T) {
	if _, err := imported(t, "mpnet", true); err == nil || !strings.Contains(err.Error(), "int8 is not supported for mpnet") {
		t.Errorf("got %v", err)
	}
}
