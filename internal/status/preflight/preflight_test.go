package preflight

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/status/check"
)

// models are embedders by their model; other models are unavailable. It counts the requests for each.
type models struct {
	there map[string]embed.Description
	asked map[string]int
}

func (m *models) DescribeOne(_ context.Context, spec pipeline.Spec) (embed.Description, error) {
	m.asked[spec.Model]++
	d, ok := m.there[spec.Model]
	if !ok {
		return d, problem.New(problem.Usage, errors.New("no such model"), "take another")
	}
	return d, nil
}

func TestOfEmbedders_EachIsAFindingOnce(t *testing.T) {
	t.Parallel()
	m := &models{
		there: map[string]embed.Description{"small": {Plugin: "p", Model: "small", Dims: 3}}, asked: map[string]int{},
	}
	specs := []pipeline.Spec{
		{Name: "a", Plugin: "p", Model: "small"},
		{Name: "b", Plugin: "p", Model: "gone"},
		{Name: "c", Plugin: "p", Model: "small"},
		{Name: "d", Plugin: "p", Model: "gone"},
	}
	described, list := ofEmbedders(t.Context(), m, specs)
	if len(described) != 2 || described["c"].Dims != 3 || m.asked["gone"] != 1 || m.asked["small"] != 1 {
		t.Errorf("%+v, asked %v", described, m.asked)
	}
	if len(list) != 2 || list[0].Status != check.OK || list[0].Detail != "small, 3 wide" ||
		list[1].Status != check.Wrong || !slices.Equal(list[1].Hint, []string{"take another"}) {
		t.Errorf("%+v", list)
	}
	if err := Verdict(list); problem.Of(err) != problem.Failed || err.Error() != "1 thing would not work" {
		t.Errorf("%v", err)
	}
	if err := Verdict(list[:1]); err != nil {
		t.Errorf("%v", err)
	}
}

func TestNeeded_WhatIsConfiguredWins(t *testing.T) {
	t.Parallel()
	got := needed([]pipeline.Spec{{Name: "a", Model: "new"}}, []pipeline.Pipeline{
		{Spec: pipeline.Spec{Name: "a", Model: "old"}}, {Spec: pipeline.Spec{Name: "b"}},
	})
	if len(got) != 2 || got[0].Model != "new" || got[1].Name != "b" {
		t.Errorf("%+v", got)
	}
}
