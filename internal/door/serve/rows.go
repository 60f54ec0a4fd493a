package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/search"
	"github.com/embedsidecar/embedsidecar/internal/search/query"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
)

// rowsRequest is what /search and /similar take.
type rowsRequest struct {
	Text     string  `json:"text"`
	Key      rowKey  `json:"key"`
	K        int     `json:"k"`
	Hybrid   bool    `json:"hybrid"`
	Language string  `json:"language"`
	Filter   filters `json:"filter"`
}

// rowKey is the key of a row as text. A number is taken as it is written, so that none loses digits.
type rowKey string

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

// filters are the conditions of a request, of which no more is kept than a search takes.
type filters map[string]search.Filter

// UnmarshalJSON reads an object of conditions.
func (f *filters) UnmarshalJSON(b []byte) error {
	*f = filters{}
	decoder := json.NewDecoder(bytes.NewReader(b))
	begin, err := decoder.Token()
	if err != nil || begin == nil {
		return err
	}
	if begin != json.Delim('{') {
		return errors.New("filter: expected an object of columns and values")
	}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return err
		}
		if len(*f) == search.MaxConditions {
			return fmt.Errorf("a filter may name %d columns", search.MaxConditions)
		}
		var condition search.Filter
		if err := decoder.Decode(&condition); err != nil {
			return err
		}
		(*f)[fmt.Sprint(name)] = condition
	}
	return nil
}

// rowsResponse is their answer.
type rowsResponse struct {
	Pipeline string       `json:"pipeline"`
	Metric   string       `json:"metric"` // of the distances: cosine or hamming
	Rows     []search.Hit `json:"rows"`
}

const (
	usualRows = 10
	mostRows  = 1000
)

// readRows reads the request.
func (a *api) readRows(r *http.Request) (rowsRequest, error) {
	req := rowsRequest{K: usualRows}
	if err := a.readJSON(r, &req, true); err != nil {
		return req, err
	}
	switch {
	case req.K < 1 || req.K > mostRows:
		return req, refuse("k", "invalid_value", "k: expected a number from 1 to %d, not %d", mostRows, req.K)
	case len(req.Text) > a.Limits.TextBytes:
		return req, refuse("text", "too_long", "text has %d bytes, %d are possible", len(req.Text), a.Limits.TextBytes)
	}
	given := []string{req.Text, string(req.Key), req.Language}
	for _, filter := range req.Filter {
		given = append(given, filter.Values...)
	}
	for _, text := range given { // Postgres has neither
		if strings.ContainsRune(text, 0) || !utf8.ValidString(text) {
			return req, refuse("", "invalid_value", "a text cannot hold a NUL character, nor anything but UTF-8")
		}
	}
	return req, nil
}

// searched returns the pipeline of the URL, its model, and what whoever asks may see of it. What is judged is the
// pipeline that the name means, by its whole name.
func (a *api) searched(r *http.Request) (*pipeline.Pipeline, query.Model, *search.Access, error) {
	name, grant := r.PathValue("name"), askerOf(r).grant
	if !grant.searches() {
		return nil, nil, nil, grant.mayNotSearch()
	}
	all, err := a.Backend.Pipelines(r.Context())
	if err != nil {
		return nil, nil, nil, err
	}
	all = lookup.Of(all, grant.Pipelines)
	at := lookup.Meant(all, name)
	if at < 0 {
		return nil, nil, nil, noPipeline(name)
	}
	p := &all[at]
	model, err := a.Backend.Ready(r.Context(), p)
	if err != nil {
		return nil, nil, nil, err
	}
	return p, model, grant.access(p, a.Backend.Rules(p.Name)), nil
}

