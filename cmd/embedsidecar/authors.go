package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/named/registry"
	"github.com/embedsidecar/embedsidecar/plugins/conformance"
	"github.com/embedsidecar/embedsidecar/plugins/scaffold"
)

// pluginsTestCommand checks whether a plugin keeps the contract.
type pluginsTestCommand struct {
	env, only cli.StringSlice
	soak      time.Duration
	patience  int
}

func newPluginsTest() *command {
	c := &pluginsTestCommand{soak: 10 * time.Second, patience: 1}
	return &command{
		name: "test", group: groupPlugins, usage: "check whether a plugin keeps the contract", arguments: "PLUGIN",
		minArgs: 1, maxArgs: 1,
		description: "Starts the plugin as the sidecar would and checks every rule of the contract. PLUGIN is a file, or a " +
			"name as in --plugin. Ends with status 4 if a check fails. Needs no database. For authors of plugins. The checks: " +
			strings.Join(conformance.IDs(), ", ") + ".",
		flags: []cli.Flag{
			pluginVariables(&c.env),
			own.list("only", &c.only, "`CHECK` run only this check; again for more"),
			own.duration("soak", &c.soak, "`DURATION` how long memory is watched under load"),
			own.number("patience", &c.patience, "`TIMES` factor for the time limits of the checks, for a busy machine"),
		},
		settings: []string{config.GroupEmbedding},
		run:      c.run,
	}
}

// mostPatience is practically no limit.
const mostPatience = 1000

// pluginVariables is the flag for environment variables of a plugin under test.
func pluginVariables(into *cli.StringSlice) cli.Flag {
	return own.list("env", into, "`NAME=VALUE` variable for the plugin; again for more")
}

func (c *pluginsTestCommand) run(ctx context.Context, env *environment) error {
	plugin, err := env.pluginUnderTest(c.env.Value())
	if err != nil {
		return err
	}
	if c.soak <= 0 {
		return misuse("--soak: expected a duration above zero")
	}
	if c.patience < 1 || c.patience > mostPatience {
		return misuse("--patience: expected a number from 1 to %d, not %d", mostPatience, c.patience)
	}
	options := conformance.Options{Only: c.only.Value(), Soak: c.soak, Patience: c.patience}
	if env.out.ForPeople() { // print each line as it comes: some checks take a while
		options.Progress = func(check conformance.Check) { _, _ = io.WriteString(env.stdout, c.line(env, check)) }
	}
	report, err := plugin.Keeps(ctx, options)
	if err != nil {
		return err
	}
	if err := c.show(env, report); err != nil {
		return err
	}
	if report.Verdict == conformance.Fail {
		return problem.New(problem.Failed, fmt.Errorf("%s does not meet the contract", filepath.Base(report.Path)),
			"docs/plugins.md describes the contract")
	}
	return nil
}

// line formats one check for people.
func (c *pluginsTestCommand) line(env *environment, check conformance.Check) string {
	verdict := fmt.Sprintf("%-4s", check.Verdict)
	if env.out.Color {
		verdict = map[conformance.Verdict]output.Color{
			conformance.Pass: output.Green, conformance.Warn: output.Yellow, conformance.Fail: output.Red,
		}[check.Verdict].Sprint(verdict)
	}
	const margin = 24
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %-16s  %s\n", verdict, check.ID, output.Fill(check.Title, margin))
	fmt.Fprintf(&b, "%*s%s\n", margin, "", output.Fill(wording.OneLine(env.redact.Text(check.Measured)), margin))
	if check.Advice != "" {
		fmt.Fprintf(&b, "%*s%s\n", margin, "", output.Fill("to do: "+check.Advice, margin))
	}
	return b.String()
}

func (c *pluginsTestCommand) show(env *environment, r *conformance.Report) error {
	if !env.out.ForPeople() {
		columns := []string{"check", "verdict", "measured", "advice", "seconds"}
		return output.Each(env.out, r, r.Checks, columns, func(c *conformance.Check) []any {
			return []any{c.ID, c.Verdict, c.Measured, c.Advice, fmt.Sprintf("%.3f", c.Seconds)}
		})
	}
	counts := map[conformance.Verdict]int{}
	for _, check := range r.Checks {
		counts[check.Verdict]++
	}
	left := ""
	if n := len(r.LeftOut); n > 0 {
		left = fmt.Sprintf(", %d left out as it did not start", n)
	}
	return env.printf("\n%d passed, %d to look at, %d failed%s\n", counts[conformance.Pass], counts[conformance.Warn],
		counts[conformance.Fail], left)
}

