package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/plugins/scaffold"
)

// modulePath is where the SDK for Go lives.
const modulePath = "github.com/embedsidecar/embedsidecar"

// pluginsNewCommand writes the beginning of a plugin.
type pluginsNewCommand struct {
	language, dir, sdk string
}

func newPluginsNew() *command {
	c := &pluginsNewCommand{}
	return &command{
		name: "new", group: groupPlugins, usage: "write the beginning of a plugin, with its test", arguments: "NAME",
		minArgs: 1, maxArgs: 1,
		description: "Writes a project that works and keeps the contract, to put a model into. docs/plugins.md is the guide.",
		flags: []cli.Flag{
			&cli.StringFlag{Name: "lang", Destination: &c.language, Value: "go", Usage: "`LANGUAGE` " +
				strings.Join(scaffold.Languages, " or ")},
			&cli.StringFlag{
				Name: "dir", Destination: &c.dir, Usage: "`FOLDER` for the project",
				DefaultText: "embedsidecar-NAME",
			},
			&cli.StringFlag{
				Name: "sdk", Destination: &c.sdk, Usage: "`FOLDER` of a clone of embedsidecar with the SDK",
				DefaultText: "the released one, or the clone that this program was built in",
			},
		},
		run: c.run,
	}
}

func (c *pluginsNewCommand) run(_ context.Context, env *environment) error {
	name := strings.TrimPrefix(env.args[0], "embedsidecar-")
	project := scaffold.Project{Name: name, Language: c.language, Version: version, Checkout: c.sdk, Go: "1.26"}
	released := regexp.MustCompile(`^v\d+\.\d+\.\d+$`).MatchString(version)
	if project.Checkout == "" && !released {
		project.Checkout = clone()
	}
	switch {
	case project.Checkout != "":
		checkout, err := filepath.Abs(project.Checkout)
		if err != nil {
			return err
		}
		if !isClone(checkout) {
			return misuse("--sdk: %s is no clone of embedsidecar", project.Checkout)
		}
		project.Checkout, project.Version = checkout, "v0.0.0"
	case !released:
		return fail(exitUsage, errors.New("this build is no release, so there is no released SDK that belongs to it"),
			"name a clone of embedsidecar with --sdk")
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

// clone returns the clone of embedsidecar that this program lies in; "" for none.
func clone() string {
	executable, err := os.Executable()
	if err != nil {
		return ""
	}
	for dir := filepath.Dir(executable); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if isClone(dir) {
			return dir
		}
	}
	return ""
}

func isClone(dir string) bool {
	content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	return err == nil && bytes.HasPrefix(content, fmt.Appendf(nil, "module %s\n", modulePath))
}
