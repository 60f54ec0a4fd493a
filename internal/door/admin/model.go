package admin

import (
	"cmp"
	"context"
	"net/http"

	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/manage/generations"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/search/compare"
)

// Model returns the generations of a pipeline: the serving one, and the next or the previous one beside it.
func (s *Service) Model(ctx context.Context, name string) ([]generations.Generation, error) {
	_, pool, names, err := s.meant(ctx, gate.RoleViewer, []string{name})
	if err != nil {
		return nil, err
	}
	list, err := generations.States(ctx, pool, names[0])
	for i := range list {
		list[i].Reason = s.o.Redact(list[i].Reason)
	}
	return append([]generations.Generation{}, list...), err
}

// ActOnModel performs an action on the generations of a pipeline, and returns its result word.
func (s *Service) ActOnModel(ctx context.Context, r generations.Request) (string, error) {
	defer s.look.forget()
	who, pool, names, err := s.mayAct(ctx, []string{r.Pipeline}, false, r.DryRun)
	if err != nil {
		return "", err
	}
	r.Pipeline, r.By = names[0], who.SaidBy()
	result, err := generations.Do(ctx, pool, r)
	s.o.Log.InfoContext(ctx, "administrator acted", "by", r.By, "action", "model "+r.Do.Name, "dry_run", r.DryRun,
		"pipelines", 1, "refused", err != nil)
	return result, err
}

// PlanModel returns what a change of a pipeline's model would cost and make.
func (s *Service) PlanModel(ctx context.Context, name string, to pipeline.ModelName) (generations.Plan, error) {
	_, pool, names, err := s.meant(ctx, gate.RoleOperator, []string{name})
	switch {
	case err != nil:
		return generations.Plan{}, err
	case s.o.PlanModel == nil:
		return generations.Plan{}, noModel()
	}
	return s.o.PlanModel(ctx, pool, names[0], to)
}

// CompareModel asks the generations of a pipeline the same questions. A caller that may not see texts of rows must
// provide the questions, and gets only keys.
func (s *Service) CompareModel(ctx context.Context, name string, questions []compare.Question) (compare.Result, error) {
	who, pool, names, err := s.meant(ctx, gate.RoleOperator, []string{name})
	switch {
	case err != nil:
		return compare.Result{}, err
	case s.o.CompareModel == nil:
		return compare.Result{}, noModel()
	case len(questions) == 0 && !who.RowText:
		return compare.Result{}, noText("without queries the questions are texts of rows")
	}
	if len(questions) == 0 {
		if err := s.barred(ctx, pool, names[0]); err != nil {
			return compare.Result{}, err
		}
	}
	r, err := s.o.CompareModel(ctx, pool, names[0], questions, s.access(names[0]))
	for i := range r.Pairs {
		for side := range r.Pairs[i].Rows {
			for n := range r.Pairs[i].Rows[side] {
				if row := &r.Pairs[i].Rows[side][n]; !who.RowText {
					row.Text, row.Distance = "", nil
				}
			}
		}
	}
	return r, err
}

func noModel() error {
	return gate.Refuse(http.StatusServiceUnavailable, "no_model", "there is no model here to embed a question with")
}

type modelStates struct {
	Generations []generations.Generation `json:"generations"`
}

// ModelActed is the result of an action.
type ModelActed struct {
	Pipeline string `json:"pipeline"`
	Result   string `json:"result" doc:"Stable word for programs"`
	DryRun   bool   `json:"dry_run" doc:"Whether this was a dry run, which changes nothing"`
}

// modelBody is the body of switch and rollback.
type modelBody struct {
	Trial

	Force bool `json:"force,omitempty" doc:"Even if rows are stale or failed, or an index is missing"`
}

type changeBody struct {
	Trial

	ModelNamed
}

// ModelNamed is a model by its configured name.
type ModelNamed struct {
	To     string `json:"to,omitempty" maxLength:"500" pattern:"^[A-Za-z0-9][A-Za-z0-9 ._:/@+=-]*$" doc:"The model; absent: the configured one"`
	Plugin string `json:"plugin,omitempty" maxLength:"200" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" doc:"The plugin that runs it; absent: the default"`
}

type compareBody struct {
	Queries []compare.Question `json:"queries,omitempty" maxItems:"100" doc:"Query texts, with keys of rows that should be found; absent: texts of rows"`
}

// model adds the routes about changes of a pipeline's model.
func (a *api) model() {
	s := a.service
	get(a, "/pipelines/{name}/model", "model", "Show the serving model, and the progress of a change",
		func(ctx context.Context, in *named) (modelStates, error) {
			list, err := s.Model(ctx, in.Name)
			return modelStates{list}, err
		})
	post(a, gate.RoleOperator, "/pipelines/{name}/model/plan", "model-plan",
		"Show what a change of a pipeline's model would cost and make",
		func(ctx context.Context, in *of[ModelNamed]) (generations.Plan, error) {
			to := cmp.Or(in.Body, &ModelNamed{})
			return s.PlanModel(ctx, in.Name, pipeline.ModelName{Plugin: to.Plugin, Model: to.To})
		})
	post(a, gate.RoleOperator, "/pipelines/{name}/model/compare", "model-compare",
		"Ask both generations of a pipeline the same questions",
		func(ctx context.Context, in *of[compareBody]) (compare.Result, error) {
			return s.CompareModel(ctx, in.Name, cmp.Or(in.Body, &compareBody{}).Queries)
		})
	act := func(ctx context.Context, r generations.Request) (ModelActed, error) {
		result, err := s.ActOnModel(ctx, r)
		return ModelActed{r.Pipeline, result, r.DryRun}, err
	}
	change := generations.Change
	post(a, gate.RoleOperator, "/pipelines/{name}/model/"+change.Name, "model-"+change.Name, change.Usage,
		func(ctx context.Context, in *struct {
			Name string `path:"name"`
			Body changeBody
		},
		) (ModelActed, error) {
			return act(ctx, generations.Request{
				Do: change, Pipeline: in.Name, Model: in.Body.To, Plugin: in.Body.Plugin, DryRun: in.Body.DryRun,
			})
		})
	for _, do := range generations.Acts {
		path, id := "/pipelines/{name}/model/"+do.Name, "model-"+do.Name
		if !do.Force {
			post(a, gate.RoleOperator, path, id, do.Usage, func(ctx context.Context, in *of[Trial]) (ModelActed, error) {
				dry := cmp.Or(in.Body, &Trial{}).DryRun
				return act(ctx, generations.Request{Do: do, Pipeline: in.Name, DryRun: dry})
			})
			continue
		}
		post(a, gate.RoleOperator, path, id, do.Usage, func(ctx context.Context, in *of[modelBody]) (ModelActed, error) {
			b := cmp.Or(in.Body, &modelBody{})
			return act(ctx, generations.Request{Do: do, Pipeline: in.Name, Force: b.Force, DryRun: b.DryRun})
		})
	}
}
