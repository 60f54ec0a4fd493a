package query

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
)

func TestVectors_SayWhatBecameOfEachText(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	v := vectors(embed.Description{Plugin: "p", Model: "m", Dims: 2, MaxTokens: 8}, []embed.Result{
		{Vector: []float32{1, 0.5}, Tokens: 3}, {Empty: true}, {Vector: []float32{0, 1}, Truncated: true}, {Err: refused},
	})
	if e := v.Embeddings[0]; e.Text != "[1,0.5]" || e.Tokens != 3 || !slices.Equal(e.Vector, []float32{1, 0.5}) {
		t.Errorf("%+v", e)
	}
	if e := v.Embeddings[3]; e.Index != 3 || e.Error != "refused" || e.Text != "" || e.Vector != nil {
		t.Errorf("%+v", e)
	}
	want := []string{
		"text 2 holds nothing to embed: it has no vector",
		"text 3 is longer than the 8 tokens the model takes: it was cut",
	}
	if !slices.Equal(v.Remarks, want) {
		t.Errorf("%q", v.Remarks)
	}
	if !errors.Is(v.Failed, refused) || problem.Of(v.Failed) != problem.Failed || v.Failed.Error() != "text 4: refused" {
		t.Errorf("%v", v.Failed)
	}
}

func TestVectors_OfASparseModel(t *testing.T) {
	t.Parallel()
	v := vectors(embed.Description{Sparse: true, Dims: 9}, []embed.Result{
		{Vector: []float32{2, 0.5, 7, 1}, Truncated: true}, {Empty: true},
	})
	e := v.Embeddings[0]
	if !slices.Equal(e.Indices, []uint32{2, 7}) || !slices.Equal(e.Vector, []float32{0.5, 1}) ||
		e.Text != "{3:0.5,8:1}/9" {
		t.Errorf("%+v", e)
	}
	if v.Failed != nil || v.Remarks[0] != "text 1 is longer than the model takes: it was cut" {
		t.Errorf("%v, %q", v.Failed, v.Remarks)
	}
}

func TestTexts_OfArgumentsAndLines(t *testing.T) {
	t.Parallel()
	got, err := Texts([]string{"a b", "-", "-", "c"}, strings.NewReader("one\r\n\ntwo"))
	if want := []string{"a b", "one", "", "two", "c"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := Texts([]string{"a", "\xff"}, nil); problem.Of(err) != problem.Usage || err.Error() != "text 2 is not UTF-8" {
		t.Errorf("%v", err)
	}
}
