package main

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/plugins/scaffold"
)

// pluginsNewCommand writes the beginning of a plugin.
type pluginsNewCommand struct {
	language, dir, sdk string
}

func newPluginsNew() *command {
	c := &pluginsNewCommand{language: "go"}
	return &command{
		name: "new", group: groupPlugins, usage: "create a plugin project with its test", arguments: "NAME",
		minArgs: 1, maxArgs: 1,
		description: "The project works and keeps the contract; put your model into it. docs/plugins.md is the guide. For " +
			"authors of plugins.",
		flags: []cli.Flag{
			own.text("lang", &c.language, "`LANGUAGE` "+strings.Join(scaffold.Languages, " or ")),
			own.text("dir", &c.dir, "`FOLDER` for the project", "embedsidecar-NAME"),
			own.text("sdk", &c.sdk,
				"`FOLDER` of a clone of embedsidecar with the SDK", "the released one, or the clone that this program was built in"),
		},
		run: c.run,
	}
}

func (c *pluginsNewCommand) run(_ context.Context, env *environment) error {
	name := strings.TrimPrefix(env.args[0], "embedsidecar-")
	project := scaffold.Project{Name: name, Language: c.language, Go: "1.26"}
	if err := project.From(c.sdk, version); err != nil {
		return fail(exitUsage, err)
	}
	dir := c.dir
	if dir == "" {
		dir = "embedsidecar-" + name
	}
	files, err := scaffold.Write(dir, project)
	if err != nil {
		return fail(exitUsage, err)
	}
	for _, file := range files {
		if err := env.printf("%s\n", filepath.Join(dir, file)); err != nil {
			return err
		}
	}
	env.say("%s tells how to build, test and try it", filepath.Join(dir, "README.md"))
	return nil
}
