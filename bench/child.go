package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/testenv"
)

const timeout = 2 * time.Minute // for steps that usually take seconds

// child is a program that runs until it is stopped. It always ends with this process.
type child struct {
	*testenv.Process

	name, log string
}

// start starts a program whose output goes to a log file.
func (p *place) start(environ []string, program string, args ...string) *child {
	c := &child{name: filepath.Base(program)}
	defer during("start %s", c.name)
	c.log = filepath.Join(p.dir, fmt.Sprintf("%02d-%s.log", len(p.children)+1, c.name))
	f := must(os.Create(c.log))
	defer func() { _ = f.Close() }()      // the child has its own copy
	cmd := exec.Command(program, args...) //nolint:noctx // stop ends it
	cmd.Env, cmd.Stderr, cmd.Stdout = environ, f, f
	c.Process = must(testenv.StartProcess(cmd))
	p.children = append(p.children, c)
	return c
}

// stop ends it with a signal, and kills it after a timeout.
func (c *child) stop(sig syscall.Signal) {
	const gracePeriod = 30 * time.Second
	if err := c.Signal(sig); !errors.Is(err, os.ErrProcessDone) {
		check(wrap.Errorf(err, "stop %s", c.name))
	}
	select {
	case <-c.Done:
	case <-time.After(gracePeriod):
		_ = c.Signal(syscall.SIGKILL)
		<-c.Done
		check(c.failed("it did not end within %s of being told to and was killed", gracePeriod))
	}
}

// failed returns an error with the end of its log.
func (c *child) failed(format string, args ...any) error {
	const most = 2000
	b, err := os.ReadFile(c.log)
	if err != nil {
		b = []byte(err.Error())
	}
	return fmt.Errorf("%s: %w: %s", c.name, fmt.Errorf(format, args...), strings.TrimSpace(string(b[max(0, len(b)-most):])))
}

// until polls until a query returns true, and returns that time. It polls every few milliseconds, or less often as
// given, to leave CPU time to the measured programs. A missing table counts as not yet.
func (c *child) until(ctx context.Context, pool *pgxpool.Pool, every time.Duration, sql string, args ...any) time.Time {
	if _, told := ctx.Deadline(); !told {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	for {
		var yes bool
		err := pool.QueryRow(ctx, sql, args...).Scan(&yes)
		now := time.Now()
		var pg *pgconn.PgError
		if errors.As(err, &pg) && (pg.Code == pgerrcode.UndefinedTable || pg.Code == pgerrcode.InvalidSchemaName) {
			err = nil
		}
		if yes && err == nil {
			return now
		}
		select {
		case <-c.Done:
			check(c.failed("it ended by itself"))
		default:
		}
		if err == nil {
			err = pause(ctx, every)
		}
		if err != nil {
			check(c.failed("wait until %s: %w", sql, err))
		}
	}
}

// output runs a program to its end and returns what it printed.
func output(ctx context.Context, environ []string, program string, args ...string) string {
	defer during("%s", filepath.Base(program))
	cmd := exec.CommandContext(ctx, program, args...)
	var out, errs strings.Builder
	cmd.Env, cmd.Stdout, cmd.Stderr = environ, &out, &errs
	p := must(testenv.StartProcess(cmd))
	if <-p.Done; p.ExitCode() != 0 {
		check(fmt.Errorf("status %d: %s", p.ExitCode(), strings.TrimSpace(errs.String())))
	}
	return out.String()
}
