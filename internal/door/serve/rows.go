package serve

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/jackc/pgerrcode"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/search"
	"github.com/embedsidecar/embedsidecar/internal/search/query"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
)

// RowsRequest is the body of /search and /similar.
type RowsRequest struct {
	gate.Wish

	Text     string `json:"text,omitempty" doc:"Text to search for"`
	Key      rowKey `json:"key,omitempty" doc:"Key of the row to compare with"`
	K        int    `json:"k,omitempty" default:"10" minimum:"1" maximum:"1000" doc:"Maximum number of rows"`
	Limit    int    `json:"limit,omitempty" minimum:"1" maximum:"1000" doc:"Alias of k"`
	Language string `json:"language,omitempty" doc:"Text search configuration of the words"`
}

// acrossRequest is the body of /v1/search.
type acrossRequest struct {
	Pipelines []string `json:"pipelines" minItems:"1" maxItems:"16" doc:"Pipelines to search"`
	RowsRequest
}

// request returns the request for the database.
func (r *RowsRequest) request(access *search.Access) search.Request {
	request := r.Request(r.Text, r.K)
	request.Language, request.Access = r.Language, access
	return request
}

// rowKey is the key of a row as text. A number keeps its digits as written.
type rowKey string

func (rowKey) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{{Type: huma.TypeString}, {Type: huma.TypeNumber}}}
}

// UnmarshalJSON reads a string or a number.
func (k *rowKey) UnmarshalJSON(b []byte) error {
	var number json.Number
	if b[0] != '"' && json.Unmarshal(b, &number) == nil && number != "" {
		*k = rowKey(number)
		return nil
	}
	var text string
	if json.Unmarshal(b, &text) != nil {
		return refuse("key", "type", "key: expected a string or a number, as searches return it: "+
			`"42"; a key of several columns is one string`)
	}
	*k = rowKey(text)
	return nil
}

// rowsResponse is the answer of /search and /similar.
type rowsResponse struct {
	Pipeline string       `json:"pipeline"`
	Metric   string       `json:"metric"` // of the distances: cosine, hamming or negative_inner_product
	Rows     []search.Hit `json:"rows"`
}

const (
	usualRows = 10
	mostRows  = 1000
	absent    = math.MinInt
)

func (a *api) readRows(ctx context.Context) (RowsRequest, error) {
	req := RowsRequest{K: absent, Limit: absent}
	if err := read(ctx, &req, true); err != nil {
		return req, err
	}
	return a.checkRows(req)
}

// checkRows rejects requests that are invalid for every pipeline, and sets the number of rows.
func (a *api) checkRows(req RowsRequest) (RowsRequest, error) {
	switch {
	case req.K == absent && req.Limit == absent:
		req.K = usualRows
	case req.K == absent:
		req.K = req.Limit
	case req.Limit != absent && req.Limit != req.K:
		return req, refuse("limit", "invalid_value", "limit is an alias of k: give only one")
	}
	switch {
	case req.K < 1 || req.K > mostRows:
		return req, refuse("k", "invalid_value", "k: expected a number from 1 to %d, not %d", mostRows, req.K)
	case len(req.Text) > a.TextBytes:
		return req, refuse("text", "too_long", "text has %d bytes, the maximum is %d", len(req.Text), a.TextBytes)
	}
	given := append([]string{req.Text, string(req.Key), req.Language}, req.Columns...)
	for name, filter := range req.Filter.Filters {
		given = append(append(given, name), filter.Texts()...)
	}
	for _, text := range given { // PostgreSQL texts can hold neither
		if strings.ContainsRune(text, 0) || !utf8.ValidString(text) {
			return req, refuse("", "invalid_value", "a text must be UTF-8 without NUL characters")
		}
	}
	return req, nil
}

// searched returns the pipeline of the URL, its model, and what the caller may see of it. Rights apply to the
// pipeline's full name, not to its spelling in the URL.
func (a *api) searched(ctx context.Context, name string, fresh bool) (*pipeline.Pipeline, query.Model,
	*search.Access, error,
) {
	p, access, err := a.seen(ctx, name, fresh)
	if err != nil {
		return nil, nil, nil, err
	}
	model, err := a.Backend.Ready(ctx, p)
	if err != nil {
		return nil, nil, nil, err
	}
	return p, model, access, nil
}

