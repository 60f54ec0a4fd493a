package app

import (
	"context"
	"errors"
	"io"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/door/serve"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/connection"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
)

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
