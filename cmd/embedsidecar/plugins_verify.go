package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/problem"
	"github.com/embedsidecar/embedsidecar/internal/wording"
)

// The hints about a file that is not the pinned one.
var changedHints = []string{
	"put the file back that was pinned, or, if the new one is meant:",
	"embedsidecar plugins register FILE, then embedsidecar plugins reload; an entry in the configuration file is changed there",
}

func newPluginsVerify() *command {
	return &command{
		name: "verify", group: groupPlugins,
		usage: "check files against their pins, start them, and see that they answer in order", arguments: "[PLUGIN...]",
		maxArgs:     -1,
		description: "Without a name it checks every plugin that is pinned. Changes nothing; ends with status 4 when something is wrong.",
		settings:    []string{config.GroupEmbedding}, run: verifyPlugins,
	}
}

// pluginVerdict is the outcome for one plugin.
type pluginVerdict struct {
	Plugin string   `json:"plugin"`
	Result string   `json:"result"` // "ok" or "wrong"
	Detail string   `json:"detail"`
	Hints  []string `json:"hints,omitempty"`
}

func verifyPlugins(ctx context.Context, env *environment) error {
	c, err := env.embedders().Registered()
	if err != nil {
		return err
	}
	names := env.args
	if len(names) == 0 {
		for _, p := range slices.Concat(c.Plugins.Catalog, c.Plugins.Registered) {
			if p.SHA256 != "" && !slices.Contains(names, p.Name) {
				names = append(names, p.Name)
			}
		}
	}
	list := []pluginVerdict{}
	wrong := 0
	for _, name := range names {
		v := verifyPlugin(ctx, env, c, name)
		if v.Result != "ok" {
			wrong++
		}
		list = append(list, v)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if len(names) == 0 {
		env.say("no plugin is pinned: embedsidecar plugins register FILE")
	}
	err = env.show(map[string][]pluginVerdict{"plugins": list}, func() listing {
		l := listing{header: []string{"plugin", "result", "detail"}}
		for _, v := range list {
			l.rows = append(l.rows, []any{v.Plugin, v.Result, v.Detail})
		}
		return l
	})
	if wrong == 0 {
		return err
	}
	var hints []string
	for _, v := range list {
		hints = append(hints, v.Hints...)
	}
	return errors.Join(err, fail(exitFailed, fmt.Errorf("%s not to be used like this", wording.Count(int64(wrong), "plugin")),
		slices.Compact(hints)...))
}

func verifyPlugin(ctx context.Context, env *environment, c *config.Config, name string) pluginVerdict {
	k := describeKnown(c, env.find, name)
	switch k.State {
	case "changed":
		return pluginVerdict{name, "wrong", k.Path + " is not the file that was pinned: " + k.Detail, changedHints}
	case "missing", "unusable":
		return pluginVerdict{name, "wrong", k.Detail, nil}
	}
	h, _, err := env.embedders().Runner(name, "")
	if err != nil {
		return pluginVerdict{name, "wrong", env.redact.Text(err.Error()), problem.Hints(err)}
	}
	d, err := h.Describe(ctx) // its start asks the texts whose order is known
	if err := errors.Join(err, h.Close()); err != nil {
		return pluginVerdict{name, "wrong", env.redact.Text(err.Error()), problem.Hints(err)}
	}
	detail := fmt.Sprintf("version %s, model %s, %d wide", d.Version, d.Model, d.Dims)
	switch {
	case k.Version != "" && k.Version != d.Version:
		return pluginVerdict{name, "wrong", fmt.Sprintf("it calls itself version %s, and version %s was written down",
			d.Version, k.Version), changedHints}
	case k.SHA256 == "":
		detail += "; not pinned"
	}
	return pluginVerdict{name, "ok", detail, nil}
}
