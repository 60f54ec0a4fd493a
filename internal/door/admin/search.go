package admin

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/search"
	"github.com/embedsidecar/embedsidecar/internal/search/query"
)

// Found is what a search found.
type Found struct {
	Hits        []search.Hit
	Explanation search.Explanation
	Embedded    time.Duration // that the model took
	Took        time.Duration // that the database took
	Dims        int
}

// maxQuestion is how many bytes a text that is searched for may have.
const maxQuestion = 8 << 10

// Searches reports whether questions can be embedded here.
func (s *Service) Searches() bool { return s.o.Embed != nil }

// access is what may be seen of a pipeline through the connections of the program, by whatever door.
func (s *Service) access(name string) *search.Access {
	return &search.Access{PastRowSecurity: s.config().SearchOf(name).PastRowSecurity}
}

// Search finds the rows of a pipeline that are nearest to a text, with the SQL that finds them. It takes the role
// operator, since what is near to a question tells of texts; these are left out unless the caller asks and may. Who may
// not see them is told nothing that confirms a guess of one: which rows have its words, and how near they are.
func (s *Service) Search(ctx context.Context, name, text string, r search.Request, texts bool,
) (found Found, err error) {
	who, pool, names, err := s.meant(ctx, gate.RoleOperator, []string{name})
	switch {
	case err != nil:
		return found, err
	case strings.TrimSpace(text) == "" || strings.Contains(text, "\x00"):
		return found, gate.Wrong("body.text", "the text to search for is empty, or holds a zero byte")
	case len(text) > maxQuestion:
		return found, gate.Wrong("body.text", "the text to search for is too long: 8 kB at most")
	case r.Hybrid && !who.RowText:
		return found, noText("a hybrid search tells which rows have the words of a text")
	case s.o.Embed == nil:
		return found, gate.Refuse(http.StatusServiceUnavailable, "no_model", "there is no model here to embed a question with")
	}
	p, err := query.Searchable(ctx, pool, names[0])
	if err != nil {
		return found, err
	}
	began := time.Now()
	if r.Vector, err = s.o.Embed(ctx, p, text); err != nil {
		return found, err
	}
	r.Access = s.access(p.Name)
	r.Text, found.Embedded, found.Dims = text, time.Since(began), len(r.Vector)
	began = time.Now()
	if found.Hits, err = search.Within(ctx, search.Limit, func(ctx context.Context) ([]search.Hit, error) {
		return search.Find(ctx, pool, p, r)
	}); err != nil {
		return found, query.Classified(p, err)
	}
	found.Took = time.Since(began)
	hide(found.Hits, who, texts)
	found.Explanation, err = search.Explain(ctx, pool, p, r)
	return found, query.Classified(p, err)
}

// Similar finds the rows of a pipeline that are nearest to one of them, as Search does.
func (s *Service) Similar(ctx context.Context, name, key string, rows int, texts bool) ([]search.Hit, error) {
	who, pool, names, err := s.meant(ctx, gate.RoleOperator, []string{name})
	if err != nil {
		return nil, err
	}
	p, err := query.Searchable(ctx, pool, names[0])
	if err != nil {
		return nil, err
	}
	hits, err := search.Within(ctx, search.Limit, func(ctx context.Context) ([]search.Hit, error) {
		return query.Similar(ctx, pool, p, key, search.Request{Rows: rows, Access: s.access(p.Name)})
	})
	hide(hits, who, texts)
	return hits, err
}

// hide takes the texts out of what was found, unless they are wanted, and what tells of them from who may not see them.
func hide(hits []search.Hit, who gate.Caller, texts bool) {
	for i := range hits {
		if !who.RowText {
			hits[i].Distance, hits[i].Score = nil, nil
		}
		if texts && who.RowText {
			continue
		}
		hits[i].Text = ""
		if c := hits[i].Chunk; c != nil {
			c.Context = ""
		}
	}
}

// searchBody asks for the rows that are nearest to a text.
type searchBody struct {
	Pipeline string `json:"pipeline"`
	Text     string `json:"text" doc:"Up to 8 kB"`
	K        int    `json:"k,omitempty" minimum:"1" maximum:"1000" default:"10" doc:"Rows at most"`
	Hybrid   bool   `json:"hybrid,omitempty" doc:"By vector and by words, for whom may see texts of rows"`
	ShowText bool   `json:"show_text,omitempty" doc:"With texts of rows, which not everybody may see"`
}

// Answer is what a search found, for programs.
type Answer struct {
	Hits       []search.Hit `json:"hits"`
	Dims       int          `json:"dims"`
	EmbeddedMS int64        `json:"embedded_ms" doc:"That the model took"`
	TookMS     int64        `json:"took_ms" doc:"That the database took"`
	Statement  string       `json:"statement" doc:"That has found them"`
}

// searches find rows.
func (a *api) searches() {
	on(a, gate.RoleOperator, http.MethodPost, base+"/search", "search", "Find the rows of a pipeline that are nearest to a text",
		func(ctx context.Context, in *struct{ Body searchBody }) (*body[Answer], error) {
			b := &in.Body
			request := search.Request{Rows: cmp.Or(b.K, usualHits), Hybrid: b.Hybrid}
			found, err := a.service.Search(ctx, b.Pipeline, b.Text, request, b.ShowText)
			return answers(Answer{
				append([]search.Hit{}, found.Hits...), found.Dims, found.Embedded.Milliseconds(), found.Took.Milliseconds(),
				found.Explanation.Statement,
			}, err)
		})
}

const usualHits = 10
