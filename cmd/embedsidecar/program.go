package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/app/child"
	"github.com/embedsidecar/embedsidecar/internal/base/signals"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
)

// program is one call of the program: its commands and its surroundings.
type program struct {
	commands       []*command
	stdin          io.Reader
	stdout, stderr io.Writer
	environ        []string
	hostname       string
	pid            int
	executable     string

	flags  map[string]*known // of all commands
	line   line              // the command line
	helps  bool              // the user asks for help, by a word or a flag
	redact *config.Redactor  // has no passwords until the configuration is read
	json   bool              // errors are printed as JSON
}

// run reads the command line, runs the command and reports its error.
func (p *program) run(ctx context.Context, args []string) int {
	err := p.dispatch(ctx, args[min(1, len(args)):])
	if err == nil {
		return exitOK
	}
	code := exitCode(ctx, err)
	if other, ok := errors.AsType[*child.EndedError](err); ok {
		if err = other.Also; err == nil {
			return code
		}
	}
	if code == exitInterrupted {
		err = signals.ErrInterrupted
	}
	complain(p.stderr, p.json, p.redact, code, err)
	return code
}

func (p *program) dispatch(ctx context.Context, args []string) (err error) {
	if len(args) > 0 && args[0] == completeWord {
		return p.complete(args[1:])
	}
	p.flags = knownFlags(leaves(p.commands))
	p.line, err = apart(args, p.flags)
	p.json = cmp.Or(p.line.last("output", "o"), p.variable("output")) == "json" // also for errors before the flags are parsed
	if err != nil {
		return err
	}
	words := p.line.words
	switch {
	case p.line.asksForHelp():
		p.helps, words = true, words[1:]
		if slices.Equal(words, []string{"help"}) {
			words = nil
		}
	case p.line.has("help", "h"), len(args) == 0:
		p.helps = true
	case len(words) == 0 && p.line.has("version"):
		words = []string{"version"}
		p.line.flags = slices.DeleteFunc(p.line.flags, func(f flagValue) bool { return f.name == "version" })
	}
	root := (&command{members: p.commands}).cli(p) //nolint:contextcheck // actions have it in cli.Context
	return (&cli.App{
		Name: "embedsidecar", Commands: root.Subcommands, Action: root.Action, SkipFlagParsing: true,
		HideVersion:    true,                         // its flag would take -v
		HideHelp:       true,                         // chosen prints our own
		ExitErrHandler: func(*cli.Context, error) {}, // run reports and returns the status
		// A text or a pipeline may hold a comma.
		DisableSliceFlagSeparator: true,
	}).RunContext(ctx, append([]string{"embedsidecar"}, words...))
}

// chosen executes the command that the words of the line name, or prints help.
func (p *program) chosen(cc *cli.Context, c *command) error {
	rest, chooses := cc.Args().Slice(), len(c.members) > 0
	switch {
	case p.line.asksForHelp() && (len(rest) > 1 || len(rest) == 1 && !chooses):
		return misuse("help takes one command, not %d", len(p.line.words)-1)
	case p.helps && c.name == "" && len(rest) == 1 && slices.ContainsFunc([]byte(rest[0]), isDigit):
		return explainCode(p.stdout, p.json, rest[0])
	case chooses && (len(rest) > 0 || !p.helps):
		return c.choose(rest)
	case p.helps:
		_, err := io.WriteString(p.stdout, c.help())
		return err
	}
	return p.execute(cc, c)
}

