package admin

import (
	"context"

	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// What is read of the tables each time somebody asks, and by no page.
type (
	workerList struct {
		Workers []report.Worker `json:"workers"`
	}
	laneList struct {
		Lanes []report.Lane `json:"lanes"`
	}
	rowList struct {
		Rows []report.RowState `json:"rows" doc:"Those that were ever looked at or wait for it, by their keys"`
	}
)

// Workers tells of the sidecars that work here and those that ended a short while ago: to who sees all pipelines.
func (s *Service) Workers(ctx context.Context) ([]report.Worker, error) {
	_, pool, err := s.whole(ctx, gate.RoleViewer)
	if err != nil {
		return nil, err
	}
	list, err := report.Workers(ctx, pool)
	for i := range list {
		w := &list[i]
		w.StreamDetail = s.o.Redact(w.StreamDetail)
		for id, p := range w.Problems {
			p.Detail = s.o.Redact(p.Detail)
			w.Problems[id] = p
		}
	}
	return append([]report.Worker{}, list...), err
}

// Lanes counts rows of pipelines that the caller sees by priority and state. It counts all of them, one who asks at a
// time.
func (s *Service) Lanes(ctx context.Context, pipelines []string) ([]report.Lane, error) {
	_, pool, names, err := s.chosen(ctx, pipelines)
	if err != nil {
		return nil, err
	}
	if err := s.counting.take(ctx); err != nil {
		return nil, err
	}
	defer s.counting.giveBack()
	list, err := report.Lanes(ctx, pool, names)
	return append([]report.Lane{}, list...), err
}

// RowStates tells where rows of a pipeline stand.
func (s *Service) RowStates(ctx context.Context, pipeline string, keys []string) ([]report.RowState, error) {
	_, pool, names, err := s.meant(ctx, gate.RoleViewer, []string{pipeline})
	if err != nil {
		return nil, err
	}
	list, err := report.RowStates(ctx, pool, names[0], keys)
	return append([]report.RowState{}, list...), err
}

// rows tell of sidecars, lanes and rows.
func (a *api) rows() {
	s := a.service
	get(a, "/workers", "workers",
		"List the sidecars of this database, with their work of the last 24 hours",
		func(ctx context.Context, _ *none) (workerList, error) {
			list, err := s.Workers(ctx)
			return workerList{list}, err
		})
	get(a, "/lanes", "lanes", "Count rows by priority and state, with their ages",
		func(ctx context.Context, in *OfPipelines) (laneList, error) {
			list, err := s.Lanes(ctx, in.Pipelines)
			return laneList{list}, err
		})
	type some struct {
		Name string   `path:"name"`
		Keys []string `query:"key,explode" required:"true" maxItems:"100" doc:"As tasks shows them; again for more"`
	}
	get(a, "/pipelines/{name}/rows", "rows",
		"Tell where rows stand: pending, embedded, stale, failed, cancelled, or no_text",
		func(ctx context.Context, in *some) (rowList, error) {
			list, err := s.RowStates(ctx, in.Name, in.Keys)
			return rowList{list}, err
		})
}
