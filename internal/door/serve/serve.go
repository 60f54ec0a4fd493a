// Package serve answers queries over HTTP: embeddings by the models that embed the rows, in the format of OpenAI's API,
// and searches of pipelines. It changes nothing. Clients authenticate with a token; without tokens it listens only on
// loopback addresses.
package serve

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/httpserver"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/search"
	"github.com/embedsidecar/embedsidecar/internal/search/query"
)

// Backend is what the server needs; see query.Backend for its methods.
type Backend interface {
	Models(ctx context.Context, only []string) ([]string, error)
	Model(ctx context.Context, only []string, name string) (query.Model, error)
	Known(ctx context.Context, only []string, name string) (*embed.Description, error)
	Pipelines(ctx context.Context) ([]pipeline.Pipeline, error)
	// PipelinesNow is Pipelines as the database has them now.
	PipelinesNow(ctx context.Context) ([]pipeline.Pipeline, error)
	Ready(ctx context.Context, p *pipeline.Pipeline) (query.Model, error)
	Rules(name string) config.Search
	Score(ctx context.Context, p *pipeline.Pipeline, query string, texts []string) ([]float32, error)
	ScoreBy(ctx context.Context, only []string, model, query string, texts []string) ([]float32, error)
	DB() search.DB
	Explain(ctx context.Context, p *pipeline.Pipeline, key string) (query.Explained, error)
}

// Options configure the listener and its limits. Zero limits have the defaults.
type Options struct {
	gate.Options

	Backend   Backend
	Inputs    int           // texts per request; default 2,048, OpenAI's limit
	TextBytes int           // bytes per text; default 1 MiB
	Search    time.Duration // time limit of the database's part of a search. Default 10 s
	Only      []string      // pipelines that are served; empty: all
	Version   string        // of this program, for agents
}

// Listen opens the port. The caller must run the server or close it.
func Listen(ctx context.Context, o Options) (*httpserver.Server, error) {
	return gate.Listen(ctx, o.gate()) //nolint:contextcheck // requests have their own
}

// fill sets what is zero.
func (o *Options) fill() {
	o.Inputs, o.TextBytes, o.Search = cmp.Or(o.Inputs, 2048), cmp.Or(o.TextBytes, 1<<20), cmp.Or(o.Search, search.Limit)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
}

func (o Options) gate() gate.Options {
	o.fill()
	o.What, o.Setting, o.Begun = "queries", "http.queries.listen", "queries are answered"
	o.Open = map[string]http.Handler{"/healthz": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok\n")
	})}
	o.API = newAPI(&o).API
	return o.Options
}

// NewAPI returns the API of a Backend, for one of several databases.
func NewAPI(o Options) *gate.API {
	o.fill()
	return newAPI(&o).API
}

// api answers requests.
type api struct {
	*Options
	*gate.API
}

func newAPI(o *Options) *api {
	a := &api{o, gate.NewAPI("queries", "Embed texts, in the form of OpenAI's API, and search pipelines.", "", "", gate.OpenAI,
		&gate.Judge{Log: o.Log})}
	gate.On(a.API, gate.RoleEmbed, http.MethodPost, "/v1/embeddings", "embeddings",
		"Embed texts with the model that rows are embedded with", a.embeddings, answers[embeddingsAnswer](a))
	gate.Get(a.API, gate.RoleEmbed, http.MethodPost, rerankPath, "rerank",
		"Score texts by how well they answer a query, best first", a.rerank)
	gate.Get(a.API, gate.RoleEmbed, http.MethodGet, "/v1/models", "models", "List the models",
		a.models)
	gate.Get(a.API, gate.RoleEmbed, http.MethodGet, "/v1/models/{name...}", "model", "Show a model", a.model)
	gate.Get(a.API, gate.RoleQuery, http.MethodGet, "/v1/pipelines", "pipelines",
		"List the pipelines that may be searched", a.pipelines)
	gate.Get(a.API, gate.RoleQuery, http.MethodPost, "/v1/pipelines/{name}/search", "search",
		"Find the rows that are nearest to a text", a.search)
	gate.Get(a.API, gate.RoleQuery, http.MethodPost, acrossPath, "across",
		"Find the rows of several pipelines that are nearest to a text, by rank", a.across)
	gate.Get(a.API, gate.RoleQuery, http.MethodPost, "/v1/pipelines/{name}/similar", "similar",
		"Find the rows that are nearest to a row", a.similar)
	takes[embeddingsRequest](a, "/v1/embeddings")
	takes[rerankRequest](a, rerankPath)
	takes[RowsRequest](a, "/v1/pipelines/{name}/search")
	takes[acrossRequest](a, acrossPath)
	takes[RowsRequest](a, "/v1/pipelines/{name}/similar")
	gate.Raw(a.API, gate.RoleQuery, agentPath, a.agents())
	a.Close()
	return a
}

// AsksPipelines reports whether a path is about the pipelines of a database, and not about models alone.
func AsksPipelines(path string) bool {
	return strings.HasPrefix(path, "/v1/pipelines") || path == acrossPath || path == agentPath
}

// acrossPath is the path of searches in several pipelines.
const acrossPath = "/v1/search"

// named is the input of a route about one pipeline or model.
type named struct {
	Name string `path:"name"`
}
