package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/base/signals"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
)

// call runs the program with commands that are replaced by a probe.
func call(t *testing.T, probe func(ctx context.Context, env *environment) error, environ []string,
	args ...string,
) (code int, stdout, stderr string) {
	t.Helper()
	var out, errOut bytes.Buffer
	p := &program{
		commands: commands(), stdin: strings.NewReader(""), stdout: &out, stderr: &errOut, environ: environ,
		hostname: "host", executable: "/nowhere/bin/embedsidecar",
	}
	if probe != nil {
		for _, c := range leaves(p.commands) {
			c.run = probe
		}
	}
	code = p.run(t.Context(), append([]string{"embedsidecar"}, args...))
	return code, out.String(), errOut.String()
}

// Every flag of every command is accepted before the command, after it, and behind arguments. Exclusive flags and the
// names of a flag are tried in turn.
func TestFlags_MayStandAnywhere(t *testing.T) {
	turns := [][]string{
		{"into-table", "database-url-file", "stream-url-file", "dry-run", "config", "no-auth"},
		{"into", "database-url", "stream-url", "yes", "config", "tokens-file"},
	}
	for _, c := range leaves(commands()) {
		var args []string
		for i := range c.minArgs {
			args = append(args, fmt.Sprint("argument", i))
		}
		for turn, left := range turns {
			var flags []string
			var arrived []func(env *environment) error
			for _, f := range c.allFlags() {
				names := f.Names()
				if slices.Contains(left, names[0]) {
					continue
				}
				value, check := sample(f)
				arrived = append(arrived, check)
				flags = append(flags, dashed(names[turn%len(names)]))
				if value != "" {
					flags = append(flags, value)
				}
			}
			for where, line := range map[string][]string{
				"before": slices.Concat(flags, strings.Fields(c.path()), args),
				"after":  slices.Concat(strings.Fields(c.path()), flags, args),
				"behind": slices.Concat(strings.Fields(c.path()), args, flags),
			} {
				ran := false
				code, _, stderr := call(t, func(_ context.Context, env *environment) error {
					ran = true
					if !slices.Equal(env.args, args) {
						t.Errorf("%q: arguments %q", line, env.args)
					}
					var errs []error
					for _, check := range arrived {
						errs = append(errs, check(env))
					}
					return errors.Join(errs...)
				}, nil, line...)
				if code != exitOK || !ran {
					t.Errorf("%s %s: %q = %d: %s", c.path(), where, line, code, stderr)
				}
			}
		}
	}
}

// sample returns a value for a flag ("" for a switch) and a check that it arrived.
func sample(f cli.Flag) (value string, arrived func(env *environment) error) {
	name := f.Names()[0]
	anything := func(*environment) error { return nil }
	for _, s := range config.Settings() {
		if s.Flag != name {
			continue
		}
		value := map[string]string{
			"database-url": "postgres://h/from-file", "stream-url": "host=h dbname=d", "database-url-file": "/dev/null",
			"stream-url-file": "/dev/null", "slot": "other", "threads": "3", "workers": "3",
			"ops-listen": ":1", "admin-listen": ":2", "http": "127.0.0.1:1",
			"log-level": "error", "log-format": "json", "log-output": "stdout",
		}[name]
		switch {
		case s.Placeholder == "DURATION":
			value = "7s"
		case s.Placeholder == "":
			return "", func(env *environment) error {
				if s.Value(env.config) != "true" {
					return fmt.Errorf("--%s did not arrive", name)
				}
				return nil
			}
		case value == "":
			value = "x"
		}
		if value == "/dev/null" {
			return "testdata/url.dsn", anything
		}
		return value, func(env *environment) error {
			if got := s.Value(env.config); got != value {
				return fmt.Errorf("--%s = %q, want %q", name, got, value)
			}
			return nil
		}
	}
	switch f.(type) {
	case *cli.BoolFlag:
		return "", anything
	case *cli.IntFlag:
		return "3", anything
	case *cli.DurationFlag:
		return "5m", anything
	}
	value, known := map[string]string{
		"output": "json", "color": "never", "pipeline": `docs: "a, b" -> v`, "set": "publication.name=Other, with comma",
		"lsn": "0/1", "kind": "query", "database": "from-file", "env": "A=b,c", "only": "order", "lang": "go",
		"table": "t", "columns": `"a, b"`, "into": "v", "into-table": "w", "index": "hnsw",
		"memory-limit": "1GiB", "call-timeout": "2m", "processes": "2", "allow-env": "A",
	}[name]
	if !known {
		value = "x"
	}
	return value, anything
}