// seen returns the pipeline with a name, and what the caller may see of it; fresh queries the database for it.
func (a *api) seen(ctx context.Context, name string, fresh bool) (*pipeline.Pipeline, *search.Access, error) {
	who, _ := gate.CallerOf(ctx)
	list := a.Backend.Pipelines
	if fresh {
		list = a.Backend.PipelinesNow
	}
	all, err := list(ctx)
	if err != nil {
		return nil, nil, err
	}
	other := lookup.Find(all, name) // a pipeline with this name takes precedence over one of a table with this name
	all = lookup.Of(lookup.Of(all, who.Pipelines), a.Only)
	at := lookup.Meant(all, name)
	if at < 0 && !fresh { // a sidecar may not list a new pipeline yet
		return nil, nil, search.ErrSwitched
	}
	if at < 0 || other >= 0 && all[at].Name != name {
		return nil, nil, gate.Refuse(http.StatusNotFound, "pipeline_not_found",
			"there is no pipeline "+strconv.Quote(cut(name))+": GET /v1/pipelines, or the tool list_pipelines, lists them")
	}
	p := &all[at]
	return p, accessOf(&who.Grant, p, a.Backend.Rules(p.Name)), nil
}

// accessOf returns what the holder of a grant may see of a pipeline.
func accessOf(g *gate.Grant, p *pipeline.Pipeline, rules config.Search) *search.Access {
	a := &search.Access{
		Role: g.DatabaseRole, PastRowSecurity: rules.PastRowSecurity, Fixed: search.Filters{},
		Columns: slices.Concat(pipeline.KeyNames(p.Key), p.Columns, p.Watched, rules.Filterable),
	}
	for column, values := range g.Filter {
		a.Fixed[column] = search.Filter{{Values: values}}
	}
	return a
}

// search answers /v1/pipelines/NAME/search.
func (a *api) search(ctx context.Context, in *named) (none rowsResponse, err error) {
	req, err := a.readRows(ctx)
	if err != nil {
		return none, err
	}
	return a.nearText(ctx, in.Name, req)
}

// nearText finds the rows that are nearest to a text.
func (a *api) nearText(ctx context.Context, name string, req RowsRequest) (none rowsResponse, err error) {
	switch {
	case strings.TrimSpace(req.Text) == "":
		return none, refuse("text", "missing", "text is missing: what to search for")
	case req.Key != "":
		return none, refuse("key", "invalid_value", "key belongs to /similar")
	case req.Language != "" && !req.Hybrid && !req.Highlight:
		return none, refuse("language", "invalid_value", "language needs hybrid: true or highlight: true")
	}
	return query.Settled(ctx, func(fresh bool) (rowsResponse, error) { return a.near(ctx, name, &req, fresh) })
}

// acrossResponse is the answer of /v1/search.
type acrossResponse struct {
	Rows []search.Hit `json:"rows"`
}

// across answers /v1/search.
func (a *api) across(ctx context.Context, _ *struct{}) (none acrossResponse, err error) {
	req := acrossRequest{RowsRequest: RowsRequest{K: absent, Limit: absent}}
	if err := read(ctx, &req, true); err != nil {
		return none, err
	}
	if req.RowsRequest, err = a.checkRows(req.RowsRequest); err != nil {
		return none, err
	}
	return a.nearTextAcross(ctx, req.Pipelines, req.RowsRequest)
}

// nearTextAcross finds the rows of several pipelines that are nearest to a text. It fails if the caller may not search
// one of them.
func (a *api) nearTextAcross(ctx context.Context, names []string, req RowsRequest) (none acrossResponse, err error) {
	if len(names) > search.MaxPipelines {
		return none, refuse("pipelines", "invalid_value", "pipelines: the maximum is %d, not %d", search.MaxPipelines,
			len(names))
	}
	pipelines := make([]*pipeline.Pipeline, len(names))
	for i, name := range names { // checks all of them before it embeds anything
		if pipelines[i], err = query.Settled(ctx, func(fresh bool) (*pipeline.Pipeline, error) {
			p, _, err := a.seen(ctx, name, fresh)
			return p, err
		}); err != nil {
			return none, err
		}
	}
	hits, err := search.Across(new(req.request(nil)), pipelines,
		func(p *pipeline.Pipeline, each search.Request) ([]search.Hit, error) {
			one := req
			one.K, one.Offset = each.Rows, each.Offset
			found, err := a.nearText(ctx, p.Name, one)
			return found.Rows, err
		})
	return acrossResponse{hits}, err
}

