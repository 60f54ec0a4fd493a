package main

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/app/child"
	"github.com/embedsidecar/embedsidecar/internal/base/signals"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/manage/verbs"
	caughtup "github.com/embedsidecar/embedsidecar/internal/manage/wait"
)

// bulkCommand runs another program while pipelines are paused.
type bulkCommand struct{ drain time.Duration }

func newBulk() *command {
	c := &bulkCommand{drain: time.Minute}
	return &command{
		name: "bulk", group: groupOperate, usage: "run a bulk load while pipelines are paused",
		arguments: "[PIPELINE...] -- COMMAND [ARG...]", minArgs: 1, maxArgs: -1,
		description: "Drains the pipelines, or all of them, pauses them, runs COMMAND with this program's input and " +
			"output, and resumes them when COMMAND ends. Pipelines that were paused before stay paused. Ends " +
			"with the status of COMMAND (128 and the signal's number if a signal ended it). Signals go to " +
			"COMMAND. Loaded rows are queued and embedded afterwards. If this program is killed (SIGKILL), run " +
			"embedsidecar resume. For large loads that must not compete with the embedder.",
		flags: []cli.Flag{
			own.duration("drain", &c.drain,
				"`DURATION` longest wait for queued rows before COMMAND starts; then it starts anyway, and no row is lost. 0: no wait"),
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
	to := make(chan os.Signal, 8)
	load := child.Program{
		Words: words, Stdin: env.stdin, Stdout: env.stdout, Stderr: env.stderr, Env: env.environ, Signals: to,
	}
	if err := load.Check(); err != nil {
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
	b := bulk{env: env, actor: verbs.New(pool, verbs.Person()+" by bulk")}
	defer signals.Take(ctx, to, syscall.SIGHUP, syscall.SIGQUIT)()
	if err = b.pause(ctx, names); err == nil {
		err = load.Run(ctx)
	}
	resumed := b.resume(ctx)
	if e, ok := errors.AsType[*child.EndedError](err); ok {
		env.say("%s", e.What)
		e.Also = resumed
		return e
	}
	return errors.Join(err, resumed)
}

// drained waits, for a limited time, until queued rows are embedded. What is left is not lost: it waits until after the
// load.
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

// bulk is a running load.
type bulk struct {
	env   *environment
	actor *verbs.Actor
	load  verbs.Load // what this load has paused
}

// pause pauses pipelines, and reports those that were already paused.
func (b *bulk) pause(ctx context.Context, names []string) (err error) {
	var list []verbs.Outcome
	b.load, list, err = b.actor.BeginLoad(ctx, names)
	for _, o := range list {
		switch {
		case o.Result == "paused":
		case o.Pipeline == "":
			b.env.say("all pipelines are paused already, and stay so")
		default:
			b.env.say("pipeline %s was already paused, and is not resumed", o.Pipeline)
		}
	}
	return err
}

// resume resumes what pause has paused.
func (b *bulk) resume(ctx context.Context) error {
	if b.load.Nothing() {
		return nil
	}
	err := b.actor.EndLoad(ctx, b.load)
	if err == nil {
		b.env.say("resumed: embedsidecar wait --caught-up waits for what was loaded")
	}
	return err
}
