package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/logging"
	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/manage/verbs"
	"github.com/embedsidecar/embedsidecar/internal/named/embedders"
	"github.com/embedsidecar/embedsidecar/internal/setup/connection"
	"github.com/embedsidecar/embedsidecar/internal/setup/tenants"
)

// environment is everything that a command uses of its surroundings. Data goes to stdout, everything else to stderr.
// The log of run and serve, which have no data, goes where log.output says.
type environment struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	environ        []string
	hostname       string
	args           []string // the command's arguments, without flags
	behind         int      // how many of them, at the end, followed "--"
	config         *config.Config
	find           config.Finder
	log            *slog.Logger
	redact         *config.Redactor
	reread         func() (*config.Config, error) // reads the configuration again
	out            *output.Printer                // prints the data
	quiet          bool
	yes            bool
	dryRun         bool
	lookOnce       bool     // --timeout 0: commands that wait check once
	warned         []string // warnings of a set-up that were printed
}

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
	if daemon && cfg.Log.Output == "stdout" { // the stdout of other commands is for data
		out = p.stdout
	}
	o := logging.Options{
		Format: cfg.Log.Format, Level: level, Terminal: output.IsTerminal(out), Redact: p.redact.Text,
		Words: database.Words,
	}
	if daemon {
		o.Patience = time.Second
	}
	env.log = logging.New(out, o)
	return env, errors.Join(problems...)
}

// say prints a message, which is no data, to stderr.
func (e *environment) say(format string, args ...any) {
	if !e.quiet {
		_, _ = fmt.Fprintln(e.stderr, wording.Printable(e.redact.Text(fmt.Sprintf(format, args...))))
	}
}

// printf writes data in the form for people. It removes control characters on a terminal. The caller returns the error.
func (e *environment) printf(format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	if output.IsTerminal(e.stdout) {
		text = wording.Printable(text)
	}
	_, err := io.WriteString(e.stdout, text)
	return err
}

// onlyDatabase refuses a database other than the configured one.
func (e *environment) onlyDatabase(chosen []string) error {
	dsn, err := config.ParseDSN(e.config.Database.URL)
	if err == nil && slices.Equal(chosen, []string{dsn.Database}) {
		return nil
	}
	return problem.New(problem.Usage, fmt.Errorf("--database %s: one database is configured", strings.Join(chosen, ", ")),
		"--database-url names it; several are named by databases in the file, or by --database-url given more than once")
}

// meantDatabases returns the chosen databases, or all. failed says why some may be missing.
func (e *environment) meantDatabases(ctx context.Context, chosen []string, all bool,
) (list []tenants.Tenant, failed, err error) {
	finder := tenants.Finder{Config: e.config, Log: e.log}
	defer finder.Close()
	found := finder.Find(ctx)
	switch {
	case len(chosen) == 0 && !all:
		_, err := found.Choose("")
		return nil, nil, problem.New(problem.Usage, errors.New("several databases are configured: choose one with --database NAME"),
			problem.Hints(err)...)
	case len(chosen) == 0 && len(found.List) == 0 && found.Failed != nil:
		return nil, nil, found.Failed
	case len(chosen) == 0:
		return found.List, found.Failed, found.Nothing()
	}
	for _, name := range chosen {
		some, err := found.Choose(name)
		if err != nil {
			return nil, nil, err
		}
		list = lists.Add(list, some...)
	}
	return list, nil, nil
}

// of returns the environment for one of several databases.
func (e *environment) of(ctx context.Context, t tenants.Tenant) (*environment, error) {
	one := *e
	var err error
	if one.config, err = tenants.Settle(ctx, e.config, t, e.log); err != nil {
		return nil, err
	}
	one.config.Tenant = t.Name
	one.log = e.log.With("database", t.Name)
	return &one, nil
}

// onto returns an environment that prints to another writer.
func (e *environment) onto(to io.Writer) *environment {
	other, out := *e, *e.out
	out.To = to
	other.out, other.stdout = &out, to
	return &other
}

