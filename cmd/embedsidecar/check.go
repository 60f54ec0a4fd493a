package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/check"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/node/embedders"
	"github.com/embedsidecar/embedsidecar/internal/node/lookup"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/problem"
	"github.com/embedsidecar/embedsidecar/internal/wording"
)

// checkCommand looks for what keeps pipelines from working, now or later.
type checkCommand struct{}

func newCheck() *command {
	c := &checkCommand{}
	return &command{
		name: "check", aliases: []string{"doctor"}, group: groupStart,
		usage:       "tell what works, what does not, and the way out",
		description: "Changes nothing. Ends with status 4 when something would not work.",
		settings:    []string{config.GroupDatabase, config.GroupEmbedding},
		pipelines:   true,
		run:         c.run,
	}
}

// finding is the outcome of one check as JSON shows it.
type finding struct {
	Check  string       `json:"check"`
	Status check.Status `json:"status"`
	Detail string       `json:"detail"`
	Hints  []string     `json:"hints,omitempty"`
}

func (c *checkCommand) run(ctx context.Context, env *environment) (err error) {
	pool, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	plugins := embedders.New(env.embedders())
	defer func() { err = errors.Join(err, plugins.Close()) }()

	// What is set up is worked on too. Whether anything is, is a finding of setup's.
	loaded, err := lookup.Stored(ctx, pool, env.config.Slot.Name)
	if err != nil {
		loaded = nil
	}
	specs := lookup.Configured(env.config, loaded)
	all := slices.Clone(specs)
	for i := range loaded {
		if !slices.ContainsFunc(specs, func(spec pipeline.Spec) bool { return spec.Name == loaded[i].Name }) {
			all = append(all, loaded[i].Spec)
		}
	}
	described, list := c.plugins(ctx, plugins, all)
	for _, f := range check.Run(ctx, check.Options{
		Pool: pool, ReplicationDSN: env.config.Database.Stream(), Slot: env.config.Slot.Name,
		Publication: env.config.Publication.Name,
		Specs:       specs, Descriptions: described,
	}) {
		list = append(list, finding{f.Name, f.Status, f.Detail, f.Hint})
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return errors.Join(c.show(env, list), verdict(list))
}

// plugins starts every embedder that is needed and tells what it is.
func (c *checkCommand) plugins(ctx context.Context, plugins *embedders.Pool,
	specs []pipeline.Spec,
) (map[string]embed.Description, []finding) {
	described := map[string]embed.Description{}
	var list []finding
	seen := map[pipeline.ModelName]error{}
	for _, spec := range specs {
		key := spec.ModelName()
		err, asked := seen[key]
		if err != nil {
			continue
		}
		d, err := plugins.DescribeOne(ctx, spec)
		seen[key] = err
		if err != nil {
			list = append(list, finding{"embedder " + spec.Plugin, check.Wrong, err.Error(), problem.Hints(err)})
			continue
		}
		described[spec.Name] = d
		if !asked {
			list = append(list, finding{"embedder " + d.Plugin, check.OK, fmt.Sprintf("%s, %d wide", d.Model, d.Dims), nil})
		}
	}
	return described, list
}

func verdict(list []finding) error {
	var wrong int64
	for _, f := range list {
		if f.Status == check.Wrong {
			wrong++
		}
	}
	if wrong == 0 {
		return nil
	}
	return fail(exitFailed, fmt.Errorf("%s would not work", wording.Count(wrong, "thing")))
}

func (c *checkCommand) show(env *environment, list []finding) error {
	if env.output != "table" {
		return env.show(map[string][]finding{"checks": list}, func() listing {
			l := listing{header: []string{"check", "status", "detail"}}
			for _, f := range list {
				l.rows = append(l.rows, []any{f.Check, f.Status, f.Detail})
			}
			return l
		})
	}
	for _, f := range list {
		if f.Status == check.OK && env.quiet {
			continue
		}
		// A line each, because details are sentences.
		if err := env.printf("%-5s  %s: %s\n", f.Status, wording.OneLine(f.Check),
			env.redact.Text(wording.OneLine(f.Detail))); err != nil {
			return err
		}
		for _, hint := range f.Hints {
			if err := env.printf("         %s\n", env.redact.Text(wording.OneLine(hint))); err != nil {
				return err
			}
		}
	}
	return nil
}
