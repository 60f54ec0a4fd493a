package main

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/config"
)

// everySetting are the groups of all settings.
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
				return fail(exitConflict, err, "name another file, or take this one away first")
			} else if err != nil {
				return fail(exitUsage, err)
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
		description: "Looks for the plugins, the models and the file of tokens that are named, too. Does not connect to a " +
			"database: embedsidecar check does. Ends with status 2 if there is a mistake. For pipelines that deploy a file.",
		settings: everySetting, pipelines: true, reach: allDatabases,
		run: func(_ context.Context, env *environment) error { // what is wrong in itself was told before
			c := env.config
			if err := c.Missing(env.node().Find); err != nil {
				return err
			}
			if env.out.ForPeople() {
				env.say("the configuration is right: %s", wording.Count(int64(len(c.Pipelines)), "pipeline"))
				return nil
			}
			return env.out.Show(map[string]any{
				"valid": true, "file": c.File(), "pipelines": len(c.Pipelines), "models": len(c.Models),
			}, func() output.Table {
				return output.Row([]string{"valid", "file", "pipelines", "models"},
					true, c.File(), len(c.Pipelines), len(c.Models))
			})
		},
	}
}

func newConfigShow() *command {
	resolved := false
	return &command{
		name: "show", group: groupConfig, usage: "show the configuration and where each value comes from",
		description: "Passwords and keys are masked. For finding out which file, variable or flag is in force.",
		flags:       []cli.Flag{own.toggle("resolved", &resolved, "every value, including defaults")},
		settings:    everySetting, pipelines: true, reach: allDatabases,
		run: func(_ context.Context, env *environment) error {
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

func newConfigSchema() *command {
	return &command{
		name: "schema", group: groupConfig, usage: "print the JSON Schema of the file",
		description: "For editors that complete and check YAML.",
		run: func(_ context.Context, env *environment) error {
			encoder := output.Encoder(env.stdout)
			encoder.SetIndent("", "  ")
			return encoder.Encode(config.JSONSchema())
		},
	}
}
