package app

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/door/admin"
	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/door/serve"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/search/query"
	"github.com/embedsidecar/embedsidecar/internal/setup/connection"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
)

// queries starts answering queries on an address.
func (n *Node) queries(ctx context.Context, address string) (finish func() error, err error) {
	q := n.o.Config.Queries
	o := serve.Options{Search: q.SearchTimeout, Version: n.o.Build.Version, Options: gate.Options{
		Listen: address, Cert: q.Cert, Key: q.Key, Observe: n.observer.Request, Log: n.o.Log,
		Limits: gate.Limits{Stop: n.o.Config.Workers.DrainTimeout},
	}}
	if n.one != nil {
		o.Backend = n.one.backend
		if n.database {
			o.Database = n.o.Config.DatabaseName()
		}
	} else {
		o.Backend = query.New(query.Options{
			Config: n.o.Config, Plugins: n.plugins, Embedder: n.observer.Embedder, Service: n.shared.service(),
		})
		o.Of = n.several.queried(o)
	}
	switch {
	case q.TokensFile != "":
		if o.Tokens, err = gate.ReadTokens(q.TokensFile, n.o.Log); err != nil {
			return nil, problem.New(problem.Usage, err)
		}
	case !q.NoAuth:
		return nil, problem.New(problem.Usage, fmt.Errorf("%s would reject every query: neither --tokens-file nor --no-auth is set", address),
			"make a token for each user: embedsidecar token create NAME --tokens-file FILE, and pass the file here",
			"or admit every user of this machine: --no-auth, with a loopback address")
	}
	server, err := serve.Listen(ctx, o)
	if err != nil {
		return nil, problem.New(problem.Usage, err, problem.Hints(err)...)
	}
	return server.Start(ctx), nil
}

// administer starts the admin API, if an address is configured.
func (n *Node) administer(ctx context.Context) (service *admin.Service, finish func() error, err error) {
	c := n.o.Config
	var of choice
	only := ""
	if n.one != nil {
		service, only = n.one.service("", nil, n), c.DatabaseName()
	} else {
		o := n.serviceOptions()
		o.Databases = n.several.states
		service = admin.NewService(o)
		of = n.several.administers(service)
	}
	if c.Admin.Listen == "" {
		return service, func() error { return nil }, nil
	}
	if c.Queries.TokensFile == "" {
		return nil, nil, problem.New(problem.Usage, fmt.Errorf("%s would reject every request: there are no tokens", c.Admin.Listen),
			"make a token for each user: embedsidecar token create NAME --role admin --tokens-file FILE, and pass the file here")
	}
	tokens, err := gate.ReadTokens(c.Queries.TokensFile, n.o.Log)
	if err != nil {
		return nil, nil, problem.New(problem.Usage, err,
			fmt.Sprintf("embedsidecar token create NAME --role admin --tokens-file %s makes one", c.Queries.TokensFile))
	}
	pages, err := n.pages(service)
	if err != nil {
		return nil, nil, err
	}
	server, err := admin.Listen(ctx, service, gate.Options{
		Listen: c.Admin.Listen, Tokens: tokens, Cert: c.Admin.Cert, Key: c.Admin.Key, ClientCA: c.Admin.ClientCA,
		Of: of, Database: only, Pages: pages, Observe: n.observer.Request, Log: n.o.Log,
	})
	if err != nil {
		return nil, nil, problem.New(problem.Usage, err)
	}
	return service, server.Start(ctx), nil
}

// NewServer makes a Node that only answers queries, with a database or without one. Serve runs it.
func NewServer(o Options, database bool) *Node { return newNode(o, observe.Queries, database) }

// Serve answers queries on an address until ctx ends, and finishes those under way.
func (n *Node) Serve(ctx context.Context, address string) (err error) {
	end, err := n.begin(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	// Listen first, because that fails at once. Queries that come before the model is loaded wait for it.
	finish, err := n.queries(ctx, address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, finish()) }()
	if n.database {
		pool, err := connection.Retry(ctx, n.one.open, func(ctx context.Context) (*pgxpool.Pool, error) {
			return n.one.open.Pool(ctx, connection.Queries)
		})
		if err != nil {
			return err
		}
		defer pool.Close()
		defer func() { _ = finish() }() // queries under way need the connections; the deferred call above reports the error
		n.one.backend.Follow(nil, pool)
		n.one.follow(ctx, pool)
	}
	// Load the model now: a broken model fails early, and the first query does not wait for it.
	model, err := n.one.backend.Service(ctx, pipeline.ModelName{})
	if err != nil {
		return err
	}
	if _, err := model.Describe(ctx); err != nil {
		return err
	}
	n.o.Working(ctx)
	<-ctx.Done()
	return ctx.Err()
}

// Talk answers an agent over a pair of streams until the input or ctx ends. only lists the pipelines it may use; empty
// means all.
func (n *Node) Talk(ctx context.Context, only []string, in io.ReadCloser, out io.WriteCloser) (err error) {
	defer func() { err = errors.Join(err, n.plugins.Close()) }()
	pool, err := n.one.open.Pool(ctx, connection.Queries)
	if err != nil {
		return err
	}
	defer pool.Close()
	n.one.backend.Follow(nil, pool)
	return serve.Talk(ctx, serve.Options{
		Backend: n.one.backend, Only: only, Search: n.o.Config.Queries.SearchTimeout, Version: n.o.Build.Version,
		Options: gate.Options{Log: n.o.Log},
	}, in, out)
}
