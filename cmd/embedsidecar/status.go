package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/report"
	"github.com/embedsidecar/embedsidecar/setup"
)

// statusCommand shows where every pipeline stands.
type statusCommand struct{}

func newStatus() *command {
	c := &statusCommand{}
	return &command{
		name: "status", group: groupObserve, usage: "show where every pipeline stands",
		description: "Asks the database only, so it also works while no sidecar runs. COVERAGE is the part of the rows that were looked at since they last changed; (est.) says that the number of rows is the server's estimate.",
		settings:    databaseGroups,
		run:         c.run,
	}
}

func (c *statusCommand) run(ctx context.Context, env *environment) error {
	pool, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := setup.CheckVersion(ctx, pool); err != nil {
		return err
	}
	state, err := report.Read(ctx, pool)
	if err != nil {
		return err
	}
	if state.Slots == nil {
		state.Slots = []report.Slot{}
	}
	if state.Pipelines == nil {
		state.Pipelines = []report.Pipeline{}
	}
	shown := withIndexes(ctx, pool, state.Pipelines)
	if env.output != "table" {
		return env.show(statusDocument{state.Slots, shown}, func() listing { return pipelineListing(shown) })
	}
	for _, s := range state.Slots {
		if err := env.printf("%s\n", slotLine(s)); err != nil {
			return err
		}
	}
	if len(state.Slots) == 0 {
		return env.printf("no pipeline is set up yet: embedsidecar init\n")
	}
	if err := env.list(pipelineListing(shown)); err != nil {
		return err
	}
	for _, line := range append(remarks(state), indexRemarks(shown)...) {
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
	case s.WALStatus == "lost":
		parts = append(parts, "lost")
	case s.Active && s.Holder != "":
		parts = append(parts, "streamed by "+s.Holder)
	case s.Active:
		parts = append(parts, "active")
	default:
		parts = append(parts, "nobody streams")
	}
	parts = append(parts, size(s.LagBytes)+" behind")
	kept := "WAL kept " + size(s.RetainedBytes)
	if s.SafeWALBytes != nil {
		kept += " of " + size(s.RetainedBytes+max(*s.SafeWALBytes, 0))
	}
	parts = append(parts, kept)
	return cleanCell("slot " + s.Name + ": " + strings.Join(parts, ", "))
}

func pipelineListing(pipelines []statusPipeline) listing {
	l := listing{
		header: []string{"pipeline", "model", "coverage", "rows", "pending", "running", "retrying", "failed", "oldest", "index", "state"},
		right:  []int{2, 3, 4, 5, 6, 7, 8},
	}
	for _, p := range pipelines {
		coverage := fmt.Sprintf("%.1f%%", floor(p.Coverage*100)) //nolint:mnd // percent
		if p.RowsEstimated {
			coverage += " (est.)"
		}
		oldest := ""
		if p.OldestSeconds != nil {
			oldest = age(*p.OldestSeconds)
		}
		model := p.Model
		if model == "" {
			model = p.Plugin
		}
		l.rows = append(l.rows, []any{p.Name, model, coverage, p.Rows, p.Pending, p.Running, p.Retrying, p.Failed, oldest, indexWord(p.Indexes), stateOf(p.Pipeline)})
	}
	return l
}

// stateOf is one word for what a pipeline does.
func stateOf(p report.Pipeline) string {
	switch {
	case p.Status != "active":
		return p.Status
	case !p.Enabled:
		return "paused"
	case p.ScanPhase != "done":
		return p.ScanReason
	case p.Pending+p.Running+p.Retrying > 0:
		return "working"
	}
	return "up to date"
}

// remarks are what somebody should do something about.
func remarks(state report.Status) []string {
	var list []string
	streamed := map[string]bool{}
	for _, s := range state.Slots {
		streamed[s.Name] = s.Active
		switch {
		case !s.PublicationExists:
			list = append(list, fmt.Sprintf("the publication %q of slot %s does not exist: changes are not seen; embedsidecar init makes it again", s.Publication, s.Name))
		case !s.Exists, s.WALStatus == "lost":
			list = append(list, fmt.Sprintf("slot %s is gone: changes are not seen; embedsidecar run makes it again and compares every row", s.Name))
		case !s.Active:
			list = append(list, fmt.Sprintf("nobody streams from slot %s, and the server keeps WAL for it: embedsidecar run", s.Name))
		}
	}
	for _, p := range state.Pipelines {
		if p.Status != "active" {
			list = append(list, p.Name+" cannot work: "+p.Detail)
		}
		if p.ReplacedBy != "" {
			list = append(list, fmt.Sprintf("%s: its table is called %s now, and what is called %s is another one, whose rows get no vectors: rename them back, "+
				"or embedsidecar init, or the next run, moves the pipeline to it", p.Name, pgx.Identifier{p.Schema, p.Table}.Sanitize(), p.ReplacedBy))
		}
		if left := p.Rows - p.Known; left > 0 && stateOf(p) == "up to date" && !p.RowsEstimated && streamed[p.Slot] {
			list = append(list, fmt.Sprintf("%s: %s not looked at; if that stays so, embedsidecar verify %s tells which and why", p.Name, count(left, "row"), quoted(p.Name)))
		}
		if p.Failed > 0 {
			list = append(list, fmt.Sprintf("%s: %s could not be embedded; embedsidecar retry %s tries again", p.Name, count(p.Failed, "row"), quoted(p.Name)))
		}
	}
	return list
}

// floor cuts a percentage to one digit, so that 100 means all.
func floor(percent float64) float64 { return float64(int64(percent*10)) / 10 } //nolint:mnd // one digit

// size writes bytes with a unit.
func size(n int64) string {
	const step = 1024
	if n < step {
		return fmt.Sprintf("%d B", max(n, 0))
	}
	value, units := float64(n)/step, []string{"kB", "MB", "GB", "TB"}
	for value >= step && len(units) > 1 {
		value, units = value/step, units[1:]
	}
	const whole = 10
	if value < whole {
		return fmt.Sprintf("%.1f %s", value, units[0])
	}
	return fmt.Sprintf("%.0f %s", value, units[0])
}

// age writes seconds for people.
func age(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	}
	return d.Round(time.Minute).String()
}

// quoted makes a name one word of a shell.
func quoted(name string) string {
	if strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:-") == "" {
		return name
	}
	return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
}
