package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/problem"
)

// program is one call of the program: its commands and the world around it.
type program struct {
	commands       []*command
	stdin          io.Reader
	stdout, stderr io.Writer
	environ        []string
	hostname       string
	pid            int
	executable     string

	line   line             // the command line
	redact *config.Redactor // knows no password until the configuration is read
	json   bool             // errors are printed as JSON
}

// run reads the command line, runs the command and reports its error.
func (p *program) run(ctx context.Context, args []string) int {
	err := p.dispatch(ctx, args[min(1, len(args)):])
	if err == nil {
		return exitOK
	}
	code := exitCode(ctx, err)
	if code == exitInterrupted {
		err = fail(code, errInterrupted)
	}
	complain(p.stderr, p.json, p.redact, code, err)
	return code
}

func (p *program) dispatch(ctx context.Context, args []string) error {
	l, err := apart(args, arity(leaves(p.commands)))
	p.json = cmp.Or(l.last("output", "o"), p.variable("output")) == "json" // also for what goes wrong before it is read
	if err != nil {
		return err
	}
	found, rest := p.root().lookup(l.words)
	switch {
	case len(l.words) > 0 && l.words[0] == "help":
		return p.help(l.words[1:])
	case l.has("help", "h"), len(args) == 0:
		if len(found.members) == 0 {
			rest = nil
		}
		return p.helpOf(found, rest)
	case len(l.words) == 0 && l.has("version"):
		l.words = []string{"version"}
		l.flags = slices.DeleteFunc(l.flags, func(f flagValue) bool { return f.name == "version" })
	}
	p.line = l
	app := p.root().cli(p) //nolint:contextcheck // actions have it in cli.Context
	return (&cli.App{
		Name: "embedsidecar", Commands: app.Subcommands, Action: app.Action, SkipFlagParsing: true,
		HideVersion:    true,                         // its flag would take -v
		HideHelp:       true,                         // ours was printed above
		ExitErrHandler: func(*cli.Context, error) {}, // run reports and returns the status
		// A text or a pipeline may hold a comma.
		DisableSliceFlagSeparator: true,
	}).RunContext(ctx, append([]string{"embedsidecar"}, l.words...))
}

// root is the program as the family of its commands.
func (p *program) root() *command { return &command{members: p.commands} }

// variable returns the environment variable that stands for a flag.
func (p *program) variable(flag string) string {
	value := ""
	for _, entry := range p.environ {
		if v, ok := strings.CutPrefix(entry, config.EnvName(flag)+"="); ok {
			value = v
		}
	}
	return value
}

// execute merges the settings and runs a command.
func (p *program) execute(cc *cli.Context, c *command) error {
	if err := p.line.set(cc, c, leaves(p.commands)); err != nil {
		return err
	}
	if err := c.countArgs(cc.Args().Slice()); err != nil {
		return err
	}
	given := map[string][]string{}
	var others []string
	settings := map[string]bool{"plugin-env": true, "config": true}
	for _, s := range config.Settings() {
		settings[s.Flag] = true
	}
	for _, name := range config.PipelineFlags() {
		settings[name] = true
	}
	for _, other := range leaves(p.commands) {
		for _, f := range other.allFlags() {
			if !settings[f.Names()[0]] {
				others = append(others, f.Names()[0])
			}
		}
	}
	for _, f := range c.allFlags() {
		name := f.Names()[0]
		if settings[name] {
			if cc.IsSet(name) {
				given[name] = values(cc, f)
			}
		} else if value := p.variable(name); value != "" && !cc.IsSet(name) {
			if err := cc.Set(name, value); err != nil {
				return misuse("%s: %q is no valid value", config.EnvName(name), value)
			}
		}
	}
	cfg, warnings, err := config.Load(config.Source{Flags: given, Environ: p.environ, OtherFlags: append(others, "version",
		"help"), Hostname: p.hostname, PID: p.pid})
	p.redact = cfg.Redactor()
	if c.probe {
		err = nil
	}
	env, envErr := p.environment(cc, cfg, c.daemon)
	if err := errors.Join(envErr, err); err != nil {
		return err
	}
	for _, warning := range warnings {
		env.log.WarnContext(cc.Context, "questionable setting", "warning", warning)
	}
	ctx := cc.Context
	if limit := cc.Duration("timeout"); limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, errTimedOut)
		defer cancel()
	}
	if err := c.run(ctx, env); err != nil {
		if errors.Is(context.Cause(ctx), errTimedOut) && (errors.Is(err, context.DeadlineExceeded) ||
			errors.Is(err, errTimedOut)) {
			return fail(exitTimeout, fmt.Errorf("%s took longer than --timeout %s: %w", c.path(), cc.Duration("timeout"), err),
				problem.Hints(err)...)
		}
		return err
	}
	return nil
}

// values returns what was given for a flag, as text.
func values(cc *cli.Context, f cli.Flag) []string {
	name := f.Names()[0]
	switch f.(type) {
	case *cli.StringSliceFlag:
		return cc.StringSlice(name)
	case *cli.BoolFlag:
		return []string{strconv.FormatBool(cc.Bool(name))}
	default:
		return []string{cc.String(name)}
	}
}

// environment makes what commands see of the world.
func (p *program) environment(cc *cli.Context, cfg *config.Config, daemon bool) (*environment, error) {
	env := &environment{
		stdin: p.stdin, stdout: p.stdout, stderr: p.stderr, args: cc.Args().Slice(), config: cfg,
		find: config.NewFinder(p.executable, p.environ), redact: p.redact,
		output: "table", quiet: cc.Bool("quiet"), yes: cc.Bool("yes"), dryRun: cc.Bool("dry-run"),
		environ: p.environ,
	}
	var problems []error
	if form := cc.String("output"); form != "" {
		env.output = form
		if !slices.Contains([]string{"table", "json", "yaml", "csv"}, form) {
			problems = append(problems, misuse("--output: expected table, json, yaml or csv, not %q", form))
		}
	}
	p.json = env.output == "json"
	color := cc.String("color")
	if color != "" && !slices.Contains([]string{"auto", "always", "never"}, color) {
		problems = append(problems, misuse("--color: expected auto, always or never, not %q", color))
	}
	env.color = useColor(color, p.environ, isTerminal(p.stdout))
	if cc.Duration("timeout") < 0 {
		problems = append(problems, misuse("--timeout: expected a duration that is not negative"))
	}
	if env.yes && env.dryRun {
		problems = append(problems, misuse("--yes and --dry-run exclude each other"))
	}
	level := cfg.Log.Level
	switch {
	case cc.Bool("verbose"):
		level = slog.LevelDebug
	case (env.quiet || !daemon) && cfg.Origin("log.level") == "default":
		level = slog.LevelWarn
	}
	out := p.stderr
	if daemon && cfg.Log.Output == "stdout" { // what other commands write to stdout is what they were asked for
		out = p.stdout
	}
	env.log = newLogger(out, cfg.Log.Format, level, isTerminal(out), p.redact)
	return env, errors.Join(problems...)
}

// useColor decides by flag, then by the customs of NO_COLOR and TERM, then by where the output goes.
func useColor(flag string, environ []string, terminal bool) bool {
	vars := map[string]string{}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		vars[name] = value
	}
	switch {
	case flag == "always":
		return true
	case flag == "never", vars["NO_COLOR"] != "", vars["TERM"] == "dumb":
		return false
	}
	return terminal
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
