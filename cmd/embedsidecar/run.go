package main

import (
	"context"
	"fmt"
	"slices"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/app"
	"github.com/embedsidecar/embedsidecar/internal/base/signals"
	"github.com/embedsidecar/embedsidecar/internal/base/systemd"
	"github.com/embedsidecar/embedsidecar/internal/base/trace"
	"github.com/embedsidecar/embedsidecar/internal/config"
	caughtup "github.com/embedsidecar/embedsidecar/internal/manage/wait"
)

// runCommand streams changes and embeds rows until it is stopped.
type runCommand struct {
	once   bool // catch up with everything committed before the start, then end
	noInit bool // set nothing up
	role   string
}

func newRun() *command {
	c := &runCommand{role: string(app.All)}
	return &command{
		name: "run", group: groupStart, usage: "embed rows as they change, until stopped",
		description: "Sets up what is missing if the role may (schema, publication, slot, destination), and prints each " +
			"step with the SQL that undoes it. If the role may not, prints the SQL for an owner and ends with " +
			"status 7. SIGTERM and SIGINT end it cleanly: batches in work are finished or returned; a second " +
			"signal ends it at once. This is the sidecar: everyone needs it.",
		flags: []cli.Flag{
			own.toggle("once", &c.once, "embed everything that is committed now, then end"),
			own.text("role", &c.role,
				"`all|stream|work` stream reads the slot and fills the queue, work embeds, all does both"),
			own.toggle("no-init", &c.noInit, "set nothing up; end with status 3 if something is missing, and wait while the schema has an older version"),
		},
		reach: allDatabases,
		settings: []string{
			config.GroupDatabase, config.GroupEmbedding, config.GroupWork, config.GroupQueries,
			config.GroupAdmin, config.GroupOps,
		},
		pipelines: true,
		daemon:    true,
		run:       c.run,
	}
}

func (c *runCommand) run(ctx context.Context, env *environment) error {
	if c.once && !env.config.Enabled {
		return misuse("--once would never end: the sidecar is disabled by %s", env.config.Origin("enabled"))
	}
	roles := []app.Role{app.All, app.Stream, app.Work}
	if !slices.Contains(roles, app.Role(c.role)) {
		return misuse("--role: expected all, stream or work, not %q", c.role)
	}
	if c.once && c.role != string(app.All) {
		return misuse("--once needs both roles: leave out --role %s", c.role)
	}
	err := c.work(ctx, env)
	if !c.once && exitCode(ctx, err) == exitInterrupted {
		return nil // an interrupt is the normal end
	}
	return err
}

func (c *runCommand) work(ctx context.Context, env *environment) error {
	is := env.node()
	is.Reread = env.reread
	is.Trace = trace.Open(ctx, trace.Options{
		Environ: env.environ, Version: version, Instance: env.config.Instance, ShowKeys: env.config.Admin.ShowRowText,
		Log: env.log,
	})
	defer is.Trace.Close(ctx)
	n := app.New(is)
	defer env.supervise(ctx, n)()
	o := app.RunOptions{NoInit: c.noInit, Role: app.Role(c.role)}
	if c.once {
		o.Reached = env.reached
	}
	return n.Run(ctx, o)
}

// reached reports how far a run with --once came.
func (e *environment) reached(ctx context.Context, r app.Reached) error {
	if r.Err != nil {
		return fmt.Errorf("not caught up with %s: %s: %w", r.LSN, caughtup.Left(r.State), r.Err)
	}
	e.say("caught up with %s", r.LSN)
	return e.caughtUp(r.Pool, r.LSN).LeftOver(ctx, r.State)
}

// supervise reports the program's state to systemd, and reloads configuration and plugins at SIGHUP, until stop is
// called. It also ignores SIGPIPE, so that the program goes on when nothing reads its log.
func (e *environment) supervise(ctx context.Context, n *app.Node) (stop func()) {
	outlived := signals.Outlive(syscall.SIGPIPE)
	unit := systemd.Unit{Log: e.log}.Begin(ctx, func() { _ = n.Snapshot() })
	hangups := signals.Hangups(ctx, func(ctx context.Context) {
		n.Configure(ctx, "reload", "SIGHUP")
		n.Reload(ctx, "SIGHUP", nil)
	})
	return func() {
		hangups()
		unit()
		outlived()
	}
}

func (e *environment) node() app.Options {
	return app.Options{
		Source: e.embedders(), Build: thisBuild(), Host: e.hostname,
		Working: systemd.Unit{Log: e.log}.Working, Setup: e.tellSetup,
		Warn: func(what string) { e.say("warning: %s", what) },
	}
}
