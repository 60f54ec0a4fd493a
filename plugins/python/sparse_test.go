package python

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/conformance"
	"github.com/embedsidecar/embedsidecar/plugins/host"
)

const sparseWords = `#
from embedsidecar_embedder import Answer, serve_function

def embed(texts):
    answers = []
    for text in texts:
        numbers = {}
        for word in text.split():
            place = sum(ord(c) * 31 ** i for i, c in enumerate(word)) % 30522
            numbers[place] = numbers.get(place, 0) + 1.5
        answers.append({-1: 1.0} if text == "outside" else Answer(numbers, tokens=len(numbers)) if numbers else Answer(empty=True))
    return answers

serve_function(embed, name="sparse", version="1", dims=30522, fingerprint="sparse-words:1", deterministic=True, sparse=True)
`

func TestSparse_KeepsTheContract(t *testing.T) {
	t.Parallel()
	path, env := program(t, sparseWords)
	report, err := conformance.Run(t.Context(), conformance.Options{Path: path, Env: env, Soak: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range report.Checks {
		if c.Verdict != conformance.Pass {
			t.Errorf("%+v", c)
		}
	}
	h, err := host.New(host.Options{Path: path, Env: env})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = h.Close() }()
	results, err := h.Embed(t.Context(), embed.Document, []string{"b a b", ""})
	if err != nil || !slices.Equal(results[0].Vector, []float32{97, 1.5, 98, 3}) || !results[1].Empty {
		t.Errorf("%+v, %v", results, err)
	}
	if _, err = h.Embed(t.Context(), embed.Document, []string{"outside"}); err == nil || !strings.Contains(err.Error(), "ValueError in embed") {
		t.Errorf("a place outside: %v", err)
	}
}