func TestFlags_CommasAreNoSeparators(t *testing.T) {
	code, _, stderr := call(t, func(_ context.Context, env *environment) error {
		if got := config.FormatPipeline(env.config.Pipelines[0]); got != `public.docs: "a, b", c -> v` {
			return errors.New(got)
		}
		if len(env.config.Pipelines) != 2 {
			return fmt.Errorf("%d pipelines", len(env.config.Pipelines))
		}
		return nil
	}, nil, "run", "--pipeline", `docs: "a, b", c -> v`, "--pipeline=docs: x -> table w")
	if code != exitOK {
		t.Error(stderr)
	}
}

func TestFlags_OfDifferentCommandsMeanTheSame(t *testing.T) {
	kinds := map[string]string{}
	for _, c := range leaves(commands()) {
		seen := map[string]bool{}
		for _, f := range c.allFlags() {
			for _, name := range f.Names() {
				if seen[name] {
					t.Errorf("%s has --%s twice", c.path(), name)
				}
				seen[name] = true
				kind := fmt.Sprintf("%T", f)
				if other, ok := kinds[name]; ok && other != kind {
					t.Errorf("--%s is %s and %s", name, other, kind)
				}
				kinds[name] = kind
			}
		}
	}
}

func TestEnvironment_Variables(t *testing.T) {
	environ := []string{
		"EMBEDSIDECAR_SLOT=from_env", "EMBEDSIDECAR_OUTPUT=csv", "EMBEDSIDECAR_QUIET=true",
		"EMBEDSIDECAR_ONCE=1", "EMBEDSIDECAR_TIMEOUT=1h",
	}
	code, _, stderr := call(t, func(ctx context.Context, env *environment) error {
		if env.config.Slot.Name != "from_env" || env.out.Form != output.CSV || !env.quiet {
			return fmt.Errorf("%q, %q, %v", env.config.Slot.Name, env.out.Form, env.quiet)
		}
		if _, ok := ctx.Deadline(); !ok {
			return errors.New("no deadline")
		}
		return nil
	}, environ, "run")
	if code != exitOK || stderr != "" {
		t.Errorf("%d: %s", code, stderr)
	}
	code, _, stderr = call(t, func(_ context.Context, env *environment) error {
		if env.out.Form != output.YAML {
			return errors.New(string(env.out.Form))
		}
		return nil
	}, environ, "run", "-o", "yaml")
	if code != exitOK {
		t.Error(stderr)
	}
	if code, _, stderr := call(t, nil, []string{"EMBEDSIDECAR_TIMEOUT=soon"}, "version"); code != exitUsage ||
		!strings.Contains(stderr, "EMBEDSIDECAR_TIMEOUT") {
		t.Errorf("%d: %s", code, stderr)
	}
}

