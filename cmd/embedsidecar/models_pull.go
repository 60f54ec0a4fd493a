package main

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/named/folders"
)

// pullCommand fetches a model from a hub and imports it.
type pullCommand struct {
	importCommand

	hub, revision, sums, sha256, tokenFile string
	unpinned                               bool
}

func newModelsPull() *command {
	c := &pullCommand{importCommand: importCommand{python: "python3"}, hub: "https://huggingface.co"}
	return &command{
		name: "pull", group: groupModels, usage: "download a model from a hub and import it", arguments: "NAME",
		minArgs: 1, maxArgs: 1,
		description: "Downloads AUTHOR/MODEL from the hub and makes a model folder from it, as models import does. " +
			"Downloads are checked against pins: --sha256 (the weights), --sums (all files), the sums that this " +
			"program has for its default model, and those of the first pull. An interrupted download is resumed " +
			"by the next pull; the folder is in place only when it is complete. For models that are not on disk.",
		flags: append(c.flags(),
			own.text("hub", &c.hub, "`URL` of the hub"),
			own.text("revision", &c.revision,
				"`REVISION` of the model (main, or of a model that this program knows the one it knows)"),
			own.text("sha256", &c.sha256, "`HEX` SHA-256 of the weights: model.safetensors, or onnx/model.onnx"),
			own.text("sums", &c.sums, "`FILE` in the form of SHA256SUMS with the files to download and their sums"),
			own.text("token-file", &c.tokenFile, "`FILE` with a token of the hub, for models that not everybody may read"),
			own.toggle("unpinned", &c.unpinned, "accept the first download without a pin, and print the sums"),
		),
		settings: []string{config.GroupEmbedding},
		run:      c.pull,
	}
}

func (c *pullCommand) pull(ctx context.Context, env *environment) error {
	token, err := readToken(c.tokenFile)
	if err != nil {
		return err
	}
	download, err := env.models().Download(folders.Source{
		Hub: c.hub, File: c.file, Token: token, Name: env.args[0], Revision: c.revision, Sums: c.sums, SHA256: c.sha256,
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

// readToken reads a file with a token; "" has none.
func readToken(name string) (string, error) {
	if name == "" {
		return "", nil
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return "", misuse("--token-file: %s", err)
	}
	token := strings.TrimSpace(string(data))
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", misuse("--token-file: %s does not hold one token in one line", name)
	}
	return token, nil
}
