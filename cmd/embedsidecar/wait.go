package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	caughtup "github.com/embedsidecar/embedsidecar/internal/manage/wait"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// waitCommand waits until the vectors have caught up.
type waitCommand struct {
	caughtUp bool
	lsnText  string
	lsn      pglogrepl.LSN // 0: the end of the WAL when the command starts
}

func newWait() *command {
	c := &waitCommand{}
	return &command{
		name: "wait", group: groupObserve, usage: "wait until vectors have caught up with what is committed",
		arguments: "PIPELINE... | --caught-up | --lsn LSN", maxArgs: -1,
		description: "With names it waits for everything committed so far in these pipelines, backfills included, " +
			"and shows what is left of each. For a paused pipeline it waits only for rows in work. Without --timeout " +
			"it waits without limit and shows what it waits for. Ends with status 5 when --timeout is over; with " +
			"--timeout 0 it checks once. Rows that are paused, failed, cancelled or filtered out are reported, " +
			"not waited for. For scripts and tests that need current vectors.",
		flags: []cli.Flag{
			own.toggle("caught-up", &c.caughtUp, "wait for everything committed now"),
			own.text("lsn", &c.lsnText, "`LSN` wait for everything before it, such as 0/16B3748"),
		},
		settings: databaseGroups, reach: eachDatabase,
		run: c.run,
	}
}

func (c *waitCommand) run(ctx context.Context, env *environment) error {
	if err := c.parse(env.args); err != nil {
		return err
	}
	pool, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	if len(env.args) > 0 {
		return drain(ctx, env, pool)
	}
	if err := catalog.CheckVersion(ctx, pool); err != nil {
		return err
	}
	lsn := c.lsn
	if c.caughtUp {
		if lsn, err = report.Now(ctx, pool); err != nil {
			return err
		}
	}
	a, err := env.caughtUp(pool, lsn).Run(ctx)
	if env.out.ForPeople() {
		if err == nil {
			env.say("caught up with %s", lsn)
		}
		return err
	}
	columns := []string{"lsn", "caught_up", "decoded", "open", "scans", "failed", "cancelled", "resting", "unrouted"}
	return errors.Join(output.One(env.out, a, columns, a.LSN, a.Yes, a.Decoded, a.Open, a.Scans, a.Failed, a.Cancelled,
		strings.Join(a.Resting, " "), strings.Join(a.Unrouted, " ")), err)
}

// caughtUp is a wait of the pipelines of the configured slot for an LSN.
func (e *environment) caughtUp(pool *pgxpool.Pool, lsn pglogrepl.LSN) caughtup.Wait {
	w := caughtup.Wait{Pool: pool, Slot: e.config.Slot.Name, LSN: lsn, Redact: e.redact.Text, Once: e.lookOnce}
	w.Tell, w.Every = e.tellWaiting()
	return w
}

// tellWaiting prints what is waited for. On a terminal each line replaces the one before, every second.
func (e *environment) tellWaiting() (tell func(what string), every time.Duration) {
	line, every := e.tellLine()
	return func(what string) {
		if what != "" {
			what = "waiting: " + what
		}
		line(what)
	}, every
}

// tellLine prints a line, which on a terminal replaces the one before. every is the interval; 0: only changes.
func (e *environment) tellLine() (tell func(what string), every time.Duration) {
	if !output.IsTerminal(e.stderr) || e.quiet {
		return func(what string) { e.say("%s", what) }, 0
	}
	return func(what string) {
		_, _ = fmt.Fprintf(e.stderr, "\x1b[K%s\r", e.redact.Text(wording.OneLine(what)))
	}, time.Second
}

// drain waits until nothing is left to embed in the named pipelines.
func drain(ctx context.Context, env *environment, pool *pgxpool.Pool) error {
	list, err := caughtup.Drain{
		Pool: pool, Names: env.args, Once: env.lookOnce, Tell: func(what string) { env.say("waiting: %s", what) },
	}.Run(ctx)
	if len(list) == 0 {
		return err
	}
	columns := []string{"pipeline", "result", ">left", ">failed", ">cancelled", ">elapsed", "note"}
	return errors.Join(output.List(env.out, "pipelines", list, columns, func(d *caughtup.Drained) []any {
		return []any{d.Pipeline, d.Result, d.Rows, d.Failed, d.Cancelled, fmt.Sprintf("%.1f s", d.Seconds), d.Note}
	}), err)
}

func (c *waitCommand) parse(names []string) error {
	switch {
	case len(names) > 0 && c.lsnText != "":
		return misuse("--lsn is for all pipelines: give it, or names")
	case len(names) > 0:
		return nil
	case c.caughtUp && c.lsnText != "":
		return misuse("--caught-up and --lsn exclude each other")
	case !c.caughtUp && c.lsnText == "":
		return misuse("what to wait for is missing: names of pipelines, --caught-up, or --lsn LSN")
	case c.caughtUp:
		return nil
	}
	lsn, err := caughtup.ParseLSN(c.lsnText)
	if err != nil {
		return misuse("--lsn: %w", err)
	}
	c.lsn = lsn
	return nil
}
