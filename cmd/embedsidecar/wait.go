package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/catalog"
	"github.com/embedsidecar/embedsidecar/internal/node/lookup"
	"github.com/embedsidecar/embedsidecar/internal/node/observe"
	"github.com/embedsidecar/embedsidecar/internal/report"
	"github.com/embedsidecar/embedsidecar/internal/wording"
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
		description: "Without --timeout it waits for as long as it takes, and tells what it waits for. Ends with status 5 when --timeout is over. A row that is paused, failed or filtered out is told, not waited for.",
		flags: []cli.Flag{
			&cli.BoolFlag{
				Name: "caught-up", Destination: &c.caughtUp, DisableDefaultText: true,
				Usage: "with all that is committed now",
			},
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
	stop := tellProgress(ctx, env, pool, lsn)
	state, err := report.Wait(ctx, pool, env.config.Slot.Name, lsn)
	stop()
	switch {
	case errors.Is(err, report.ErrNoSlot):
		return fail(exitNotSetUp, fmt.Errorf("slot %q is not set up in this database", env.config.Slot.Name),
			lookup.OtherSlots(ctx, pool), "or set it up: embedsidecar init")
	case errors.Is(err, report.ErrNoPipeline):
		return fail(exitNotSetUp, fmt.Errorf("no pipeline of slot %q is set up in this database", env.config.Slot.Name),
			"embedsidecar init sets them up")
	case err != nil && errors.Is(context.Cause(ctx), errTimedOut):
		err = tooLate(ctx, env, pool, lsn, state)
	case err == nil:
		err = leftovers(ctx, env, pool, state)
	}
	if env.output == "table" {
		if err == nil {
			env.say("caught up with %s", lsn)
		}
		return err
	}
	type answer struct {
		LSN string `json:"lsn"`
		Yes bool   `json:"caught_up"`
		report.CaughtUp
	}
	shown := answer{lsn.String(), state.Yes(), state}
	if shown.Resting == nil {
		shown.Resting = []string{}
	}
	if shown.Unrouted == nil {
		shown.Unrouted = []string{}
	}
	return errors.Join(env.show(shown, func() listing {
		return listing{
			header: []string{"lsn", "caught_up", "decoded", "open", "scans", "failed", "resting", "unrouted"},
			rows: [][]any{{lsn, state.Yes(), state.Decoded, state.Open, state.Scans, state.Failed, strings.Join(state.Resting,
				" "), strings.Join(state.Unrouted, " ")}},
		}
	}), err)
}

// leftovers is an error if something was not waited for because waiting would not help: it names the pipelines, why
// each rests, and the first rows that failed.
func leftovers(ctx context.Context, env *environment, pool *pgxpool.Pool, state report.CaughtUp) error {
	if state.Failed == 0 && len(state.Resting) == 0 {
		return nil
	}
	var left, hints []string
	// what cannot be looked at now is told as it was stored
	loaded, _ := lookup.All(ctx, pool)
	status, err := report.Options{CountUpTo: -1, Loaded: loaded}.Read(ctx, pool) // nobody asks for the coverage
	if err != nil {
		return err
	}
	if state.Failed > 0 {
		left = append(left, wording.Count(state.Failed, "row")+" could not be embedded")
		failed, err := observe.Failures(ctx, pool, status.Pipelines, shownFailures, env.redact.Text)
		if err != nil {
			return err
		}
		for i := range failed {
			if failed[i].State == "failed" {
				hints = append(hints, failedLine(&failed[i]))
			}
		}
		hints = append(hints, "embedsidecar failed names all of them; embedsidecar retry tries them again")
	}
	if len(state.Resting) > 0 {
		left = append(left, "not at work: "+strings.Join(state.Resting, ", "))
		for i := range status.Pipelines {
			if p := &status.Pipelines[i]; slices.Contains(state.Resting, p.Name) {
				hints = append(hints, p.Name+": "+p.Health().String())
			}
		}
	}
	return fail(exitFailed, errors.New("caught up, but for what waiting does not help: "+strings.Join(left, "; ")),
		hints...)
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
