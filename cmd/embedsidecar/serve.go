package main

import (
	"cmp"
	"context"

	"github.com/embedsidecar/embedsidecar/internal/app"
	"github.com/embedsidecar/embedsidecar/internal/config"
)

// serveListen is where serve listens unless told otherwise.
const serveListen = "127.0.0.1:7470"

func newServe() *command {
	return &command{
		name: "serve", group: groupStart, usage: "answer queries over HTTP, and do nothing else",
		description: "Embeds texts in the form of OpenAI's API (POST /v1/embeddings). Needs no database; with one " +
			"(--database-url, or PGHOST, PGPORT, PGDATABASE, PGUSER or PGSERVICE) it also searches the pipelines " +
			"that are set up there. Listens on " + serveListen + " unless --http is given. SIGTERM and SIGINT end it " +
			"after the requests in progress. For queries on machines other than the sidecar's.",
		settings: []string{config.GroupQueries, config.GroupEmbedding, config.GroupDatabase, config.GroupOps},
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

func serveQueries(ctx context.Context, env *environment) error {
	n := app.NewServer(env.node(), env.config.NamesDatabase(env.environ))
	defer env.supervise(ctx, n)()
	return n.Serve(ctx, cmp.Or(env.config.Queries.Listen, serveListen))
}
