package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/health"
	"github.com/embedsidecar/embedsidecar/internal/node/actions"
	"github.com/embedsidecar/embedsidecar/internal/node/caughtup"
	"github.com/embedsidecar/embedsidecar/internal/problem"
	"github.com/embedsidecar/embedsidecar/internal/sleep"
)

// bulkCommand runs another program while pipelines are paused.
type bulkCommand struct{ drain time.Duration }

func newBulk() *command {
	c := &bulkCommand{}
	return &command{
		name: "bulk", group: groupOperate, usage: "run a bulk load while pipelines are paused",
		arguments: "[PIPELINE...] -- COMMAND [ARG...]", minArgs: 1, maxArgs: -1,
		description: "Drains the pipelines, or all of them, pauses them, runs COMMAND with this program's input and output, and resumes what it has paused, however COMMAND ends; what was paused before stays so. Ends with the status of COMMAND (128 and the number of the signal that ended it). A signal goes to COMMAND, which is waited for. What it loads is queued, and embedded afterwards, whatever vectors it brings along. Only when this program is killed (SIGKILL) does nobody resume: embedsidecar resume.",
		flags: []cli.Flag{
			&cli.DurationFlag{
				Name: "drain", Value: time.Minute, Destination: &c.drain,
				Usage: "`DURATION` how long what is queued already may take to be embedded before; then it goes on all the same, since nothing is lost. 0: not at all",
			},
		},
		settings: databaseGroups, run: c.run,
	}
}

func (c *bulkCommand) run(ctx context.Context, env *environment) error {
	if env.behind == 0 {
		return misuse("what to run is missing: it goes behind --, as in embedsidecar bulk -- psql -f load.sql")
	}
	if c.drain < 0 {
		return misuse("--drain: expected a duration that is not negative")
	}
	names, words := env.args[:len(env.args)-env.behind], env.args[len(env.args)-env.behind:]
	if _, err := exec.LookPath(words[0]); err != nil {
		return misuse("nothing was done: %w", err)
	}
	pool, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := c.drained(ctx, env, pool, names); err != nil {
		return err
	}
	b := bulk{env: env, actions: actions.New(pool, person()+" by bulk"), signals: make(chan os.Signal, 8)}
	back := takeSignals(ctx, b.signals)
	defer back()
	signal.Notify(b.signals, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(b.signals)
	err = b.pause(ctx, names)
	if err == nil {
		err = b.command(ctx, words)
	}
	resumed := b.resume(ctx)
	if e, ok := errors.AsType[*ended](err); ok {
		env.say("%s", e.what)
		e.also = resumed
		return e
	}
	return errors.Join(err, resumed)
}

// drained has what is queued embedded first, for a while. What is left after it waits longer, and is not lost.
func (c *bulkCommand) drained(ctx context.Context, env *environment, pool *pgxpool.Pool, names []string) error {
	if c.drain == 0 {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, c.drain)
	defer cancel()
	_, err := caughtup.Drain{
		Pool: pool, Names: names, EndAlone: true, Tell: func(what string) { env.say("draining: %s", what) },
	}.Run(limited)
	switch class := problem.Of(err); {
	case err == nil:
		env.say("drained")
	case ctx.Err() != nil || class != problem.Timeout && class != problem.Failed:
		return err
	default:
		env.say("%s; that waits until the load is over", err)
	}
	return nil
}

// bulk is a load under way.
type bulk struct {
	env     *environment
	actions *actions.Actions
	signals chan os.Signal
	all     bool     // the switch over all was turned off by us
	paused  []string // pipelines that we have paused
}

// pause pauses pipelines one by one, so that it is known of each whether it was paused before.
func (b *bulk) pause(ctx context.Context, names []string) error {
	if len(names) == 0 {
		s, err := b.actions.Switch(ctx, false, nil, false)
		if err != nil {
			return err
		}
		if b.all = s.Outcomes[0].Result == "paused"; !b.all {
			b.env.say("all pipelines are paused already, and stay so")
		}
		return nil
	}
	for _, name := range names {
		s, err := b.actions.Switch(ctx, false, []string{name}, false)
		if err != nil {
			return err
		}
		if o := s.Outcomes[0]; o.Result == "paused" {
			b.paused = append(b.paused, o.Pipeline)
		} else {
			b.env.say("pipeline %s is paused already, and stays so", o.Pipeline)
		}
	}
	return nil
}

// command runs a program and waits for its end. Its error has the exit status that this program ends with.
func (b *bulk) command(ctx context.Context, words []string) error {
	select {
	case <-b.signals:
		return fail(exitInterrupted, errInterrupted)
	default:
	}
	c := exec.CommandContext(context.WithoutCancel(ctx), words[0], words[1:]...) // it is told to end, and waited for
	c.Stdin, c.Stdout, c.Stderr, c.Env = b.env.stdin, b.env.stdout, b.env.stderr, b.env.environ
	if err := c.Start(); err != nil {
		return misuse("start %s: %w", words[0], err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	over := ctx.Done()
	for {
		select {
		case s := <-b.signals:
			// What is typed at a terminal reaches the program by itself.
			if s != os.Interrupt && s != syscall.SIGQUIT || !hasTerminal() {
				_ = c.Process.Signal(s) // it may have ended
			}
		case <-over:
			over = nil
			_ = c.Process.Signal(syscall.SIGTERM) // it may have ended
		case err := <-ended:
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return status(words[0], err)
		}
	}
}

// hasTerminal reports whether this process has a terminal from which it may be interrupted.
func hasTerminal() bool {
	f, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	_ = f.Close() // only read
	return true
}

// ended is the error of a program that did not end well. This one ends with its status, and complains of nothing but
// what went wrong besides.
type ended struct {
	status int
	what   string
	also   error
}

func (e *ended) Error() string { return e.what }
func (e *ended) Unwrap() error { return e.also }

// status is the error of a program that did not end well, with its exit status.
func status(name string, err error) error {
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return err
	}
	if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		what := fmt.Sprintf("%s was ended by a signal: %s", name, ws.Signal())
		return &ended{status: exitSignaled + int(ws.Signal()), what: what}
	}
	return &ended{status: exit.ExitCode(), what: fmt.Sprintf("%s ended with status %d", name, exit.ExitCode())}
}

// exitSignaled and the number of a signal are the exit status of what it has ended, as shells tell it.
const exitSignaled = 128

// resume lets go on what was paused. It goes on trying for a while where the database is not there: a load may have
// ended with it.
func (b *bulk) resume(ctx context.Context) error {
	const patience = time.Minute
	if !b.all && len(b.paused) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience) // ctx may be over: that is why
	defer cancel()
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		_, err := b.actions.Switch(ctx, true, b.paused, false)
		if err == nil {
			b.env.say("resumed: embedsidecar wait --caught-up waits for what was loaded")
			return nil
		}
		if problem.Of(err) != problem.Connect || !sleep.For(ctx, pause) {
			way := []string{"embedsidecar resume"}
			for _, name := range b.paused {
				way = append(way, health.Quoted(name))
			}
			return problem.New(problem.Of(err), fmt.Errorf("still paused: %w", err), strings.Join(way, " "))
		}
	}
}
