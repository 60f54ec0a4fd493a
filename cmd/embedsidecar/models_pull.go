package main

import (
	"context"
	"errors"
	"strings"
	"time"

	bars "github.com/jedib0t/go-pretty/v6/progress"
	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/models"
	"github.com/embedsidecar/embedsidecar/internal/node/folders"
)

// pullCommand fetches a model from a hub and imports it.
type pullCommand struct {
	importCommand

	revision, sums, sha256 string
	unpinned               bool
}

func newModelsPull() *command {
	c := &pullCommand{}
	return &command{
		name: "pull", group: groupModels, usage: "fetch a model from a hub and import it", arguments: "NAME",
		minArgs: 1, maxArgs: 1,
		description: "Fetches AUTHOR/MODEL from the hub and makes a model folder of it as models import does. What is fetched must be what was pinned: by --sha256 (the weights), by --sums (everything), by this program, which knows all files of its default model, and by the first pull, whose sums each later one compares. What was cut off is gone on with, also by the next pull; nothing is in place before it is whole.",
		flags: append(c.flags(),
			&cli.StringFlag{
				Name: "revision", Destination: &c.revision,
				Usage: "`REVISION` of the model (main, or of a model that this program knows the one it knows)",
			},
			&cli.StringFlag{
				Name: "sha256", Destination: &c.sha256,
				Usage: "`HEX` what the weights must be: model.safetensors, or onnx/model.onnx",
			},
			&cli.StringFlag{
				Name: "sums", Destination: &c.sums,
				Usage: "`FILE` in the form of SHA256SUMS with what exactly to fetch, and the sum of each",
			},
			&cli.BoolFlag{
				Name: "unpinned", Destination: &c.unpinned, DisableDefaultText: true,
				Usage: "take the first time what comes, and print the sums",
			},
		),
		settings: []string{config.GroupEmbedding},
		run:      c.pull,
	}
}

func (c *pullCommand) pull(ctx context.Context, env *environment) error {
	download, err := env.models().Download(folders.Source{
		Hub: env.config.Hub, Name: env.args[0], Revision: c.revision, Sums: c.sums, SHA256: c.sha256,
		Unpinned: c.unpinned, Names: folders.Names{Sums: "--sums", SHA256: "--sha256", Unpinned: "--unpinned"}, Log: env.log,
	})
	if err != nil {
		return err
	}
	finished, shown := env.showProgress(&download.PullOptions)
	sums, err := download.Fetch(ctx)
	finished()
	if err != nil {
		return err
	}
	if !shown {
		env.say("fetched %d files of %s", len(sums), download.Name)
	}
	if c.unpinned {
		env.say("%s", strings.TrimSpace(sums.String()))
	}
	done, err := download.Import(ctx, c.options(env))
	if done.Path != "" {
		err = errors.Join(showImported(env, done), err)
	}
	return err
}

// showProgress lets a bar grow for each file, on a terminal. finished ends it.
func (e *environment) showProgress(o *models.PullOptions) (finished func(), shown bool) {
	if e.quiet || !isTerminal(e.stderr) {
		return func() {}, false
	}
	const barWidth, least = 30, 1 << 16 // bytes of a file that is worth a bar
	w := bars.NewWriter()
	w.SetOutputWriter(e.stderr)
	w.SetTrackerLength(barWidth)
	w.SetUpdateFrequency(100 * time.Millisecond)
	w.Style().Options.Separator = " "
	if !e.color {
		w.SetStyle(bars.StyleDefault)
	}
	trackers := map[string]*bars.Tracker{}
	o.Progress = func(file string, done, total int64) {
		tracker, ok := trackers[file]
		if !ok && total >= 0 && total < least {
			return
		}
		if !ok {
			tracker = &bars.Tracker{Message: file, Total: max(total, 0), Units: bars.UnitsBytes}
			trackers[file] = tracker
			w.AppendTracker(tracker)
		}
		tracker.SetValue(done)
		if total >= 0 && done >= total {
			tracker.MarkAsDone()
		}
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		w.Render()
	}()
	return func() {
		for _, tracker := range trackers {
			if !tracker.IsDone() {
				tracker.MarkAsErrored()
			}
		}
		w.Stop()
		<-over
	}, true
}