// pluginUnderTest finds the plugin that the first argument names, by file or name, with its environment.
func (e *environment) pluginUnderTest(variables []string) (registry.Trial, error) {
	found, err := e.plugins().Trial(e.args[0])
	if err != nil {
		return found, err
	}
	for _, variable := range variables {
		name, value, ok := strings.Cut(variable, "=")
		if !ok || name == "" {
			return found, misuse("--env: expected NAME=VALUE, not %q", variable)
		}
		found.Env[name] = value
	}
	return found, nil
}

func newPluginsNew() *command {
	language, dir, sdk := "go", "", ""
	return &command{
		name: "new", group: groupPlugins, usage: "create a plugin project with its test", arguments: "NAME",
		minArgs: 1, maxArgs: 1,
		description: "The project works and keeps the contract; put your model into it. docs/plugins.md is the guide. For " +
			"authors of plugins.",
		flags: []cli.Flag{
			own.text("lang", &language, "`LANGUAGE` "+strings.Join(scaffold.Languages, " or ")),
			own.text("dir", &dir, "`FOLDER` folder of the project", "embedsidecar-NAME"),
			own.text("sdk", &sdk,
				"`FOLDER` clone of embedsidecar with the SDK", "the released one, or the clone that this program was built in"),
		},
		run: func(_ context.Context, env *environment) error {
			name := strings.TrimPrefix(env.args[0], "embedsidecar-")
			project := scaffold.Project{Name: name, Language: language, Go: "1.26"}
			if err := project.From(sdk, version); err != nil {
				return problem.New(problem.Usage, err)
			}
			dir = cmp.Or(dir, "embedsidecar-"+name)
			files, err := scaffold.Write(dir, project)
			if err != nil {
				return problem.New(problem.Usage, err)
			}
			for _, file := range files {
				if err := env.printf("%s\n", filepath.Join(dir, file)); err != nil {
					return err
				}
			}
			env.say("see %s to build, test and try it", filepath.Join(dir, "README.md"))
			return nil
		},
	}
}

func newPluginsBench() *command {
	var variables cli.StringSlice
	each := 2 * time.Second
	return &command{
		name: "bench", group: groupPlugins, usage: "measure how fast a plugin is", arguments: "PLUGIN", minArgs: 1,
		maxArgs: 1,
		description: "Sends sample texts (20 to 280 bytes, mixed) through the host, one call after the other. Shows texts " +
			"per second and the time of a call, by texts per call. The first calls are not counted. Needs no " +
			"database. --model names the model, --env EMBEDSIDECAR_PLUGIN_PRECISION=int8 its weights in 8 bits. Other " +
			"load on this machine affects the figures. For sizing, and for finding out whether an embedder became slower.",
		flags: []cli.Flag{
			pluginVariables(&variables),
			own.duration("each", &each, "`DURATION` how long each size is measured"),
		},
		settings: []string{config.GroupEmbedding},
		run: func(ctx context.Context, env *environment) error {
			if each <= 0 {
				return misuse("--each: expected a duration above zero")
			}
			plugin, err := env.pluginUnderTest(variables.Value())
			if err != nil {
				return err
			}
			done, err := plugin.Bench(ctx, each)
			if err != nil {
				return err
			}
			columns := []string{">texts a call", ">texts/s", ">tokens/s", ">us/text", ">p50 ms", ">p99 ms", ">calls"}
			return output.Each(env.out, done, done.Speeds, columns, func(s *conformance.Speed) []any {
				return []any{
					s.Batch, fmt.Sprintf("%.0f", s.TextsPerSecond), fmt.Sprintf("%.0f", s.TokensPerSecond),
					fmt.Sprintf("%.1f", 1e6/s.TextsPerSecond),
					fmt.Sprintf("%.2f", s.P50Milliseconds), fmt.Sprintf("%.2f", s.P99Milliseconds), s.Calls,
				}
			})
		},
	}
}