// near finds the rows nearest to the text.
func (a *api) near(ctx context.Context, name string, req *RowsRequest, fresh bool) (none rowsResponse, err error) {
	p, model, access, err := a.searched(ctx, name, fresh)
	if err != nil {
		return none, err
	}
	searcher := search.Searcher{
		DB: a.Backend.DB(), Limit: a.Search, Score: a.Backend.Score,
		Embed: func(ctx context.Context, _ *pipeline.Pipeline, text string) ([]float32, error) {
			return vectorOf(ctx, model, text)
		},
	}
	found, err := searcher.Near(ctx, p, req.request(access))
	return a.found(ctx, p, access, found.Hits, err)
}

func vectorOf(ctx context.Context, model query.Model, text string) ([]float32, error) {
	results, err := model.Ask(ctx, embed.Query, []string{text})
	if err != nil {
		return nil, err
	}
	if results[0].Empty {
		return nil, refuse("text", "empty", "text holds nothing to embed")
	}
	return results[0].Vector, usable(0, results[0])
}

// similar answers /v1/pipelines/NAME/similar.
func (a *api) similar(ctx context.Context, in *named) (none rowsResponse, err error) {
	req, err := a.readRows(ctx)
	if err != nil {
		return none, err
	}
	return a.nearRow(ctx, in.Name, req)
}

// nearRow finds the rows that are nearest to a row.
func (a *api) nearRow(ctx context.Context, name string, req RowsRequest) (none rowsResponse, err error) {
	switch {
	case req.Key == "":
		return none, refuse("key", "missing", "key is missing: the key of a row, as searches return it")
	case req.Text != "" || req.Hybrid || req.Language != "" || req.Rerank != 0 || req.Highlight:
		return none, refuse("text", "invalid_value", "text, hybrid, language, rerank and highlight belong to /search")
	}
	return query.Settled(ctx, func(fresh bool) (rowsResponse, error) {
		p, _, access, err := a.searched(ctx, name, fresh)
		if err != nil {
			return none, err
		}
		hits, err := search.Within(ctx, a.Search, func(ctx context.Context) ([]search.Hit, error) {
			return search.Similar(ctx, a.Backend.DB(), p, string(req.Key), req.request(access))
		})
		return a.found(ctx, p, access, hits, err)
	})
}

// found returns the answer of a search. If the role of a token lacks rights, only the log has the details.
func (a *api) found(ctx context.Context, p *pipeline.Pipeline, access *search.Access, hits []search.Hit, err error,
) (rowsResponse, error) {
	if database.HasCode(err, pgerrcode.InsufficientPrivilege) && access.Role != "" {
		a.Log.WarnContext(ctx, "a search with the database role of a token was refused", "role", access.Role,
			"pipeline", p.Name, "error", err, "hints", problem.Hints(err))
		err = gate.Refuse(http.StatusForbidden, "database_role",
			"the database role of this token lacks rights on this pipeline's tables: the log of the sidecar says which "+
				"it lacks")
	}
	return rowsResponse{p.Name, p.Stored.Metric(), hits}, err
}

// pipelineEntry is a pipeline as shown to clients.
type pipelineEntry struct {
	Name   string          `json:"name"`
	Table  string          `json:"table"`
	Key    []string        `json:"key"`
	Dims   int             `json:"dims"`
	Stored string          `json:"stored"`
	Metric string          `json:"metric"`
	Status pipeline.Status `json:"status"`
	Model  string          `json:"model"`
}

type pipelineList struct {
	Pipelines []pipelineEntry `json:"pipelines"`
}

// pipelines answers GET /v1/pipelines.
func (a *api) pipelines(ctx context.Context, _ *struct{}) (pipelineList, error) {
	who, _ := gate.CallerOf(ctx)
	all, err := a.Backend.Pipelines(ctx)
	list := pipelineList{[]pipelineEntry{}}
	for _, p := range lookup.Of(lookup.Of(all, who.Pipelines), a.Only) {
		list.Pipelines = append(list.Pipelines, pipelineEntry{
			p.Name, p.Schema + "." + p.Table, pipeline.KeyNames(p.Key), p.Dims, p.Stored.Name(), p.Stored.Metric(), p.Status,
			p.Model,
		})
	}
	return list, err
}