func TestExitCode(t *testing.T) {
	interrupted, cancel := context.WithCancelCause(t.Context())
	cancel(signals.ErrInterrupted)
	pg := func(code, message string) error {
		return fmt.Errorf("do: %w", &pgconn.PgError{Code: code, Message: message})
	}
	tests := []struct {
		ctx  context.Context //nolint:containedctx // the case under test
		err  error
		want int
	}{
		{t.Context(), nil, 0},
		{t.Context(), errors.New("x"), 1},
		{t.Context(), misuse("x"), 2},
		{t.Context(), fmt.Errorf("run: %w", &config.Error{}), 2},
		{t.Context(), &config.NotFoundError{}, 2},
		{t.Context(), &config.ParseError{}, 2},
		{t.Context(), fmt.Errorf("make ONNX: %w", &exec.ExitError{ProcessState: &os.ProcessState{}}), 1},
		{t.Context(), &refusal.ConfigError{}, 2},
		{t.Context(), &refusal.MissingError{}, 2},
		{t.Context(), &refusal.NotSetUpError{}, 3},
		{t.Context(), &refusal.PermissionError{}, 7},
		{t.Context(), &refusal.ConflictError{}, 8},
		{t.Context(), &embed.Error{Class: embed.Configuration, Err: io.EOF}, 2},
		{t.Context(), &embed.Error{Class: embed.Transient, Err: io.EOF}, 1},
		{t.Context(), &database.Error{Kind: database.Unreachable, Err: io.EOF}, 6},
		{t.Context(), &database.Error{Kind: database.Auth, Err: io.EOF}, 6},
		{t.Context(), &database.Error{Kind: database.BadURL, Err: io.EOF}, 2},
		{t.Context(), &database.Error{Kind: database.Permission, Err: io.EOF}, 7},
		{t.Context(), pg("42501", "permission denied"), 7},
		{t.Context(), pg("55006", "slot is active"), 8},
		{t.Context(), pg("53400", "all replication slots are in use"), 8},
		{t.Context(), pg("55000", "wal_level"), 2},
		{t.Context(), pg("3F000", "schema"), 3},
		{t.Context(), pg("42P01", `relation "embedsidecar.task" does not exist`), 3},
		{t.Context(), pg("42P01", `relation "docs" does not exist`), 1},
		{t.Context(), pg("08006", "gone"), 6},
		{t.Context(), pg("28P01", "password"), 6},
		{interrupted, context.Canceled, 130},
		{interrupted, errors.New("x"), 1},
	}
	for _, test := range tests {
		if got := exitCode(test.ctx, test.err); got != test.want {
			t.Errorf("exitCode(%v) = %d, want %d", test.err, got, test.want)
		}
	}
}

func TestRun_Timeout(t *testing.T) {
	code, _, stderr := call(t, func(ctx context.Context, _ *environment) error {
		<-ctx.Done()
		return fmt.Errorf("wait for the slot: %w", ctx.Err())
	}, nil, "wait", "--timeout", "1ms")
	if code != exitTimeout || !strings.Contains(stderr,
		"embedsidecar: error ES0002: wait took longer than --timeout 1ms: wait for the slot") {
		t.Errorf("%d: %s", code, stderr)
	}
}

func TestRun_Interrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	p := &program{commands: commands(), stdout: os.Stderr, stderr: io.Discard, hostname: "h", executable: "/x"}
	for _, c := range leaves(p.commands) {
		c.run = func(ctx context.Context, _ *environment) error {
			cancel(signals.ErrInterrupted)
			<-ctx.Done()
			return ctx.Err()
		}
	}
	if got := p.run(ctx, []string{"embedsidecar", "status"}); got != exitInterrupted {
		t.Errorf("status %d", got)
	}
}

