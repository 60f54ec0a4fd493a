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

// NewServer makes a Node that answers queries and does nothing else, with a database or without one. Serve runs it.
func NewServer(o Options, database bool) *Node { return newNode(o, observe.Queries, database) }

// Serve answers queries on an address until ctx ends, then those under way.
func (n *Node) Serve(ctx context.Context, address string) (err error) {
	end, err := n.begin(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	// First, because it fails at once: anyone who asks before the model is open waits for it.
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
		defer func() { _ = finish() }() // what is under way needs the connections; its error is told above
		n.one.backend.Follow(nil, pool)
		n.one.follow(ctx, pool)
	}
	// A model that cannot be used is known before long, and the first who asks for it need not wait for its start.
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

// Talk answers an agent over a pair of streams until the input or ctx ends: about some pipelines, or all.
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
