package python

import (
	"slices"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/conformance"
	"github.com/embedsidecar/embedsidecar/plugins/host"
	"github.com/embedsidecar/embedsidecar/testenv/plugins"
)

const sparseWords = `#
from embedsidecar_embedder import Answer, serve_function

odd = {
    "outside": {-1: 1.0},
    "twice": {7: 1.0, "7": 2.0},
    "tiny": {3: 1e-50, 5: 0.1, 8: -1e-60, 9: 1e-45},
    "only tiny": {3: 1e-50},
    "huge": {3: 1e300, 5: 1.0},
    "none": {3: float("nan"), 5: 1.0},
}

def embed(texts):
    answers = []
    for text in texts:
        numbers = {}
        for word in text.split():
            place = sum(ord(c) * 31 ** i for i, c in enumerate(word)) % 30522
            numbers[place] = numbers.get(place, 0) + 1.5
        answer = Answer(numbers, tokens=len(numbers)) if numbers else Answer(empty=True)
        answers.append(odd[text] if text in odd else answer)
    return answers

serve_function(embed, name="sparse", version="1", dims=30522, fingerprint="sparse-words:1", deterministic=True,
  sparse=True)
`

func TestSparse_KeepsTheContract(t *testing.T) {
	t.Parallel()
	path, env := program(t, sparseWords)
	plugins.KeepsContract(t, conformance.Options{Path: path, Env: env})
	h := plugins.Start(t, host.Options{Path: path, Env: env})
	results, err := h.Embed(t.Context(), embed.Document, []string{"b a b", ""})
	if err != nil || !slices.Equal(results[0].Vector, []float32{97, 1.5, 98, 3}) || !results[1].Empty {
		t.Errorf("%+v, %v", results, err)
	}
	for text, want := range map[string]string{
		"outside": "ValueError in embed: an index of a sparse vector is not from 0 to 30521",
		"twice":   "ValueError in embed: two keys of a sparse vector are the index 7",
	} {
		if _, err = h.Embed(t.Context(), embed.Document, []string{text, "b"}); err == nil || !strings.Contains(err.Error(),
			want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	// Numbers are checked in single precision: zeros are dropped, and a number that is too large fails only its text.
	results, err = h.Embed(t.Context(), embed.Document, []string{"tiny", "b", "only tiny", "huge", "none"})
	if err != nil {
		t.Fatal(err)
	}
	if got := results[0].Vector; !slices.Equal(got, []float32{5, 0.1, 9, 1e-45}) {
		t.Errorf("numbers that are zero in single precision: %v", got)
	}
	if results[0].Err != nil || results[1].Err != nil || results[2].Err == nil || results[3].Err == nil ||
		results[4].Err == nil {
		t.Errorf("%+v", results)
	}
}
