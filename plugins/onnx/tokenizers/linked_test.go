//go:build tokenizers && cgo

package tokenizers_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxtest"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/tokenizers"
)

// load returns a tokenizer of testdata, which testdata/make.py made.
func load(t *testing.T, name string) *tokenizers.Tokenizer {
	t.Helper()
	made, err := tokenizers.New([]byte(onnxtest.Unzipped(t, "testdata/"+name+".json.gz")))
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// encode returns the tokens of a text with the special ones around it.
func encode(t *testing.T, with *tokenizers.Tokenizer, text string) []int32 {
	t.Helper()
	got, err := with.Encode(text)
	if err != nil {
		t.Fatal(err)
	}
	before, after := with.Around()
	return slices.Concat(before, got.IDs, after)
}

// The same ids as the reference library gives, for every text, most of them hostile.
func TestEncode_AsTheReference(t *testing.T) {
	for _, name := range []string{"byte_bpe", "regex_bpe", "unigram", "cased"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			made := load(t, name)
			onnxtest.SameTokens(t, "testdata/"+name+".sums.gz", func(text string) []int32 {
				ids := encode(t, made, text)
				if slices.Max(append(ids, 0)) > made.MaxID() {
					t.Errorf("%.200q: ids %v, the largest was said to be %d", text, ids, made.MaxID())
				}
				return ids
			})
		})
	}
}

func TestEncode_Content(t *testing.T) {
	for _, test := range []struct {
		name, text string
		content    int
	}{
		{"byte_bpe", "", 0},
		{"byte_bpe", "<s></s><mask>", 0},
		{"byte_bpe", "<s>a</s>", 1},
		{"byte_bpe", "\xff\xfe", 0}, // not UTF-8
		{"byte_bpe", "a\xff", 1},
		{"unigram", " \t\u3000", 0},
		{"cased", "\x00", 0},
		{"cased", "[CLS]", 0},
		{"cased", "\U0001f642", 1}, // not known, and yet something
		{"unigram", "\U0001f642", 2},
	} {
		got, err := load(t, test.name).Encode(test.text)
		if err != nil || got.Content != test.content {
			t.Errorf("%s %q: got %+v, %v, want %d tokens that are not special", test.name, test.text, got, err, test.content)
		}
	}
}

func TestNew_Refuses(t *testing.T) {
	for _, json := range []string{
		"", "{", "[]", `{"model": {"type": "Other"}}`, "\xff",
		`{"version": "1.0", "model": {"type": "BPE", "vocab": {}, "merges": []}}`,
	} {
		if made, err := tokenizers.New([]byte(json)); err == nil || !strings.Contains(err.Error(), "tokenizers crate") {
			t.Errorf("%q: got %v, %v, want an error of the crate", json, made, err)
		}
	}
}

// Tokenizers are shared by calls, and end while others live.
func TestEncode_Concurrently(t *testing.T) {
	made := load(t, "byte_bpe")
	want := encode(t, made, "Some words, and \u4f60\u597d \U0001f642")
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 200 {
				got, err := made.Encode("Some words, and \u4f60\u597d \U0001f642")
				if err != nil || !slices.Equal(got.IDs, want[1:len(want)-1]) {
					t.Errorf("got %+v, %v", got, err)
					return
				}
			}
		})
	}
	group.Wait()
}
