package main

import (
	"context"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/app/quickstart"
	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/search"
)

func newQuickstart() *command {
	save := ""
	return &command{
		name: "quickstart", group: groupStart,
		usage:     "go from the URL of a database to a search in its rows, with one question",
		arguments: "[URL] [TABLE]", maxArgs: 2, url: func(args []string) string { url, _ := urlAndTable(args); return url },
		description: "Inspects the server, suggests a table with its text columns (TABLE, or the one with the most text), " +
			"prints the number of rows, the expected time and the SQL, asks once, sets up, embeds with a " +
			"progress bar, and answers queries line by line. It keeps the vectors in sync while it runs. Without " +
			"a terminal, --yes confirms and queries come from standard input; --dry-run only reports. The set-up " +
			"stays when it ends: it prints how to continue and how to remove it. The flags of run name a table, " +
			"a model or a plugin. For a first try with your own data.",
		flags:     []cli.Flag{own.text("save", &save, "`FILE` to write the configuration to, for run --config")},
		settings:  []string{config.GroupDatabase, config.GroupEmbedding},
		pipelines: true,
		acts:      true,
		run: func(ctx context.Context, env *environment) error {
			_, table := urlAndTable(env.args)
			return env.quickstart(ctx, table, save)
		},
	}
}

// urlAndTable tells the arguments apart: a table alone is one, too, where a variable has the URL.
func urlAndTable(args []string) (url, table string) {
	for _, arg := range args {
		if url == "" && (len(args) > 1 || strings.Contains(arg, "://") || strings.Contains(arg, "=")) {
			url = arg
		} else {
			table = arg
		}
	}
	return url, table
}

func (e *environment) quickstart(ctx context.Context, table, save string) error {
	f, is := e.stdin.(*os.File)
	person := &quickstart.Person{In: e.stdin, Out: e.stderr, Answers: is && output.IsTerminal(f), Yes: e.yes}
	o := quickstart.Options{
		Config: e.config, Table: table, Log: e.log, Redact: e.redact.Text, DryRun: e.dryRun, Save: save, Node: e.node(),
		Say: e.say, Steps: e.tellSteps, Lines: person.Lines, Agree: person.Agree, Prompt: person.Prompt,
		Show: func(p *pipeline.Pipeline, hits []search.Hit) error { return e.showHits(p, hits, &search.Request{}) },
	}
	o.Waiting, o.Every = e.tellWaiting()
	return quickstart.Run(ctx, o)
}
