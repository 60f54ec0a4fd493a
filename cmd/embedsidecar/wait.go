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
	"github.com/embedsidecar/embedsidecar/internal/manage/wait"
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
		description: "Without --timeout it waits for as long as it takes, and tells what it waits for. Ends with status 5 when --timeout is over; with --timeout 0 it looks once, and ends so unless nothing is left. A row that is paused, failed, cancelled or filtered out is told, not waited for.",
		flags: []cli.Flag{
			own.toggle("caught-up", &c.caughtUp, "with all that is committed now"),
			own.text("lsn", &c.lsnText, "`LSN` with all before this one, such as 0/16B3748"),
		},
		settings: databaseGroups,
		run:      c.run,
	}
}

func (c *waitCommand) run(ctx context.Context, env *environment) error {
	if err := c.parse(); err != nil {
		return err
	}
	return c.wait(ctx, env)
}

func (c *waitCommand) wait(ctx context.Context, env *environment) error {
	pool, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
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
	return errors.Join(env.out.Show(a, func() output.Table {
		return output.Row(columns, a.LSN, a.Yes, a.Decoded, a.Open, a.Scans, a.Failed, a.Cancelled,
			strings.Join(a.Resting, " "), strings.Join(a.Unrouted, " "))
	}), err)
}

// caughtUp is a wait of the pipelines of the configured slot for an LSN.
func (e *environment) caughtUp(pool *pgxpool.Pool, lsn pglogrepl.LSN) caughtup.Wait {
	w := caughtup.Wait{Pool: pool, Slot: e.config.Slot.Name, LSN: lsn, Redact: e.redact.Text, Once: e.lookOnce}
	w.Tell, w.Every = e.tellWaiting()
	return w
}

// tellWaiting tells what is waited for: on a terminal each second in the place of what it said before.
func (e *environment) tellWaiting() (tell func(what string), every time.Duration) {
	if !output.IsTerminal(e.stderr) || e.quiet {
		return func(what string) { e.say("waiting: %s", what) }, 0
	}
	return func(what string) {
		if what != "" {
			what = "waiting: " + what
		}
		_, _ = fmt.Fprintf(e.stderr, "\x1b[K%s\r", e.redact.Text(wording.OneLine(what)))
	}, time.Second
}

// parse checks the flags against each other.
func (c *waitCommand) parse() error {
	switch {
	case c.caughtUp && c.lsnText != "":
		return misuse("--caught-up and --lsn exclude each other")
	case !c.caughtUp && c.lsnText == "":
		return misuse("what to wait for is missing: --caught-up, or --lsn LSN")
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
