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
		newFamily("model", newModelChange(), newModelStatus(), newModelCompare(),
			newModelAct(generations.Switch, "have the next generation of a pipeline serve", "One short transaction: the "+
				"vectors get the name of those that served, and questions are embedded by their model from that instant on. "+
				"Refused until the next generation is complete. The old one is kept up to date until model drop-old. For "+
				"the moment when model status says that it can serve."),
			newModelAct(generations.Rollback, "have the previous generation of a pipeline serve again", "model switch the "+
				"other way, as fast, as long as the previous generation is kept. For a model that turned out worse."),
			newModelAct(generations.DropOld, "take away the generation of a pipeline that does not serve", "Drops its vectors "+
				"and forgets it: the previous generation after a switch, or a next one that is given up. There is no way back "+
				"to it. For the end of a change.")),
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
