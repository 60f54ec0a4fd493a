package admin

import (
	"cmp"
	"context"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/search"
	"github.com/embedsidecar/embedsidecar/internal/search/query"
)

// Found is the result of a search, with its SQL if one pipeline was searched.
type Found struct {
	search.Found

	Explanation search.Explanation
}

// maxQuestion limits the bytes of a text to search for.
const maxQuestion = 8 << 10

// Searches reports whether texts can be embedded here.
func (s *Service) Searches() bool { return s.o.Embed != nil }

// Reranks reports whether the configuration names a reranker.
func (s *Service) Reranks() bool {
	c := s.config()
	return s.o.Score != nil && c != nil && len(c.Rerankers(nil)) > 0
}

// access limits what the program's connections may show of a pipeline, through every interface.
func (s *Service) access(name string) *search.Access {
	return &search.Access{PastRowSecurity: s.config().SearchOf(name).PastRowSecurity}
}

// Search finds the rows of a pipeline that are nearest to a text, with the SQL that finds them; or those of several
// pipelines, joined by rank. It requires the role operator, because the neighbors of a text reveal something about
// texts. It leaves out the texts unless the caller wants and may see them. It also hides from other callers what would
// confirm a guess of a text: which rows have its words, and how near they are.
func (s *Service) Search(ctx context.Context, names []string, text string, r search.Request, texts bool,
) (found Found, err error) {
	who, pool, names, err := s.meant(ctx, gate.RoleOperator, names)
	switch {
	case err != nil:
		return found, err
	case strings.TrimSpace(text) == "" || strings.Contains(text, "\x00"):
		return found, gate.Wrong("body.text", "the text to search for is empty or has a NUL character")
	case len(text) > maxQuestion:
		return found, gate.Wrong("body.text", "the text to search for is too long: 8 kB at most")
	case r.Hybrid && !who.RowText:
		return found, noText("a hybrid search reveals which rows have the words of a text")
	case r.Rerank != 0 && !who.RowText:
		return found, noText("a reranker reveals how well the texts of rows match another")
	case !who.RowText && (len(r.Filter) > 0 || len(r.Columns) > 0 || r.MaxDistance != nil):
		return found, noText("filter, columns and max_distance reveal the contents of rows")
	case s.o.Embed == nil:
		return found, noModel()
	}
	found, err = query.Settled(ctx, func(bool) (Found, error) { return s.search(ctx, pool, names, text, r) })
	if err != nil {
		return found, err
	}
	hide(found.Hits, who, texts)
	return found, nil
}

// search embeds the text and finds the nearest rows of one pipeline, or of several.
func (s *Service) search(ctx context.Context, pool *pgxpool.Pool, names []string, text string, r search.Request,
) (found Found, err error) {
	pipelines := make([]*pipeline.Pipeline, len(names))
	for i, name := range names {
		if pipelines[i], err = query.Searchable(ctx, pool, name); err != nil {
			return found, err
		}
	}
	r.Text = text
	searcher := search.Searcher{
		DB: pool, Embed: s.o.Embed, Score: s.o.Score,
		Access: func(p *pipeline.Pipeline) *search.Access { return s.access(p.Name) },
	}
	if found.Found, err = searcher.Search(ctx, pipelines, r); err != nil || len(pipelines) > 1 {
		return found, query.Classified(err)
	}
	p := pipelines[0]
	r.Vector, r.Access = found.Vector, s.access(p.Name)
	found.Explanation, err = search.Explain(ctx, pool, p, r)
	return found, query.Classified(search.About(p, err))
}

// Similar finds the rows of a pipeline that are nearest to one of its rows, under the same rules as Search.
func (s *Service) Similar(ctx context.Context, name, key string, rows int, texts bool) ([]search.Hit, error) {
	who, pool, names, err := s.meant(ctx, gate.RoleOperator, []string{name})
	if err != nil {
		return nil, err
	}
	hits, err := query.Settled(ctx, func(bool) ([]search.Hit, error) {
		p, err := query.Searchable(ctx, pool, names[0])
		if err != nil {
			return nil, err
		}
		return search.Within(ctx, search.Limit, func(ctx context.Context) ([]search.Hit, error) {
			return query.Similar(ctx, pool, p, key, search.Request{Rows: rows, Access: s.access(p.Name)})
		})
	})
	hide(hits, who, texts)
	return hits, err
}

// hide removes the texts unless the caller wants and may see them, and the scores unless the caller may see texts.
func hide(hits []search.Hit, who gate.Caller, texts bool) {
	for i := range hits {
		if !who.RowText {
			hits[i].Distance, hits[i].Score, hits[i].Rerank = nil, nil, nil
		}
		if texts && who.RowText {
			continue
		}
		hits[i].Text, hits[i].Highlight = "", ""
		if c := hits[i].Chunk; c != nil {
			c.Context = ""
		}
	}
}

// searchBody is the request for the rows nearest to a text.
type searchBody struct {
	gate.Wish

	Pipeline string `json:"pipeline"`
	Text     string `json:"text" doc:"Up to 8 kB"`
	K        int    `json:"k,omitempty" minimum:"1" maximum:"1000" doc:"Maximum number of rows; 10 by default"`
	Limit    int    `json:"limit,omitempty" minimum:"1" maximum:"1000" doc:"Alias of k"`
	ShowText bool   `json:"show_text,omitempty" doc:"Include texts of rows, which need the right to see them"`
}

// request returns the request for the database. It has no text yet: that is embedded first.
func (b *searchBody) request() (r search.Request, err error) {
	if b.K != 0 && b.Limit != 0 && b.K != b.Limit {
		return r, gate.Wrong("body.limit", "limit is an alias of k: give only one")
	}
	b.Highlight = b.Highlight && b.ShowText
	return b.Request("", cmp.Or(b.K, b.Limit, usualHits)), nil
}

// Answer is the result of a search in the API.
type Answer struct {
	Hits       []search.Hit `json:"hits"`
	Dims       int          `json:"dims"`
	EmbeddedMS int64        `json:"embedded_ms" doc:"Time spent on embedding"`
	TookMS     int64        `json:"took_ms" doc:"Time spent in the database"`
	Statement  string       `json:"statement" doc:"The executed statement"`
}

func (a *api) searches() {
	post(a, gate.RoleOperator, "/search", "search", "Find the rows of a pipeline that are nearest to a text",
		func(ctx context.Context, in *struct{ Body searchBody }) (Answer, error) {
			b := &in.Body
			request, err := b.request()
			if err != nil {
				return Answer{}, err
			}
			found, err := a.service.Search(ctx, []string{b.Pipeline}, b.Text, request, b.ShowText)
			return Answer{
				append([]search.Hit{}, found.Hits...), len(found.Vector), found.Embedded.Milliseconds(), found.Took.Milliseconds(),
				found.Explanation.Statement,
			}, err
		})
}

const usualHits = 10
