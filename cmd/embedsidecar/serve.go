package main

import (
	"cmp"
	"context"
	"io"
	"os/user"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/app"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
)

// serveListen is the default address of serve.
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
		daemon:  true,
		endless: true,
		run: func(ctx context.Context, env *environment) error {
			n := app.NewServer(env.node(), env.config.NamesDatabase(env.environ))
			defer env.supervise(ctx, n)()
			return n.Serve(ctx, cmp.Or(env.config.Queries.Listen, serveListen))
		},
	}
}

// dashboardListen is the default address of dashboard: a free port.
const dashboardListen = "127.0.0.1:0"

func newDashboard() *command {
	readOnly, rowText := false, false
	return &command{
		name: "dashboard", group: groupObserve, usage: "serve the dashboard on this machine and print its address",
		description: "Listens on a loopback address, at a free port unless --admin-listen names one. The printed address " +
			"has a token that ends with the command. Reads the database, so it works without a running sidecar. " +
			"For one person; for a team, use run --admin-listen with tokens.",
		settings: []string{config.GroupDatabase, config.GroupEmbedding, config.GroupAdmin},
		flags: []cli.Flag{
			own.toggle("read-only", &readOnly, "offer no action"),
			own.toggle("row-text", &rowText, "show texts of rows on request"),
		},
		endless: true,
		run: func(ctx context.Context, env *environment) error {
			admin := &env.config.Admin
			admin.ReadOnly, admin.ShowRowText = admin.ReadOnly || readOnly, admin.ShowRowText || rowText
			name := "you"
			if u, err := user.Current(); err == nil && u.Username != "" {
				name = u.Username
			}
			n := app.NewDashboard(env.node())
			return n.Dashboard(ctx, cmp.Or(env.config.Admin.Listen, dashboardListen), name, func(url string) error {
				env.say("open this in a browser; interrupt to end")
				return env.printf("%s\n", url)
			})
		},
	}
}

func newMCP() *command {
	return &command{
		name: "mcp", group: groupSearch, usage: "answer an AI agent over standard input and output (Model Context Protocol)",
		arguments: "[PIPELINE...]", maxArgs: -1,
		description: "Gives an agent the tools list_pipelines, search, similar and explain, for the named pipelines or " +
			"all. They only read, with the privileges of the connection, and see what a query over HTTP would. An " +
			"agent's program starts this command by itself. Over HTTP the same tools are at /mcp of run --http and " +
			"serve, with a token. For agents on this machine.",
		settings: []string{config.GroupDatabase, config.GroupEmbedding}, endless: true,
		run: func(ctx context.Context, env *environment) error {
			if len(env.args) > 0 { // report unknown names before the agent asks
				if err := env.connected(ctx, func(pool *pgxpool.Pool) error {
					_, err := lookup.Chosen(ctx, pool, env.args)
					return err
				}); err != nil {
					return err
				}
			}
			return app.NewServer(env.node(), true).Talk(ctx, env.args, io.NopCloser(env.stdin), writeCloser{env.stdout})
		},
	}
}

// writeCloser adds a Close that does nothing to standard output.
type writeCloser struct{ io.Writer }

// Close implements io.Closer.
func (writeCloser) Close() error { return nil }