// eachOf runs something for one database after another. An error does not stop the others.
func (e *environment) eachOf(ctx context.Context, list []tenants.Tenant,
	run func(context.Context, *environment) error,
) error {
	var answers []*answer
	var failed []error
	for _, t := range list {
		a := &answer{database: t.Name}
		one, err := e.of(ctx, t)
		if err == nil {
			err = run(ctx, one.onto(&a.data))
		}
		if a.err = err; err != nil {
			failed = append(failed, fmt.Errorf("database %s: %w", t.Name, err))
		}
		answers = append(answers, a)
		if e.out.ForPeople() {
			if err := e.printf("database %s\n%s\n", t.Name, a.text(e.redact.Text)); err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(append(failed, showAll(e.out, answers, e.redact.Text))...)
}

// embedders returns where plugins and models are found.
func (e *environment) embedders() embedders.Source {
	return embedders.Source{Config: e.config, Find: e.find, Log: e.log, Redact: e.redact.Text}
}

// connect opens a pool for a command that ends by itself. It tries once. The caller closes the pool.
func (e *environment) connect(ctx context.Context) (*pgxpool.Pool, error) {
	return connection.Opener{Config: e.config, Log: e.log}.Pool(ctx, connection.Few)
}

// connected calls do with a pool, and closes the pool.
func (e *environment) connected(ctx context.Context, do func(pool *pgxpool.Pool) error) error {
	pool, err := e.connect(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	return database.NameHolders(ctx, pool, do(pool))
}

// withPool returns a command's run function that gets a pool.
func withPool(run func(ctx context.Context, env *environment, pool *pgxpool.Pool) error,
) func(context.Context, *environment) error {
	return func(ctx context.Context, env *environment) error {
		return env.connected(ctx, func(pool *pgxpool.Pool) error { return run(ctx, env, pool) })
	}
}

// actor connects and returns an actor on the pipelines of the database. The caller calls done.
func (e *environment) actor(ctx context.Context) (a *verbs.Actor, done func(), err error) {
	pool, err := e.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	return verbs.New(pool, verbs.Person()), pool.Close, nil
}

// answer is the output of a command for one of several databases.
type answer struct {
	database string
	data     bytes.Buffer
	err      error
}

// text is the answer for people.
func (a *answer) text(redact func(string) string) string {
	text := strings.TrimRight(a.data.String(), "\n")
	if a.err != nil {
		text = strings.TrimLeft(text+"\n! "+redact(a.err.Error()), "\n")
	}
	return text + "\n"
}

// showAll writes all answers as one document, in the forms that programs read.
func showAll(out *output.Printer, answers []*answer, redact func(string) string) error {
	switch out.Form {
	case output.JSON, output.YAML:
		list := lists.Map(answers, func(a *answer) map[string]any { return a.document(redact) })
		return out.Show(map[string]any{"databases": list}, nil)
	case output.CSV:
		return showCSV(out.To, answers)
	case output.Text: // each was printed when it came
	}
	return nil
}

// document returns the answer with the name of its database.
func (a *answer) document(redact func(string) string) map[string]any {
	body := a.data.Bytes()
	var found any
	if json.Unmarshal(body, &found) != nil && yaml.Unmarshal(body, &found) != nil {
		found = strings.TrimSpace(string(body))
	}
	doc, is := found.(map[string]any)
	if !is {
		doc = map[string]any{}
		if found != nil {
			doc["answer"] = found
		}
	}
	doc["database"] = a.database
	if a.err != nil {
		doc["error"] = redact(a.err.Error())
	}
	return doc
}

// showCSV writes one table whose first column is the database.
func showCSV(to io.Writer, answers []*answer) error {
	w := csv.NewWriter(to)
	headed := false
	for _, a := range answers {
		rows, err := csv.NewReader(&a.data).ReadAll()
		if err != nil || len(rows) == 0 {
			continue
		}
		if !headed {
			headed = true
			if err := w.Write(append([]string{"database"}, rows[0]...)); err != nil {
				return err
			}
		}
		for _, row := range rows[1:] {
			if err := w.Write(append([]string{a.database}, row...)); err != nil {
				return err
			}
		}
	}
	w.Flush()
	return w.Error()
}
