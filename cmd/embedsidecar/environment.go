package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/wording"
)

// environment is all that a command sees of the world. Data goes to stdout, everything else to stderr
// (but the log of run and serve, which have no data, where log.output says).
type environment struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	environ        []string
	args           []string // the command's arguments, without flags
	behind         int      // how many of them, the last ones, stood behind "--"
	config         *config.Config
	find           config.Finder
	log            *slog.Logger
	redact         *config.Redactor
	output         string // table, json, yaml or csv
	compact        bool   // JSON in one line: for long lists of numbers
	color          bool
	quiet          bool
	yes            bool
	dryRun         bool
	warned         []string // warnings of a set-up that were told
}

// environment makes what commands see of the world.
func (p *program) environment(cc *cli.Context, cfg *config.Config, daemon bool) (*environment, error) {
	env := &environment{
		stdin: p.stdin, stdout: p.stdout, stderr: p.stderr, config: cfg,
		args: cc.Args().Slice(), behind: min(p.line.behind, cc.NArg()),
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

// listing is a table: its heading and its rows. Cells are printed with fmt.
type listing struct {
	header []string
	rows   [][]any
	right  []int // columns (from 0) that hold numbers
}

// show prints data in the form the user asked for: value as JSON or YAML, rows as table or CSV.
func (e *environment) show(value any, rows func() listing) error {
	switch e.output {
	case "json":
		encoder := json.NewEncoder(e.stdout)
		if !e.compact {
			encoder.SetIndent("", "  ")
		}
		encoder.SetEscapeHTML(false)
		return encoder.Encode(value)
	case "yaml":
		body, err := yaml.MarshalWithOptions(value, yaml.UseJSONMarshaler(), yaml.IndentSequence(true))
		if err != nil {
			return fmt.Errorf("print as YAML: %w", err)
		}
		_, err = e.stdout.Write(body)
		return err
	}
	return e.list(rows())
}

// list prints rows as a table, or as CSV when asked for.
func (e *environment) list(l listing) error {
	w := table.NewWriter()
	w.SetStyle(style(e.color))
	header := make(table.Row, len(l.header))
	for i, h := range l.header {
		header[i] = h
	}
	var columns []table.ColumnConfig
	for _, i := range l.right {
		columns = append(columns, table.ColumnConfig{Number: i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	w.SetColumnConfigs(columns)
	w.AppendHeader(header)
	for _, row := range l.rows {
		cells := make(table.Row, len(row))
		for i, cell := range row {
			cells[i] = wording.OneLine(fmt.Sprint(cell))
		}
		w.AppendRow(cells)
	}
	rendered := w.Render
	if e.output == "csv" {
		rendered = w.RenderCSV
	}
	// Spaces that fill up the last column only get in the way of whoever copies the table.
	var b strings.Builder
	for line := range strings.SplitSeq(rendered(), "\n") {
		b.WriteString(strings.TrimRight(line, " "))
		b.WriteByte('\n')
	}
	_, err := io.WriteString(e.stdout, b.String())
	return err
}

// style is a table without a frame: two spaces between columns.
func style(color bool) table.Style {
	s := table.StyleDefault
	s.Options = table.OptionsNoBordersAndSeparators
	s.Box.PaddingLeft, s.Box.PaddingRight = "", "  "
	s.Format.Header = text.FormatUpper
	if color {
		s.Color.Header = text.Colors{text.Bold}
	}
	return s
}

// say tells a person something that is no data.
func (e *environment) say(format string, args ...any) {
	if !e.quiet {
		_, _ = fmt.Fprintln(e.stderr, e.redact.Text(fmt.Sprintf(format, args...)))
	}
}

// printf writes data that is for people only. An error of standard output is the caller's to return.
func (e *environment) printf(format string, args ...any) error {
	_, err := fmt.Fprintf(e.stdout, format, args...)
	return err
}
