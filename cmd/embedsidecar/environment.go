package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/base/logging"
	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/config"
)

// environment is all that a command sees of the world. Data goes to stdout, everything else to stderr
// (but the log of run and serve, which have no data, where log.output says).
type environment struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	environ        []string
	hostname       string
	args           []string // the command's arguments, without flags
	behind         int      // how many of them, the last ones, stood behind "--"
	config         *config.Config
	find           config.Finder
	log            *slog.Logger
	redact         *config.Redactor
	reread         func() (*config.Config, error) // reads the configuration as it is written down now
	out            *output.Printer                // of what was asked for
	quiet          bool
	yes            bool
	dryRun         bool
	lookOnce       bool     // --timeout 0: what waits does not
	warned         []string // warnings of a set-up that were told
}

// environment makes what commands see of the world.
func (p *program) environment(cc *cli.Context, cfg *config.Config, daemon bool) (*environment, error) {
	env := &environment{
		stdin: p.stdin, stdout: p.stdout, stderr: p.stderr, config: cfg,
		args: cc.Args().Slice(), behind: min(p.line.behind, cc.NArg()),
		find: config.NewFinder(p.executable, p.environ), redact: p.redact,
		out: &output.Printer{To: p.stdout, Form: output.Text}, environ: p.environ, hostname: p.hostname,
		quiet: cc.Bool("quiet"), yes: cc.Bool("yes"), dryRun: cc.Bool("dry-run"),
		lookOnce: cc.IsSet("timeout") && cc.Duration("timeout") == 0,
	}
	var problems []error
	if form := cc.String("output"); form != "" {
		env.out.Form = output.Form(form)
		if !slices.Contains(output.Forms, form) {
			problems = append(problems, misuse("--output: expected table, json, yaml or csv, not %q", form))
		}
	}
	p.json = env.out.Form == output.JSON
	color := cc.String("color")
	if color != "" && !slices.Contains([]string{"auto", "always", "never"}, color) {
		problems = append(problems, misuse("--color: expected auto, always or never, not %q", color))
	}
	env.out.Color = output.UseColor(color, p.environ, output.IsTerminal(p.stdout))
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
	env.log = logging.New(out, logging.Options{
		Format: cfg.Log.Format, Level: level, Terminal: output.IsTerminal(out), Redact: p.redact.Text,
	})
	return env, errors.Join(problems...)
}

// say tells a person something that is no data.
func (e *environment) say(format string, args ...any) {
	if !e.quiet {
		_, _ = fmt.Fprintln(e.stderr, wording.Printable(e.redact.Text(fmt.Sprintf(format, args...))))
	}
}

// printf writes data that is for people only, and for a terminal nothing that it obeys. An error of standard output is
// the caller's to return.
func (e *environment) printf(format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	if output.IsTerminal(e.stdout) {
		text = wording.Printable(text)
	}
	_, err := io.WriteString(e.stdout, text)
	return err
}