func TestReport_ErrorsAsJSON(t *testing.T) {
	cause := &pgconn.PgError{Code: "42501", Message: "permission denied for table docs"}
	_, _, stderr := call(t, func(context.Context, *environment) error {
		return problem.New(problem.Permission, fmt.Errorf("read postgres://u:s3cret@h/db: %w", cause),
			"GRANT SELECT ON docs TO u;")
	}, nil, "status", "-o", "json")
	var got map[string]map[string]any
	if err := json.Unmarshal([]byte(stderr), &got); err != nil {
		t.Fatal(err, stderr)
	}
	entry := code.Of(code.Permission)
	want := map[string]map[string]any{"error": {
		"code": "ES0501", "title": entry.Title, "cause": entry.Cause, "fix": entry.Fix, "docs": entry.Docs,
		"message": "read postgres://u:xxxxx@h/db: : permission denied for table docs (SQLSTATE 42501)", "exit_code": 7.0,
		"sqlstate": "42501",
		"hints":    []any{"GRANT SELECT ON docs TO u;"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, line := range [][]string{{"statsu", "-o", "json"}, {"--output=json", "status", "--nope"}, {"-o=json"}} {
		if _, _, stderr := call(t, nil, nil, line...); !strings.HasPrefix(stderr, `{"error":{"code":"ES0101",`) {
			t.Errorf("%q: %s", line, stderr)
		}
	}
	if _, _, stderr := call(t, nil, []string{"EMBEDSIDECAR_OUTPUT=json"}, "statsu"); !strings.HasPrefix(stderr,
		`{"error"`) {
		t.Error(stderr)
	}
}

func TestOutput_HoldsNoPassword(t *testing.T) {
	const secret = "hunter2hunter2"
	for _, format := range []string{"text", "json"} {
		code, stdout, stderr := call(t, func(ctx context.Context, env *environment) error {
			env.log.ErrorContext(ctx, "cannot connect", "url", env.config.Database.URL, "error",
				fmt.Errorf("password %q refused", secret),
				"list", []string{secret}, "took", time.Second, "config", env.config.Database, "stringer", stringer(secret))
			env.log.With("dsn", env.config.Database.URL).WithGroup("g").InfoContext(ctx, "x", "y", secret)
			env.say("connected to %s", env.config.Database.URL)
			return fmt.Errorf("connect to %s: %s", env.config.Database.URL, secret)
		}, []string{"EMBEDSIDECAR_DATABASE_URL=postgres://u:" + secret + "@h/db"}, "status", "--log-format", format, "-v")
		if code != exitInternal || strings.Contains(stdout+stderr, secret) || !strings.Contains(stderr, "cannot connect") ||
			!strings.Contains(stderr, "took") {
			t.Errorf("%d: %s%s", code, stdout, stderr)
		}
	}
	_, _, stderr := call(t, func(context.Context, *environment) error { return nil }, nil, "status", "--database-url",
		"postgres://u:"+secret+"@h/db")
	if !strings.Contains(stderr, "--database-url holds a password") || strings.Contains(stderr, secret) {
		t.Error(stderr)
	}
}

// A container's log is its stdout. A command run in it by exec, with the same variables, writes only its data there.
func TestLogOutput_IsThatOfRunAndServe(t *testing.T) {
	for command, daemon := range map[string]bool{"run": true, "serve": true, "status": false, "check": false} {
		for output, want := range map[string]bool{"stdout": daemon, "stderr": false} {
			_, stdout, stderr := call(t, func(ctx context.Context, env *environment) error {
				env.log.WarnContext(ctx, "said once")
				return nil
			}, []string{"EMBEDSIDECAR_LOG_OUTPUT=" + output}, command)
			if got := strings.Contains(stdout, `"msg":"said once"`); got != want ||
				strings.Contains(stderr, `"msg":"said once"`) == got {
				t.Errorf("%s logs to %s:\nstdout: %s\nstderr: %s", command, output, stdout, stderr)
			}
		}
	}
}

type stringer string

func (s stringer) String() string { return string(s) }

func FuzzApart(f *testing.F) {
	f.Add("run --slot x -- -y")
	f.Add("-o json status - --")
	f.Add("--slot")
	f.Add("--=x -= ---")
	f.Add("-- -0")
	flags := knownFlags(leaves(commands()))
	f.Fuzz(func(t *testing.T, text string) {
		args := strings.Fields(text)
		l, err := apart(args, flags)
		if err != nil {
			if exitCode(t.Context(), err) != exitUsage {
				t.Fatal(err)
			}
			return
		}
		var ordered []string
		for _, f := range l.flags {
			ordered = append(ordered, dashed(f.name)+"="+f.value)
		}
		again, err := apart(slices.Concat(ordered, []string{"--"}, l.words), flags)
		if err != nil || !slices.Equal(again.flags, l.flags) || !slices.Equal(again.words, l.words) {
			t.Fatalf("%q: %+v, then %+v, %v", args, l, again, err)
		}
	})
}
