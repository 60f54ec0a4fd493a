package replication

import (
	"slices"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

func stream(pipelines ...pipeline.Pipeline) *Stream {
	s := New(Options{})
	s.SetPipelines(pipelines)
	return s
}

// A table that somebody locks tells nothing: what was known of it holds, but not of another table or definition.
func TestSetPipelines_KeepsWhatWasKnownOfALockedTable(t *testing.T) {
	t.Parallel()
	known := pipeline.Pipeline{ID: 7, OID: 1, Generation: 2, Watched: []string{"title"}, Status: pipeline.Active}
	for name, c := range map[string]struct {
		now  pipeline.Pipeline
		kept bool
	}{
		"locked":                     {pipeline.Pipeline{ID: 7, OID: 1, Generation: 2, Status: pipeline.Locked}, true},
		"not locked":                 {pipeline.Pipeline{ID: 7, OID: 1, Generation: 2, Status: pipeline.Missing}, false},
		"locked, another table":      {pipeline.Pipeline{ID: 7, OID: 2, Generation: 2, Status: pipeline.Locked}, false},
		"locked, another generation": {pipeline.Pipeline{ID: 7, OID: 1, Generation: 3, Status: pipeline.Locked}, false},
		"locked, another pipeline":   {pipeline.Pipeline{ID: 8, OID: 1, Generation: 2, Status: pipeline.Locked}, false},
	} {
		s := stream(known)
		s.SetPipelines([]pipeline.Pipeline{c.now})
		list := s.routes.Load().pipelines()
		if len(list) != 1 || slices.Equal(list[0].Watched, known.Watched) != c.kept {
			t.Errorf("%s: %+v, want what was known: %t", name, list[0], c.kept)
		}
	}
}

// What the catalogue may change of a pipeline without init must be told apart; what it may not, need not.
func TestStoreRoutes_TellsWhatChangesAreJudgedBy(t *testing.T) {
	t.Parallel()
	base := pipeline.Pipeline{
		ID: 7, OID: 1, Generation: 2, Watched: []string{"title"},
		Spec: pipeline.Spec{IntoColumn: "embedding"}, Key: []pipeline.KeyColumn{{Name: "id"}},
	}
	said := func(p pipeline.Pipeline, epoch int64) string { return stream(p).routeRows(epoch).sum() }
	first := said(base, 1)
	for name, c := range map[string]struct {
		change func(p *pipeline.Pipeline)
		same   bool
	}{
		"nothing":                   {func(*pipeline.Pipeline) {}, true},
		"its key":                   {func(p *pipeline.Pipeline) { p.Key = nil }, true},
		"another table by its name": {func(p *pipeline.Pipeline) { p.OID = 2 }, false},
		"another generation":        {func(p *pipeline.Pipeline) { p.Generation = 3 }, false},
		"a column more":             {func(p *pipeline.Pipeline) { p.Watched = []string{"title", "body"} }, false},
		"every column":              {func(p *pipeline.Pipeline) { p.WatchAll = true }, false},
		"a column that was renamed": {func(p *pipeline.Pipeline) { p.IntoColumn = "vector" }, false},
	} {
		p := base
		if c.change(&p); (said(p, 1) == first) != c.same {
			t.Errorf("%s: said alike: %t, want %t", name, !c.same, c.same)
		}
	}
	if said(base, 2) == first {
		t.Error("another epoch's word counts as this one's")
	}
	a := stream(pipeline.Pipeline{ID: 9, OID: 1}, pipeline.Pipeline{ID: 3, OID: 1}, base).routeRows(1)
	if !slices.Equal(a.IDs, []int32{3, 7, 9}) || len(a.Generations) != 3 || len(a.Definitions) != 3 {
		t.Errorf("said of %v: want every pipeline once, by its number", a.IDs)
	}
	if err := stream(base).StoreRoutes(t.Context()); err != nil { // without the slot
		t.Error(err)
	}
}
