package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/urfave/cli/v2"
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
		description: "Ends with status 5 when --timeout is over. A row that is paused, failed or filtered out is told, not waited for.",
		flags: []cli.Flag{
			&cli.BoolFlag{Name: "caught-up", Destination: &c.caughtUp, DisableDefaultText: true, Usage: "with all that is committed now"},
			&cli.StringFlag{Name: "lsn", Destination: &c.lsnText, Usage: "`LSN` with all before this one, such as 0/16B3748"},
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

func (c *waitCommand) wait(_ context.Context, _ *environment) error { return notWired("wait") }

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
	lsn, err := parseLSN(c.lsnText)
	if err != nil {
		return misuse("--lsn: %w", err)
	}
	c.lsn = lsn
	return nil
}

// parseLSN reads an LSN as Postgres does. (pglogrepl's own parser takes junk at the end and halves that are too long.)
func parseLSN(s string) (pglogrepl.LSN, error) {
	high, low, ok := strings.Cut(s, "/")
	h, err := lsnHalf(high)
	l, err2 := lsnHalf(low)
	if !ok || errors.Join(err, err2) != nil {
		return 0, fmt.Errorf("expected an LSN such as 0/16B3748, not %q", s)
	}
	return pglogrepl.LSN(h<<32 | l), nil
}

func lsnHalf(s string) (uint64, error) {
	if strings.Trim(s, "0123456789abcdefABCDEF") != "" {
		return 0, strconv.ErrSyntax
	}
	n, err := strconv.ParseUint(s, 16, 64)
	if err == nil && (len(s) > 8 || n > math.MaxUint32) {
		return 0, strconv.ErrRange
	}
	return n, err
}
