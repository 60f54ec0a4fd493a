// The program embedsidecar keeps pgvector embeddings in sync with tables.
//
// This package reads flags, environment and files, starts the parts and prints what they return. It decides nothing
// else.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/private"
	"github.com/embedsidecar/embedsidecar/internal/base/signals"
	"github.com/embedsidecar/embedsidecar/internal/manage/generations"
	"github.com/embedsidecar/embedsidecar/internal/manage/verbs"
)

func main() {
	if err := private.Keep(); err != nil {
		fmt.Fprintf(os.Stderr, "embedsidecar: warning: %s\n", err)
	}
	os.Exit(run(os.Args, os.Stdout, os.Stderr))
}

// run is the program: it returns the exit status.
func run(args []string, stdout, stderr io.Writer) int {
	host, err := os.Hostname()
	if err != nil {
		host = "" // then the instance gets a generated name
	}
	executable, err := os.Executable()
	if err != nil {
		executable = args[0]
	}
	ctx, stop := signals.Context(context.Background(), func() { os.Exit(exitInterrupted) })
	defer stop()
	p := &program{
		commands: commands(), stdin: os.Stdin, stdout: stdout, stderr: stderr,
		environ: os.Environ(), hostname: host, pid: os.Getpid(), executable: executable,
	}
	return p.run(ctx, args)
}

// commands returns every command, in the order of the help text. Each call makes new ones, because flags keep state.
func commands() []*command {
	return []*command{
		newQuickstart(), newRun(), newServe(), newInit(), newPlan(), newApply(), newReload(), newAdopt(), newImportFrom(),
		newCheck(), newUninstall(),
		newStatus(), newDashboard(), newExplain(), newHealthcheck(), newWait(), newVerify(),
		newVerb(verbs.Pause), newVerb(verbs.Resume), newBulk(),
		newEstimated(verbs.Backfill), newEstimated(verbs.Reembed),
		newFamily("model", append([]*command{newModelChange(), newModelStatus(), newModelCompare()},
			lists.Map(generations.Acts, newModelAct)...)...),
		newFamily("tasks", newTasksList(), newVerb(verbs.Retry), newVerb(verbs.Requeue),
			newVerb(verbs.Cancel), newVerb(verbs.Discard), newVerb(verbs.Prioritise), newVerb(verbs.ClearHistory)), newAudit(),
		newSearch(), newEmbed(), newMCP(), newFamily("index", newIndexCheck()),
		newFamily("plugins", newPluginsList(), newPluginsInfo(), newPluginsVerify(), newPluginsRegister(),
			newPluginsRemove(), newPluginsReload(), newPluginsNew(), newPluginsTest(), newPluginsBench()),
		newFamily("models", newModelsList(), newModelsShow(), newModelsVerify(), newModelsImport(),
			newModelsPull(), newModelsDistill()),
		newFamily("config", newConfigInit(), newConfigValidate(), newConfigShow()),
		newFamily("token", newTokenCreate(), newTokenList(), newTokenRevoke()), newRoles(),
		newCompletion(), newMan(), newVersion(),
	}
}