// variable returns the value of a flag's environment variable.
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
	if err := p.line.set(cc, c, p.flags); err != nil {
		return err
	}
	if err := c.countArgs(cc.Args().Slice()); err != nil {
		return err
	}
	given := map[string][]string{}
	for _, f := range c.allFlags() {
		name := f.Names()[0]
		value := p.variable(name)
		switch {
		case cc.IsSet(name):
			given[name] = values(cc, name)
		case isSetting(f) || value == "":
		case cc.Set(name, value) != nil:
			return misuse("%s: %q is no valid value", config.EnvName(name), value)
		}
	}
	if c.stand != nil {
		c.stand(cc.Args().Slice(), given)
	}
	others := []string{"version", "help"}
	for name, k := range p.flags {
		if k.flag != nil && k.flag.Names()[0] == name && !isSetting(k.flag) {
			others = append(others, name)
		}
	}
	source := config.Source{
		Flags: given, Environ: p.environ, OtherFlags: others, Hostname: p.hostname, PID: p.pid,
		Folder: config.NewFinder(p.executable, p.environ).Model,
	}
	cfg, warnings, err := config.Load(source)
	p.redact = cfg.Redactor()
	if c.probe {
		err = nil
	}
	env, envErr := p.environment(cc, cfg, c.daemon)
	env.reread = func() (*config.Config, error) {
		next, more, err := config.Reload(source, cfg.File())
		if next != nil {
			p.redact.Learn(next.Redactor())
		}
		warn(cc.Context, env.log, slices.DeleteFunc(more, func(w string) bool { return slices.Contains(warnings, w) }))
		return next, err
	}
	if c.daemon {
		limitMemory(memlimit.FromCgroup, env.log)
	}
	if err := errors.Join(envErr, err); err != nil {
		return err
	}
	warn(cc.Context, env.log, warnings)
	ctx := cc.Context
	if limit := cc.Duration("timeout"); limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, errTimedOut)
		defer cancel()
	}
	err = p.perDatabase(ctx, cc, env, c)
	if c.endless && exitCode(ctx, err) == exitInterrupted {
		return nil
	}
	if err != nil {
		if errors.Is(context.Cause(ctx), errTimedOut) && (errors.Is(err, context.DeadlineExceeded) ||
			errors.Is(err, errTimedOut)) {
			return problem.New(problem.Timeout,
				fmt.Errorf("%s took longer than --timeout %s: %w", c.path(), cc.Duration("timeout"), err),
				problem.Hints(err)...)
		}
		return err
	}
	return nil
}

// warn logs questionable settings.
func warn(ctx context.Context, log *slog.Logger, warnings []string) {
	for _, warning := range warnings {
		log.WarnContext(ctx, "questionable setting", "warning", warning)
	}
}

// values returns the values given for a flag, as text.
func values(cc *cli.Context, name string) []string {
	if list := cc.StringSlice(name); list != nil {
		return list
	}
	return []string{fmt.Sprint(cc.Value(name))}
}

// perDatabase runs a command for each chosen database.
func (p *program) perDatabase(ctx context.Context, cc *cli.Context, env *environment, c *command) error {
	chosen := cc.StringSlice("database")
	if !env.config.Several() {
		if len(chosen) > 0 && c.asksDatabase() {
			if err := env.onlyDatabase(chosen); err != nil {
				return err
			}
		}
		return c.run(ctx, env)
	}
	if !c.asksDatabase() || c.reach == allDatabases && len(chosen) == 0 {
		return c.run(ctx, env)
	}
	endless := cc.Bool("watch") || cc.Bool("lines") // or very long
	list, failed, err := env.meantDatabases(ctx, chosen, c.reach == eachDatabase && !endless)
	if err != nil {
		return err
	}
	if len(list) == 1 && len(chosen) > 0 {
		one, err := env.of(ctx, list[0])
		if err != nil {
			return err
		}
		return c.run(ctx, one)
	}
	if endless || c.daemon {
		return misuse("%s works on one database, but %d match: --database NAME", c.path(), len(list))
	}
	return errors.Join(env.eachOf(ctx, list, c.run), failed)
}

const (
	// memoryShare is the share of the control group's memory that Go's memory limit gets. The rest is for plugins in the
	// same group, and for memory that Go does not count.
	memoryShare = 0.7
	// leastMemory is the minimum limit: with less, Go would only collect garbage.
	leastMemory = 40 << 20
)

// limitMemory sets Go's memory limit below the limit of the control group. It does not override GOMEMLIMIT.
func limitMemory(group memlimit.Provider, log *slog.Logger) {
	limit, err := memlimit.Set(memlimit.WithProvider(group), memlimit.WithRatio(memoryShare),
		memlimit.WithMin(leastMemory))
	log.Debug("limit of memory", "bytes", limit, "error", err) // there is no limit without control groups
}
