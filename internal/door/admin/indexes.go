package admin

import (
	"context"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/setup/indexes"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
)

// IndexList are the indexes over the vectors of a pipeline.
type IndexList struct {
	Indexes []indexes.Index `json:"indexes"`
}

// Indexes looks at the indexes of a pipeline.
func (s *Service) Indexes(ctx context.Context, name string) (IndexList, error) {
	p, err := s.Pipeline(ctx, name)
	return IndexList{append([]indexes.Index{}, p.Indexes...)}, err
}

// measuring is how long the searches without the index may take that an index is measured by.
const measuring = 20 * time.Second

// MeasureIndex measures the index of a pipeline, one at a time, since it reads every vector many times.
func (s *Service) MeasureIndex(ctx context.Context, name string) (indexes.Recall, error) {
	_, pool, names, err := s.meant(ctx, gate.RoleOperator, []string{name})
	if err != nil {
		return indexes.Recall{}, err
	}
	if err := s.counting.take(ctx); err != nil {
		return indexes.Recall{}, err
	}
	defer s.counting.giveBack()
	found, err := lookup.Named(ctx, pool, names)
	if err != nil {
		return indexes.Recall{}, err
	}
	return indexes.Measure(ctx, pool, &found[0], indexes.Queries, measuring, nil)
}

// indexes are the routes about them.
func (a *api) indexes() {
	s := a.service
	get(a, "/pipelines/{name}/index", "index", "List the indexes over the vectors of a pipeline",
		func(ctx context.Context, in *named) (IndexList, error) { return s.Indexes(ctx, in.Name) })
	post(a, gate.RoleOperator, "/pipelines/{name}/index", "measure-index",
		"Measure what searches by the index of a pipeline find, and how fast, for some seconds",
		func(ctx context.Context, in *named) (indexes.Recall, error) { return s.MeasureIndex(ctx, in.Name) })
}
