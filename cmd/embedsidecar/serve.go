package main

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/node/connection"
	"github.com/embedsidecar/embedsidecar/internal/node/embedders"
)

// serveListen is where serve listens unless told otherwise.
const serveListen = "127.0.0.1:7470"

func newServe() *command {
	return &command{
		name: "serve", group: groupStart, usage: "answer queries over HTTP, and do nothing else",
		description: "Embeds texts in the form of OpenAI's API (POST /v1/embeddings). Needs no database; with one (--database-url, or PGHOST, PGPORT, PGDATABASE, PGUSER or PGSERVICE) it also searches the pipelines that are set up there. Listens on " + serveListen + " unless --http says otherwise. SIGTERM and SIGINT end it after the requests under way.",
		settings:    []string{config.GroupQueries, config.GroupEmbedding, config.GroupDatabase, config.GroupOps},
		unused: []string{
			"stream-url", "stream-url-file", "slot", "on-lost", "slot-failover", "publication", "column-lists",
		},
		daemon: true,
		run:    runServe,
	}
}

func runServe(ctx context.Context, env *environment) error {
	err := serveQueries(ctx, env)
	if exitCode(ctx, err) == exitInterrupted {
		return nil // that is how it is told to stop
	}
	return err
}

func serveQueries(ctx context.Context, env *environment) (err error) {
	plugins := embedders.New(env.embedders())
	defer func() { err = errors.Join(err, plugins.Close()) }()
	w := newWatch(env, plugins)
	w.only = true
	stop, err := w.listen(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if w.figures != nil {
		w.figures.metrics.BeforeGather(w.figures.plugged)
	}
	defer w.supervise(ctx)()
	defer w.steer(ctx)()
	a := newAnswers(env, plugins, w.embedder)
	a.database = env.namesDatabase()
	address := env.config.Queries.Listen
	if address == "" {
		address = serveListen
	}
	// First, because it fails at once: whoever asks before the model is open waits for it.
	finish, err := a.listen(ctx, address, w.request)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, finish()) }()
	if a.database {
		pool, err := connection.Retry(ctx, env.connections(), func(ctx context.Context) (*pgxpool.Pool, error) {
			return env.connections().Pool(ctx, connection.Queries)
		})
		if err != nil {
			return err
		}
		defer pool.Close()
		defer func() { _ = finish() }() // what is under way needs the connections; its error is told below
		a.follow(nil, pool)
	}
	// A model that cannot be used is known before long, and the first who asks for it need not wait for its start.
	model, err := a.service(ctx, embedders.ModelOf{})
	if err != nil {
		return err
	}
	if _, err := model.Describe(ctx); err != nil {
		return err
	}
	w.working(ctx)
	<-ctx.Done()
	return ctx.Err()
}
