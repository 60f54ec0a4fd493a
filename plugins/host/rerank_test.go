package host_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
)

func TestRerank_AnswersInOrderAndSplitsLargeCalls(t *testing.T) {
	t.Parallel()
	h := open(t, options(map[string]string{"EMBEDSIDECAR_PLUGIN_RERANKS": "true"}))
	about, err := h.Describe(t.Context())
	if err != nil || !about.Reranks || about.Dims != 1 {
		t.Fatalf("described as %+v, %v", about, err)
	}
	var texts []string
	for i := range 1000 {
		texts = append(texts, fmt.Sprint("text ", i), strings.Repeat("long ", i), "")
	}
	scores, err := h.Rerank(t.Context(), "a question", texts)
	if err != nil || len(scores) != len(texts) {
		t.Fatalf("%d scores, %v", len(scores), err)
	}
	for i, text := range texts {
		if want := vector.Score("a question", text); scores[i] != want {
			t.Fatalf("text %d: %g, want %g", i, scores[i], want)
		}
	}
	if _, err := h.Rerank(t.Context(), "q", []string{"a", "\xff"}); err == nil {
		t.Error("a text that is not UTF-8 was scored")
	}
	_, err = h.Embed(t.Context(), embed.Document, []string{"a"})
	if class, code := embed.Classify(err); class != embed.Configuration || code != "reranker" {
		t.Errorf("asked for a vector: %v", err)
	}
}

func TestRerank_ModelsThatMakeVectorsRefuse(t *testing.T) {
	t.Parallel()
	h := open(t, options(nil))
	_, err := h.Rerank(t.Context(), "q", []string{"a"})
	if class, code := embed.Classify(err); class != embed.Configuration || code != "no_reranker" ||
		!errors.Is(err, embed.ErrNoReranker) {
		t.Errorf("%v", err)
	}
	if vectors, err := h.Embed(t.Context(), embed.Document, []string{"a"}); err != nil || len(vectors) != 1 {
		t.Errorf("it embeds no more: %v", err)
	}
}
