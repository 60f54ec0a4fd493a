package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/control"
)

func newPluginsReload() *command {
	return &command{
		name: "reload", group: groupPlugins,
		usage: "have running sidecars move to a plugin's file and model as they are now", arguments: "[PLUGIN...]",
		maxArgs:     -1,
		description: "Without a name it reloads all. New processes start beside the old ones; they must describe the same fingerprint and give the same vectors; then they take over, and no row fails. Otherwise everything stays as it is, and the reason is told. It reaches the sidecars of this user on this machine; others do the same at SIGHUP.",
		settings:    []string{config.GroupEmbedding, config.GroupOps}, run: reloadPlugins,
	}
}

func reloadPlugins(ctx context.Context, env *environment) error {
	sidecars, err := control.Find(ctx, env.config.ControlFolder())
	if err != nil {
		return err
	}
	if len(sidecars) == 0 {
		return fail(exitFailed, fmt.Errorf("no sidecar of this user runs here (looked in %s)", env.config.ControlFolder()),
			"one of another user, in a container or on another machine reloads its plugins at SIGHUP",
			"a sidecar that starts takes the files as they are")
	}
	type outcome struct {
		Sidecar string `json:"sidecar"`
		Pid     int    `json:"pid"`
		control.Reloaded
	}
	list := []outcome{}
	var refused int64
	var problems []error
	for _, s := range sidecars {
		results, err := s.Reload(ctx, env.args)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		for _, r := range results {
			if r.Result != "reloaded" {
				refused++
			}
			list = append(list, outcome{s.State.Instance, s.State.Pid, r})
		}
	}
	if len(list) == 0 && len(problems) == 0 {
		return fail(exitFailed, errors.New("no running sidecar uses that plugin"),
			"embedsidecar plugins list shows what runs")
	}
	err = env.show(map[string][]outcome{"plugins": list}, func() listing {
		l := listing{header: []string{"sidecar", "pid", "plugin", "model", "result"}, right: []int{1}}
		for _, o := range list {
			l.rows = append(l.rows, []any{o.Sidecar, o.Pid, o.Plugin, o.Model, o.Result})
		}
		return l
	})
	for _, o := range list {
		if o.Detail != "" {
			problems = append(problems, fmt.Errorf("sidecar %s: %s", o.Sidecar, o.Detail))
		}
	}
	if len(problems) > 0 {
		return errors.Join(err, fail(exitFailed, errors.Join(problems...), "what ran goes on as it was",
			"another model is another pipeline: a new name and a new destination, or a restart of the sidecar with the model as it was"))
	}
	return err
}