// search answers /v1/pipelines/NAME/search.
func (a *api) search(w http.ResponseWriter, r *http.Request) error {
	req, err := a.readRows(r)
	if err != nil {
		return err
	}
	switch {
	case strings.TrimSpace(req.Text) == "":
		return refuse("text", "missing", "text is missing: what to search for")
	case req.Key != "":
		return refuse("key", "invalid_value", "key belongs to /similar")
	case req.Language != "" && !req.Hybrid:
		return refuse("language", "invalid_value", "language goes with hybrid: true")
	}
	p, model, access, err := a.searched(r)
	if err != nil {
		return err
	}
	results, err := model.Ask(r.Context(), embed.Query, []string{req.Text})
	if err != nil {
		return err
	}
	if results[0].Empty {
		return refuse("text", "empty", "text holds nothing to embed")
	}
	if err := usable(0, results[0]); err != nil {
		return err
	}
	hits, err := a.found(r.Context(), access, func(ctx context.Context) ([]search.Hit, error) {
		return search.Find(ctx, a.Backend.DB(), p, search.Request{
			Vector: results[0].Vector, Text: req.Text, Hybrid: req.Hybrid, Language: req.Language, Rows: req.K,
			Filter: req.Filter, Access: access,
		})
	})
	if err != nil {
		return err
	}
	return writeJSON(w, rowsResponse{p.Name, p.Stored.Metric(), hits})
}

// similar answers /v1/pipelines/NAME/similar.
func (a *api) similar(w http.ResponseWriter, r *http.Request) error {
	req, err := a.readRows(r)
	if err != nil {
		return err
	}
	switch {
	case req.Key == "":
		return refuse("key", "missing", "key is missing: the key of a row, as searches return it")
	case req.Text != "" || req.Hybrid || req.Language != "":
		return refuse("text", "invalid_value", "text, hybrid and language belong to /search")
	}
	p, _, access, err := a.searched(r)
	if err != nil {
		return err
	}
	hits, err := a.found(r.Context(), access, func(ctx context.Context) ([]search.Hit, error) {
		return search.Similar(ctx, a.Backend.DB(), p, string(req.Key), search.Request{
			Rows: req.K, Filter: req.Filter,
			Access: access,
		})
	})
	if err != nil {
		return err
	}
	return writeJSON(w, rowsResponse{p.Name, p.Stored.Metric(), hits})
}

// found has the database look for rows, and gives up when it takes too long: whoever waits for an answer is told so,
// and a database that hangs must not hold the places of others.
func (a *api) found(ctx context.Context, access *search.Access, look func(ctx context.Context) ([]search.Hit,
	error),
) ([]search.Hit, error) {
	limited, cancel := context.WithTimeout(ctx, a.Limits.Search)
	defer cancel()
	hits, err := look(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return nil, &search.UnavailableError{Problem: fmt.Sprintf(
			"the database did not answer the search within %s: come again; if searches take that long there, an index makes them faster", a.Limits.Search)}
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == pgerrcode.InsufficientPrivilege &&
		access.Role != "" {
		return nil, &problem{
			status: http.StatusForbidden, kind: permissionError, code: "database_role",
			message: "the database role of this token may not read what this pipeline is made of",
		}
	}
	return hits, err
}

// pipelines answers GET /v1/pipelines.
func (a *api) pipelines(w http.ResponseWriter, r *http.Request) error {
	grant := askerOf(r).grant
	if !grant.searches() {
		return grant.mayNotSearch()
	}
	all, err := a.Backend.Pipelines(r.Context())
	if err != nil {
		return err
	}
	all = lookup.Of(all, grant.Pipelines)
	type entry struct {
		Name   string          `json:"name"`
		Table  string          `json:"table"`
		Key    []string        `json:"key"`
		Dims   int             `json:"dims"`
		Stored string          `json:"stored"`
		Metric string          `json:"metric"`
		Status pipeline.Status `json:"status"`
		Model  string          `json:"model"`
	}
	list := make([]entry, len(all))
	for i := range all {
		p := &all[i]
		list[i] = entry{
			p.Name, p.Schema + "." + p.Table,
			[]string{},
			p.Dims, p.Stored.Name(), p.Stored.Metric(), p.Status,
			p.Model,
		}
		for _, k := range p.Key {
			list[i].Key = append(list[i].Key, k.Name)
		}
	}
	return writeJSON(w, struct {
		Pipelines []entry `json:"pipelines"`
	}{list})
}
