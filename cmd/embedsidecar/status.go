package main

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/catalog"
	"github.com/embedsidecar/embedsidecar/internal/health"
	"github.com/embedsidecar/embedsidecar/internal/node/observe"
	"github.com/embedsidecar/embedsidecar/internal/report"
	"github.com/embedsidecar/embedsidecar/internal/sleep"
	"github.com/embedsidecar/embedsidecar/internal/wording"
)

// statusCommand shows where every pipeline stands.
type statusCommand struct {
	watch  bool
	every  time.Duration
	counts *report.Counts // with watch: what is known is not counted each time
}

func newStatus() *command {
	c := &statusCommand{}
	return &command{
		name: "status", group: groupObserve, usage: "show where every pipeline stands",
		description: "Asks the database only, so it also works while no sidecar runs. COVERAGE is the part of the rows whose vector is known to be that of their text now; (est.) says that the number of rows is the server's estimate. What each STATE means is in docs/states.md.",
		flags: []cli.Flag{
			&cli.BoolFlag{
				Name: "watch", Aliases: []string{"w"}, Destination: &c.watch, DisableDefaultText: true,
				Usage: "show it again and again, until told to stop",
			},
			&cli.DurationFlag{
				Name: "every", Value: 2 * time.Second, Destination: &c.every,
				Usage: "`TIME` between two looks of --watch",
			},
		},
		settings: databaseGroups,
		run:      c.run,
	}
}

func (c *statusCommand) run(ctx context.Context, env *environment) error {
	pool, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := catalog.CheckVersion(ctx, pool); err != nil {
		return err
	}
	if !c.watch {
		return c.once(ctx, env, pool)
	}
	c.counts = &report.Counts{}
	for {
		if isTerminal(env.stdout) {
			if err := env.printf("\x1b[H\x1b[2J"); err != nil { // home, and clear
				return err
			}
		}
		if err := c.once(ctx, env, pool); err != nil && ctx.Err() == nil {
			return err
		}
		if !sleep.For(ctx, c.every) {
			return nil // that is how it is told to stop
		}
	}
}

// shownFailures is how many rows that failed are named for each pipeline.
const shownFailures = 5

func (c *statusCommand) once(ctx context.Context, env *environment, pool *pgxpool.Pool) error {
	state, err := observe.Read(ctx, pool, c.counts, shownFailures, env.redact.Text)
	if err != nil {
		return err
	}
	if env.output != "table" {
		return env.show(state, func() listing { return pipelineListing(state.Pipelines) })
	}
	for _, s := range state.Slots {
		if err := env.printf("%s\n", slotLine(s)); err != nil {
			return err
		}
	}
	if len(state.Slots) == 0 {
		return env.printf("no pipeline is set up yet: embedsidecar init\n")
	}
	if err := env.list(pipelineListing(state.Pipelines)); err != nil {
		return err
	}
	lines := remarks(state)
	for i := range state.Pipelines {
		for k := range state.Pipelines[i].FailedRows {
			lines = append(lines, failedLine(&state.Pipelines[i].FailedRows[k]))
		}
	}
	for _, line := range append(lines, indexRemarks(state.Pipelines)...) {
		if err := env.printf("! %s\n", cleanCell(line)); err != nil {
			return err
		}
	}
	return nil
}

// slotLine words the state of a slot.
func slotLine(s report.Slot) string {
	var parts []string
	switch {
	case !s.Exists:
		parts = append(parts, "does not exist")
	case s.Making:
		parts = append(parts, "being made by "+s.Holder)
	case s.WALStatus == "lost":
		parts = append(parts, "lost")
	case s.Active && s.Holder != "":
		parts = append(parts, "streamed by "+s.Holder)
	case s.Active:
		parts = append(parts, "active")
	default:
		parts = append(parts, "nobody streams")
	}
	parts = append(parts, wording.Size(s.LagBytes)+" behind")
	kept := "WAL kept " + wording.Size(s.RetainedBytes)
	if s.SafeWALBytes != nil {
		kept += " of " + wording.Size(s.RetainedBytes+max(*s.SafeWALBytes, 0))
	}
	parts = append(parts, kept)
	return cleanCell("slot " + s.Name + ": " + strings.Join(parts, ", "))
}

func pipelineListing(pipelines []observe.Pipeline) listing {
	l := listing{
		header: []string{
			"pipeline", "model", "coverage", "rows", "pending", "running", "retrying", "failed", "oldest",
			"tokens", "index", "state",
		},
		right: []int{2, 3, 4, 5, 6, 7, 8, 9},
	}
	for _, p := range pipelines {
		coverage := wording.Percent(p.Coverage)
		if p.RowsEstimated {
			coverage += " (est.)"
		}
		oldest := ""
		if p.OldestSeconds != nil {
			oldest = wording.Age(*p.OldestSeconds)
		}
		model := p.Model
		if model == "" {
			model = p.Plugin
		}
		l.rows = append(l.rows, []any{
			p.Name, model, coverage, p.Rows, p.Pending, p.Running, p.Retrying, p.Failed, oldest,
			p.Tokens, indexWord(p.Indexes), stateCell(&p.Pipeline),
		})
	}
	return l
}

// stateCell is the state of a pipeline, with how far it is.
func stateCell(p *report.Pipeline) string {
	word := p.State.Word()
	switch {
	case p.State != health.Backfill && p.State != health.Comparing, p.ScanExpected <= 0:
		return word
	case p.ScanPhase == "orphans":
		return word + " 100%"
	}
	//nolint:mnd // percent
	word += fmt.Sprintf(" %.0f%%", math.Floor(100*min(1, float64(p.ScanSeen)/float64(p.ScanExpected))))
	if p.ScanRate > 0 {
		word += fmt.Sprintf(", %.0f/s", p.ScanRate)
	}
	if p.ScanLeft > 0 {
		word += ", " + wording.Age(p.ScanLeft)
	}
	return word
}

// remarks are what somebody should know, or do something about: of each pipeline in one sentence, and once of what
// holds for all.
func remarks(state observe.Database) []string {
	var list []string
	said := map[string][]string{} // pipelines by sentence
	for i := range state.Pipelines {
		p := &state.Pipelines[i]
		if p.State == health.UpToDate || p.State == health.Working && p.Open() > p.Retrying {
			continue
		}
		sentence := p.Health().String()
		if said[sentence] == nil {
			list = append(list, sentence)
		}
		said[sentence] = append(said[sentence], p.Name)
	}
	for i, sentence := range list {
		list[i] = strings.Join(said[sentence], ", ") + ": " + sentence
	}
	for i := range state.Pipelines {
		p := &state.Pipelines[i]
		if left := p.Rows - p.Known; left > 0 && p.State == health.UpToDate && !p.RowsEstimated {
			list = append(list, fmt.Sprintf("%s: %s not looked at; if that stays so, embedsidecar verify %s tells which and why",
				p.Name, wording.Count(left, "row"), health.Quoted(p.Name)))
		}
	}
	return list
}
