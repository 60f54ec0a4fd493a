package main

import (
	"context"
	"io"

	"github.com/embedsidecar/embedsidecar/internal/app"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
)

func newMCP() *command {
	return &command{
		name: "mcp", group: groupSearch, usage: "answer an AI agent over standard input and output (Model Context Protocol)",
		arguments: "[PIPELINE...]", maxArgs: -1,
		description: "Gives an agent the tools list_pipelines, search, similar and explain, for the named pipelines or " +
			"all. They only read, with the privileges of the connection, and see what a query over HTTP would. An " +
			"agent's program starts this command by itself. Over HTTP the same tools are at /mcp of run --http and " +
			"serve, with a token. For agents on this machine.",
		settings: []string{config.GroupDatabase, config.GroupEmbedding}, run: runMCP,
	}
}

func runMCP(ctx context.Context, env *environment) error {
	if len(env.args) > 0 { // a name that means nothing is told before the agent asks
		pool, err := env.connect(ctx)
		if err != nil {
			return err
		}
		_, err = lookup.Brief(ctx, pool, env.args)
		pool.Close()
		if err != nil {
			return err
		}
	}
	err := app.NewServer(env.node(), true).Talk(ctx, env.args, io.NopCloser(env.stdin), writeCloser{env.stdout})
	if exitCode(ctx, err) == exitInterrupted {
		return nil // that is how it is told to stop
	}
	return err
}

// writeCloser is standard output, which nobody closes.
type writeCloser struct{ io.Writer }

// Close implements io.Closer.
func (writeCloser) Close() error { return nil }
