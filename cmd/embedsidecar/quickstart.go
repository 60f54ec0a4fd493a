package main

import (
	"context"
	"os"
	"os/exec"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/app/child"
	"github.com/embedsidecar/embedsidecar/internal/app/quickstart"
	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/search"
)

func newQuickstart() *command {
	save, chunks, showSQL := "", "", false
	return &command{
		name: "quickstart", group: groupStart,
		usage:     "go from the URL of a database to a search in its rows, asking before it changes anything",
		arguments: "[URL] [TABLE]", maxArgs: 2, stand: quickstartFlags,
		description: "Lists everything that the server lacks as one block to paste, and on a terminal continues " +
			"when that is done; asks a superuser whether to run it. Suggests a table with the columns that hold sentences " +
			"(TABLE, or the one with the most text; or name your own, as in quickstart URL docs --columns title,body), " +
			"prints a short plan with estimates of rows and time, and asks once; the answer s shows the SQL. Then it sets " +
			"up, embeds with a progress bar, and answers queries line by line as soon as the first rows are embedded. It " +
			"keeps the vectors in sync while it runs. Without a terminal, --yes confirms and " +
			"queries come from standard input; --dry-run only reports. The set-up stays when it ends: it prints how to " +
			"continue, how to remove it, and the SQL, Python and curl that search the table. The flags of run name a " +
			"table, a model or a plugin. For a first try with your own data.",
		flags: []cli.Flag{
			own.text("save", &save, "`FILE` file to write the configuration to, for run --config"),
			own.text("chunks", &chunks, "`ANSWER` yes or no: cut texts that are longer than the model reads into chunks",
				"asked on a terminal, else yes"),
			own.toggle("show-sql", &showSQL, "print the SQL of the plan, too"),
		},
		settings:  []string{config.GroupDatabase, config.GroupEmbedding},
		pipelines: true,
		acts:      true,
		run: func(ctx context.Context, env *environment) error {
			if chunks != "" && chunks != "yes" && chunks != "no" {
				return misuse("--chunks: expected yes or no, not %q", chunks)
			}
			_, table := urlAndTable(env.args)
			return env.quickstart(ctx, quickstart.Options{Table: table, Save: save, Chunks: chunks, SQL: showSQL})
		},
	}
}

// called returns how the user calls this program: by its name if the shell finds it.
func called() string {
	const name = "embedsidecar"
	this, err := os.Executable()
	if found, lookErr := exec.LookPath(name); err != nil || lookErr == nil && sameFile(found, this) {
		return name
	}
	return strings.Join(lists.Map(strings.Split(os.Args[0], "/"), health.Quoted), "/")
}

func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// urlAndTable tells the arguments apart. A single argument may be the table, if a variable has the URL.
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

// quickstartFlags adds the flags that the arguments stand for. A table with --columns is a complete pipeline: its
// vectors go where quickstart's own suggestion would put them.
func quickstartFlags(args []string, given map[string][]string) {
	url, table := urlAndTable(args)
	if url != "" {
		given["database-url"] = []string{url}
	}
	if len(given["columns"]) == 0 {
		return
	}
	if table != "" && len(given["table"]) == 0 {
		given["table"] = []string{table}
	}
	if len(given["table"]) == 0 || len(given["into"])+len(given["into-table"]) > 0 {
		return
	}
	into, err := config.EmbeddingTable(given["table"][len(given["table"])-1])
	if err == nil { // otherwise the table name is refused later
		given["into-table"] = []string{into}
	}
}

func (e *environment) quickstart(ctx context.Context, o quickstart.Options) error {
	f, is := e.stdin.(*os.File)
	o.Person = &quickstart.Person{In: e.stdin, Out: e.stderr, Answers: is && output.IsTerminal(f), Yes: e.yes}
	o.Config, o.Log, o.Redact, o.DryRun, o.Node = e.config, e.log, e.redact.Text, e.dryRun, e.node()
	o.Say, o.Steps = e.say, e.tellSteps
	o.Show = func(p *pipeline.Pipeline, hits []search.Hit) error { return e.showHits(p, hits, &search.Request{}) }
	o.Waiting, o.Every = e.tellLine()
	o.Program, o.Wait = called(), o.Answers && !e.yes && !e.dryRun
	err := quickstart.Run(ctx, o)
	if exitCode(ctx, err) == exitInterrupted { // quickstart has already reported the interrupt
		return &child.EndedError{Status: exitInterrupted, What: "interrupted"}
	}
	return err
}
