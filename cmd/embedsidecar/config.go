package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/app"
	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/named/control"
)

var everySetting = []string{
	config.GroupDatabase, config.GroupEmbedding, config.GroupWork, config.GroupQueries, config.GroupOps,
}

func newConfigInit() *command {
	return &command{
		name: "init", group: groupConfig, usage: "write a configuration file to start with",
		description: "The file has the pipelines that flags describe, or an example. Without FILE it is printed. An " +
			"existing file is not changed. For everyone who moves from flags to a file.",
		arguments: "FILE", maxArgs: 1, pipelines: true,
		run: func(_ context.Context, env *environment) error {
			text := config.Starter(env.config.Pipelines)
			if len(env.args) == 0 {
				return env.printf("%s", text)
			}
			f, err := os.OpenFile(env.args[0], os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
			if errors.Is(err, fs.ErrExist) {
				return problem.New(problem.Conflict, err, "name another file, or remove this one first")
			} else if err != nil {
				return problem.New(problem.Usage, err)
			}
			_, err = f.WriteString(text)
			env.say("wrote %s", env.args[0])
			return errors.Join(err, f.Close())
		},
	}
}

func newConfigValidate() *command {
	return &command{
		name: "validate", group: groupConfig, usage: "report every mistake in flags, variables and the file, with its place",
		description: "Also looks for the named plugins, models and tokens file. Does not connect to a " +
			"database: embedsidecar check does. Ends with status 2 if there is a mistake. For pipelines that deploy a file.",
		settings: everySetting, pipelines: true, reach: allDatabases,
		run: func(_ context.Context, env *environment) error { // mistakes in the values were reported before
			c := env.config
			if err := c.Missing(env.node().Find); err != nil {
				return err
			}
			if env.out.ForPeople() {
				env.say("the configuration is valid: %s", wording.Count(int64(len(c.Pipelines)), "pipeline"))
				return nil
			}
			return output.One(env.out, map[string]any{
				"valid": true, "file": c.File(), "pipelines": len(c.Pipelines), "models": len(c.Models),
			}, []string{"valid", "file", "pipelines", "models"}, true, c.File(), len(c.Pipelines), len(c.Models))
		},
	}
}

func newConfigShow() *command {
	var resolved, schema bool
	return &command{
		name: "show", group: groupConfig, usage: "show the configuration and where each value comes from",
		description: "Passwords and keys are masked. For finding out which file, variable or flag is in force.",
		flags: []cli.Flag{
			own.toggle("resolved", &resolved, "every value, including defaults"),
			own.toggle("schema", &schema, "print the JSON Schema of the file instead, for editors that check YAML"),
		},
		settings: everySetting, pipelines: true, reach: allDatabases,
		run: func(_ context.Context, env *environment) error {
			if schema {
				encoder := output.Encoder(env.stdout)
				encoder.SetIndent("", "  ")
				return encoder.Encode(config.JSONSchema())
			}
			list := env.config.Show(resolved)
			for i := range list {
				list[i].Value = env.redact.Text(list[i].Value)
			}
			columns := []string{"setting", "value", "origin"}
			return output.List(env.out, "settings", list, columns, func(s *config.Shown) []any {
				return []any{s.Path, s.Value, s.Origin}
			})
		},
	}
}

func newPlan() *command {
	return &command{
		name: "plan", group: groupConfig, usage: "show what a configuration would change, what that costs, and what is lost",
		description: "Changes nothing. Shows the steps in the database; the backfill of each new or changed pipeline: " +
			"rows, tokens (by the model's own tokenizer), price (if the model has one in the file); pipelines " +
			"that would be removed; and, if sidecars run, the settings that take effect at their next start. Ends with " +
			"status 0, with -o json state is planned or unchanged; with status 2 if the file has a mistake, and with the " +
			"status of the error if the configuration cannot be set up. For everyone who changes a file that is in use.",
		settings: []string{config.GroupDatabase, config.GroupEmbedding}, pipelines: true, reach: eachDatabase,
		run: func(ctx context.Context, env *environment) error { return env.apply(ctx, true, true) },
	}
}

func newApply() *command {
	return &command{
		name: "apply", group: groupConfig, usage: "do what plan shows",
		description: "Prints the plan; --yes does it. Creates new objects before it removes old ones. A pipeline " +
			"that was deleted from this file is removed; its vectors stay. Running sidecars continue with what is " +
			"set up; those with the same file apply it by themselves. For owners of tables that the sidecar may " +
			"not change, and for deployments that want to see the plan first.",
		settings: []string{config.GroupDatabase, config.GroupEmbedding}, pipelines: true, acts: true, reach: eachDatabase,
		run: func(ctx context.Context, env *environment) error { return env.apply(ctx, !env.yes, false) },
	}
}

// apply sets up what is configured, or shows what that would do. planned: the user asked only for the plan.
func (e *environment) apply(ctx context.Context, dry, planned bool) error {
	told, err := app.Apply(ctx, e.node(), dry)
	if told.State == "" {
		return err
	}
	if e.out.ForPeople() && told.State == control.Refused {
		return err // the error says everything
	}
	shown := e.tellConfigured([]control.Configured{told}, false)
	if dry && told.State == control.Planned && !planned && err == nil {
		e.say("nothing was changed: run it with --yes")
	}
	return errors.Join(shown, err)
}

// tellConfigured prints the results of configurations.
func (e *environment) tellConfigured(list []control.Configured, several bool) error {
	if !e.out.ForPeople() {
		columns := []string{"instance", ">pid", "state", "changed", "removed", "needs_restart", "reason"}
		value := any(map[string]any{"sidecars": list})
		if !several {
			value = list[0]
		}
		return output.Each(e.out, value, list, columns, func(c *control.Configured) []any {
			return []any{
				c.Instance, c.Pid, c.State, strings.Join(c.Changed, " "), strings.Join(c.Removed, " "),
				strings.Join(c.NeedsRestart, " "), c.Reason,
			}
		})
	}
	for i := range list {
		for _, line := range configuredLines(&list[i], several) {
			if err := e.printf("%s\n", line); err != nil {
				return err
			}
		}
	}
	return nil
}

// configuredLines formats a result for people.
func configuredLines(c *control.Configured, named bool) (lines []string) {
	head := map[string]string{
		control.Taken: "taken over", control.Unchanged: "nothing to change: it is configured as before",
		control.Refused: "refused, nothing was changed: " + c.Reason, control.Planned: "planned, nothing was changed",
		control.Halfway: "failed after these steps: " + c.Reason,
	}[c.State]
	if named {
		head = fmt.Sprintf("%s (process %d): %s", c.Instance, c.Pid, head)
	}
	lines = append(lines, head)
	add := func(word string, list []string) {
		for _, one := range list {
			lines = append(lines, "  "+word+" "+one)
		}
	}
	add("changed:", c.Changed)
	add("step:", c.Steps)
	for _, cost := range c.Costs {
		add("cost:", []string{cost.Line})
	}
	add("removed:", c.Removed)
	add("lost:", c.Lost)
	add("takes effect at the next start:", c.NeedsRestart)
	add("warning:", c.Warnings)
	add("hint:", c.Hints)
	return lines
}

func newReload() *command {
	return &command{
		name: "reload", group: groupConfig, usage: "make running sidecars apply their current configuration file",
		description: "A sidecar watches its file by itself; SIGHUP and POST /api/v1/reload do the same. It " +
			"applies the whole file, or nothing if there is a mistake. Reaches the sidecars of this user on this " +
			"machine; if a database is named, only those that work for it. Ends with status 4 if one refuses, or none " +
			"runs. For deployments that want to know that the configuration is in force.",
		settings: []string{config.GroupDatabase, config.GroupOps}, reach: allDatabases,
		run: func(ctx context.Context, env *environment) error {
			which, err := env.which(ctx)
			if err != nil {
				return err
			}
			list, err := env.plugins().Configure(ctx, which)
			if len(list) == 0 {
				return err
			}
			var refused []error
			for i := range list {
				if list[i].State == control.Refused || list[i].State == control.Halfway {
					refused = append(refused, problem.New(problem.Failed, fmt.Errorf("sidecar %s: %s", list[i].Instance,
						list[i].Reason), list[i].Hints...))
				}
			}
			return errors.Join(env.tellConfigured(list, true), err, errors.Join(refused...))
		},
	}
}
