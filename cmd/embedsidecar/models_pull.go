package main

import (
	"context"
	"errors"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/named/folders"
)

// pullCommand fetches a model from a hub and imports it.
type pullCommand struct {
	importCommand

	hub, revision, sums, sha256 string
	unpinned                    bool
}

func newModelsPull() *command {
	c := &pullCommand{importCommand: importCommand{python: "python3"}, hub: "https://huggingface.co"}
	return &command{
		name: "pull", group: groupModels, usage: "fetch a model from a hub and import it", arguments: "NAME",
		minArgs: 1, maxArgs: 1,
		description: "Fetches AUTHOR/MODEL from the hub and makes a model folder of it as models import does. What is fetched must be what was pinned: by --sha256 (the weights), by --sums (everything), by this program, which knows all files of its default model, and by the first pull, whose sums each later one compares. What was cut off is gone on with, also by the next pull; nothing is in place before it is whole.",
		flags: append(c.flags(),
			own.text("hub", &c.hub, "`URL` to fetch from: a hub of your own"),
			own.text("revision", &c.revision,
				"`REVISION` of the model (main, or of a model that this program knows the one it knows)"),
			own.text("sha256", &c.sha256, "`HEX` what the weights must be: model.safetensors, or onnx/model.onnx"),
			own.text("sums", &c.sums, "`FILE` in the form of SHA256SUMS with what exactly to fetch, and the sum of each"),
			own.toggle("unpinned", &c.unpinned, "take the first time what comes, and print the sums"),
		),
		settings: []string{config.GroupEmbedding},
		run:      c.pull,
	}
}

func (c *pullCommand) pull(ctx context.Context, env *environment) error {
	download, err := env.models().Download(folders.Source{
		Hub: c.hub, Name: env.args[0], Revision: c.revision, Sums: c.sums, SHA256: c.sha256,
		Unpinned: c.unpinned, Names: folders.Names{Sums: "--sums", SHA256: "--sha256", Unpinned: "--unpinned"}, Log: env.log,
	})
	if err != nil {
		return err
	}
	finished, shown := func() {}, !env.quiet && output.IsTerminal(env.stderr)
	if shown {
		download.Progress, finished = output.Bars(env.stderr, env.out.Color)
	}
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
