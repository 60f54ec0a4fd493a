package admin

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/setup/indexes"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
	"github.com/embedsidecar/embedsidecar/internal/status/check"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// Answers that are read from the tables on each request, and that no page shows.
type (
	workerList struct {
		Workers []report.Worker `json:"workers"`
	}
	laneList struct {
		Lanes []report.Lane `json:"lanes"`
	}
	rowList struct {
		Rows []report.RowState `json:"rows" doc:"Rows that were ever processed or have a task, by key"`
	}
)

// Workers returns the sidecars that run here or ended a short while ago, to callers that see all pipelines.
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

// Lanes counts the rows of pipelines that the caller sees by priority and state. It counts all rows, for one caller at
// a time.
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

// RowStates returns the states of rows of a pipeline.
func (s *Service) RowStates(ctx context.Context, pipeline string, keys []string) ([]report.RowState, error) {
	_, pool, names, err := s.meant(ctx, gate.RoleViewer, []string{pipeline})
	if err != nil {
		return nil, err
	}
	list, err := report.RowStates(ctx, pool, names[0], keys)
	return append([]report.RowState{}, list...), err
}

// rows adds the routes about sidecars, lanes and rows.
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
		Keys []string `query:"key,explode" required:"true" maxItems:"100" doc:"Keys as shown by tasks; repeatable"`
	}
	get(a, "/pipelines/{name}/rows", "rows",
		"Show the states of rows: pending, embedded, stale, failed, cancelled, or no_text",
		func(ctx context.Context, in *some) (rowList, error) {
			list, err := s.RowStates(ctx, in.Name, in.Keys)
			return rowList{list}, err
		})
}

// IndexList lists the indexes on the vectors of a pipeline.
type IndexList struct {
	Indexes []indexes.Index `json:"indexes"`
}

// Indexes returns the indexes of a pipeline.
func (s *Service) Indexes(ctx context.Context, name string) (IndexList, error) {
	p, err := s.Pipeline(ctx, name)
	return IndexList{append([]indexes.Index{}, p.Indexes...)}, err
}

// measuring is the time limit for the exact searches that an index is compared with.
const measuring = 20 * time.Second

// MeasureIndex measures the index of a pipeline. Only one runs at a time, since it reads every vector many times.
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

// indexes adds the routes about indexes.
func (a *api) indexes() {
	s := a.service
	get(a, "/pipelines/{name}/index", "index", "List the indexes on the vectors of a pipeline",
		func(ctx context.Context, in *named) (IndexList, error) { return s.Indexes(ctx, in.Name) })
	post(a, gate.RoleOperator, "/pipelines/{name}/index", "measure-index",
		"Measure the recall and the speed of a pipeline's index, for some seconds",
		func(ctx context.Context, in *named) (indexes.Recall, error) { return s.MeasureIndex(ctx, in.Name) })
}

// Checks checks everything that running depends on.
func (s *Service) Checks(ctx context.Context) ([]check.Finding, error) {
	_, pool, err := s.whole(ctx, gate.RoleViewer)
	if err != nil {
		return nil, err
	}
	return s.check(ctx, pool)
}

const checksAge = 10 * time.Second

// check runs all checks. Callers within checksAge get the same answer.
func (s *Service) check(ctx context.Context, pool *pgxpool.Pool) ([]check.Finding, error) {
	if err := s.checking.take(ctx); err != nil {
		return nil, err
	}
	defer s.checking.giveBack()
	if last, at := s.lastChecks(); time.Since(at) < checksAge {
		return last, nil
	}
	list := []check.Finding{}
	for _, f := range s.o.Check(ctx, pool) {
		f.Detail, f.Hint = s.o.Redact(f.Detail), lists.Map(f.Hint, s.o.Redact)
		list = append(list, f)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checked, s.checkedAt = list, time.Now()
	return list, nil
}

func (s *Service) lastChecks() (list []check.Finding, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.checked, s.checkedAt
}

// LastChecks returns the last result of Checks and its time, without running it; a zero time: it has not run yet.
// fresh: Checks would return the same.
func (s *Service) LastChecks(ctx context.Context) (list []check.Finding, at time.Time, fresh bool, err error) {
	_, _, err = s.whole(ctx, gate.RoleViewer)
	if err != nil {
		return nil, time.Time{}, false, err
	}
	list, at = s.lastChecks()
	return list, at, time.Since(at) < checksAge, nil
}
