package main

import (
	"context"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/named/models"
)

// teacher returns a different vector for every text.
type teacher struct{ asked []string }

func (l *teacher) Describe(context.Context) (embed.Description, error) {
	return embed.Description{}, nil
}

func (l *teacher) Embed(_ context.Context, _ embed.Kind, texts []string) ([]embed.Result, error) {
	l.asked = append(l.asked, texts...)
	results := make([]embed.Result, len(texts))
	for i, text := range texts {
		hash := fnv.New64a()
		_, _ = hash.Write([]byte(text))
		random := rand.New(rand.NewPCG(hash.Sum64(), 27))
		for range 8 {
			results[i].Vector = append(results[i].Vector, float32(random.NormFloat64()))
		}
	}
	return results, nil
}

// Distillation makes a model folder that this plugin reads: one vector for each token that is not special, with lower
// weights for common ones. A text's vector is their mean.
func TestDistill_MakesWhatThePluginReads(t *testing.T) {
	t.Parallel()
	for _, tokens := range []string{"model2vec", "model2vec_unigram"} {
		out := filepath.Join(t.TempDir(), "made", "small")
		l := &teacher{}
		o := models.DistillOptions{
			From: filepath.Join("testdata", "layouts", tokens), Out: out, Dims: 4, Teacher: l,
			About: embed.Description{Model: "big", Fingerprint: "sha256:big", Dims: 8},
		}
		done, err := models.Distill(t.Context(), o)
		if err != nil || done.Dims != 4 || done.Type != "model2vec" || done.Problem != "" {
			t.Fatalf("%s: %+v, %v", tokens, done, err)
		}
		for _, text := range l.asked {
			special := slices.Contains([]string{"", "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<unk>", "<s>", "</s>"}, text)
			if special || strings.Contains(text, "##") || strings.Contains(text, "\u2581") {
				t.Errorf("%s: the teacher was asked for %q", tokens, text)
			}
		}
		m, err := openModel(options{folder: out})
		if err != nil {
			t.Fatal(err)
		}
		answer, _ := m.embed(embed.Document, "a house by the river", nil)
		length := 0.0
		for _, x := range answer.Vector {
			length += float64(x) * float64(x)
		}
		if len(answer.Vector) != 4 || math.Abs(length-1) > 1e-5 {
			t.Errorf("%s: %v has the square %g", tokens, answer.Vector, length)
		}
		if tokens == "model2vec" { // tokens 5 and 16 are words, 3 is special
			size := func(id int) (sum float64) {
				for _, x := range m.table[id*m.width : (id+1)*m.width] {
					sum += float64(x) * float64(x)
				}
				return sum
			}
			if size(3) != 0 || size(5) == 0 || size(5) >= size(16) {
				t.Errorf("tokens 3, 5 and 16 have the squares %g, %g and %g", size(3), size(5), size(16))
			}
		}
		if _, err := models.Distill(t.Context(), o); err == nil || !strings.Contains(err.Error(), "exists") {
			t.Errorf("%s, again: %v", tokens, err)
		}
		if left, err := os.ReadDir(filepath.Dir(out)); err != nil || len(left) != 1 {
			t.Errorf("%s: there is %v, %v", tokens, left, err)
		}
	}
}

func TestDistill_RefusesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		`{"model": {"type": "BPE", "vocab": {}}}`:                                   "its tokenizer is a BPE",
		`{"model": {"type": "WordPiece", "vocab": {"a": 99999999}}}`:                `token "a" has the number 99999999`,
		`{"model": {"type": "WordPiece", "vocab": {"a": -1}}}`:                      `token "a" has the number -1`,
		`{"model": {"type": "WordPiece", "vocab": {"a": 0}}}`:                       "only 1 of its 1 tokens",
		`{"model": {"type": "Unigram", "vocab": [["a"]]}}`:                          "token 0 is not a pair",
		`{"model": {"type": "Unigram", "vocab": []}, "added_tokens": [{"id": -4}]}`: "a token has the number -4",
		`<html>`: "read tokenizer.json",
	} {
		from := t.TempDir()
		if err := os.WriteFile(filepath.Join(from, tokenizerFile), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(t.TempDir(), "small")
		_, err := models.Distill(t.Context(), models.DistillOptions{
			From: from, Out: out, Teacher: &teacher{}, About: embed.Description{Dims: 8},
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", content, err, want)
		}
		if left, err := os.ReadDir(filepath.Dir(out)); err != nil || len(left) != 0 {
			t.Errorf("%s: there is %v, %v", content, left, err)
		}
	}
}
