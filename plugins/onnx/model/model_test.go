package model_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/model"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxtest"
)

// shared is one model for all tests that do not modify it, because loading takes longer than most tests.
var shared struct {
	once  sync.Once
	model *model.Model
	err   error
}

func open(t testing.TB) *model.Model {
	t.Helper()
	folder, library := onnxtest.Model(t), onnxtest.Library(t)
	shared.once.Do(func() {
		shared.model, shared.err = model.Open(context.Background(), model.Options{
			Folder: folder, Library: library,
			Threads: 2,
		})
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.model
}

// line is a text with the results of the reference implementation.
type line struct {
	Text      string    `json:"text"`
	IDs       []int32   `json:"ids"`
	Embedding []float32 `json:"embedding"`
}

func reference(t testing.TB) []line {
	t.Helper()
	return onnxtest.Lines[line](t, "testdata/embeddings.jsonl.gz")
}

func textsOf(lines []line) []string {
	var texts []string
	for _, l := range lines {
		texts = append(texts, l.Text)
	}
	return texts
}

func mustEmbed(t testing.TB, m *model.Model, texts ...string) []embed.Result {
	t.Helper()
	results, err := m.Embed(t.Context(), embed.Document, texts)
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != len(texts) {
		t.Fatalf("got %d results for %d texts", len(results), len(texts))
	}
	return results
}

func distance(a, b []float32) float64 {
	most := 0.0
	for i := range a {
		most = max(most, math.Abs(float64(a[i])-float64(b[i])))
	}
	return most
}

// near is the tolerance of a vector's numbers against the reference's, which uses 32 bits and another order of
// additions.
const near = 1e-6

func TestEmbed_EqualsReference(t *testing.T) {
	m, lines := open(t), reference(t)
	if len(lines) != 100 {
		t.Fatalf("got %d reference texts, want 100", len(lines))
	}
	for i, got := range mustEmbed(t, m, textsOf(lines)...) {
		want := lines[i]
		if onlySpecial := len(want.IDs) == 2; got.Empty != onlySpecial {
			t.Errorf("text %d: empty %t, want %t", i, got.Empty, onlySpecial)
		}
		if got.Empty {
			if got.Vector != nil || got.Tokens != 0 {
				t.Errorf("text %d is empty, but has %d tokens and a vector of %d", i, got.Tokens, len(got.Vector))
			}
			continue
		}
		// The reference also cuts tokens.
		if got.Tokens != len(want.IDs) || got.Truncated && got.Tokens < 256 {
			t.Errorf("text %d: %d tokens, truncated %t, want %d", i, got.Tokens, got.Truncated, len(want.IDs))
		}
		if c := embed.Cosine(got.Vector, want.Embedding); c < 0.9999 {
			t.Errorf("text %d: cosine to the reference %g, want 0.9999", i, c)
		}
		if d := distance(got.Vector, want.Embedding); d > near {
			t.Errorf("text %d: off by %g, want at most %g", i, d, near)
		}
	}
}

func TestEmbed_VectorDoesNotDependOnTheBatch(t *testing.T) {
	m, texts := open(t), textsOf(reference(t))
	if !m.Describe().Deterministic {
		t.Log("on this processor vectors depend on the batch within rounding")
	}
	want := mustEmbed(t, m, texts...)
	check := func(name string, text int, got embed.Result) {
		t.Helper()
		if m.Describe().Deterministic && !slices.Equal(got.Vector, want[text].Vector) ||
			distance(got.Vector, want[text].Vector) > near {
			t.Errorf("%s: text %d has another vector, off by %g", name, text, distance(got.Vector, want[text].Vector))
		}
	}
	for i, text := range texts {
		check("alone", i, mustEmbed(t, m, text)[0])
	}
	backwards := slices.Clone(texts)
	slices.Reverse(backwards)
	for i, got := range mustEmbed(t, m, append(backwards, backwards...)...) {
		check("backwards and twice", len(texts)-1-i%len(texts), got)
	}
}

func TestEmbed_SeveralLanes(t *testing.T) {
	texts := textsOf(reference(t))
	want := mustEmbed(t, open(t), texts...)
	m, err := openWith(t, model.Options{Folder: onnxtest.Model(t), Threads: 8})
	if err != nil {
		t.Fatal(err)
	}
	for i, got := range mustEmbed(t, m, texts...) {
		if distance(got.Vector, want[i].Vector) > near {
			t.Errorf("text %d: off by %g with 8 threads", i, distance(got.Vector, want[i].Vector))
		}
	}
}

// A small model holds its weights twice, for single texts and for many. A large model, or one for long texts, holds
// them once. In both cases a text gets the same vector alone and in a batch.
func TestOpen_ModelThatTakesMuchMemoryIsHeldOnce(t *testing.T) {
	for _, c := range []struct {
		bytes  int64
		tokens int
		runs   int
	}{{1000, 16, 3}, {256<<20 + 1, 16, 1}, {1000, 512, 3}, {1000, 513, 1}, {1000, 8192, 1}} {
		files := tiny.Files()
		files["config.json"] = fmt.Sprintf(`{"max_position_embeddings": %d, "vocab_size": 8, "hidden_size": 3}`, c.tokens)
		files["sentence_bert_config.json"] = fmt.Sprintf(`{"max_seq_length": %d}`, c.tokens)
		files["model.onnx"] = tinyWith(weightsIn("weights"))
		folder := writeFolder(t, files)
		addWeights(t, folder, c.bytes)
		m, err := openWith(t, model.Options{Folder: folder, Threads: 3})
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Describe().Runs; got != c.runs {
			t.Errorf("%d bytes of weights, %d tokens: %d runs at a time, want %d", c.bytes, c.tokens, got, c.runs)
		}
		texts := slices.Repeat([]string{"a", "b a", "query b", "a b a b a b"}, 30)
		for i, result := range mustEmbed(t, m, texts...) {
			if alone := mustEmbed(t, m, texts[i])[0]; !slices.Equal(alone.Vector, result.Vector) {
				t.Errorf("%d bytes of weights, %d tokens, text %d: %v among others, %v alone", c.bytes, c.tokens, i, result.Vector,
					alone.Vector)
			}
		}
	}
}

// addWeights writes the table into a file, padded with zeros to a size, and adds it to the sums.
func addWeights(t *testing.T, folder string, bytes int64) {
	t.Helper()
	path := filepath.Join(folder, "weights")
	if err := os.WriteFile(path, tiny.Weights(), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, bytes); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		t.Fatal(err)
	}
	sums, err := os.OpenFile(filepath.Join(folder, "SHA256SUMS"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintf(sums, "%x  weights\n", sum.Sum(nil))
	if err := errors.Join(err, sums.Close(), file.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestDescribe(t *testing.T) {
	got := open(t).Describe()
	if got.Name != onnxtest.ModelName || got.Dims != 384 || got.MaxTokens != 256 || !got.Symmetric ||
		got.Precision != "fp32" {
		t.Errorf("got %+v", got)
	}
	// The model of tools/fetch-model.sh. If this changes, every user must embed everything again.
	if want := "sha256:10213e1c538466f916d412b98edda4aa52e3b43a524a832f14c6748bef261380"; got.Fingerprint != want {
		t.Errorf("fingerprint %s, want %s", got.Fingerprint, want)
	}
}

func BenchmarkEmbed(b *testing.B) {
	m, texts := open(b), textsOf(reference(b))
	for _, count := range []int{1, 16, 100} {
		b.Run(map[int]string{1: "one", 16: "sixteen", 100: "hundred"}[count], func(b *testing.B) {
			embedded := 0
			for b.Loop() {
				for start := 0; start+count <= len(texts); start += count {
					mustEmbed(b, m, texts[start:start+count]...)
					embedded += count
				}
			}
			b.ReportMetric(float64(embedded)/b.Elapsed().Seconds(), "texts/s")
		})
	}
}
