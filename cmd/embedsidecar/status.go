package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// statusCommand shows the state of every pipeline.
type statusCommand struct {
	watch  bool
	lanes  bool
	every  time.Duration
	paints bool            // on a terminal, where each frame replaces the one before
	memory *observe.Memory // with --watch: avoids counting known rows again
	clocks map[string]*report.Countdown
}

func newStatus() *command {
	c := &statusCommand{every: 2 * time.Second}
	return &command{
		name: "status", group: groupObserve, usage: "show the state of every pipeline",
		arguments: "[PIPELINE...]", maxArgs: -1,
		description: "Reads the database only, so it works without a running sidecar. COVERAGE is the share of rows whose " +
			"vector is known to be that of their current text; (est.) means that the number of rows is the " +
			"server's estimate; unknown means that changes may have been missed until all rows have been " +
			"compared. docs/states.md explains each STATE. For everyone who runs a sidecar.",
		flags: []cli.Flag{
			own.toggle("watch,w", &c.watch,
				"refresh until interrupted, with progress bars; q ends it on a terminal"),
			own.duration("every", &c.every, "`TIME` interval between two refreshes of --watch"),
			own.toggle("lanes", &c.lanes,
				"also count rows by priority and state, with their ages; counts all of them, once"),
		},
		settings: databaseGroups, reach: eachDatabase,
		run: withPool(c.run),
	}
}

func (c *statusCommand) run(ctx context.Context, env *environment, pool *pgxpool.Pool) error {
	if err := catalog.CheckVersion(database.Briefly(ctx), pool); err != nil {
		return err
	}
	switch {
	case c.lanes && c.watch:
		return misuse("--lanes counts the whole queue, so it cannot be repeated: leave out --watch")
	case !c.watch:
		return c.once(ctx, env, pool)
	}
	c.memory, c.clocks = &observe.Memory{}, map[string]*report.Countdown{}
	c.paints = output.IsTerminal(env.stdout) && env.out.ForPeople()
	return c.follow(ctx, env, pool)
}

// follow shows the state repeatedly until it is interrupted.
func (c *statusCommand) follow(ctx context.Context, env *environment, pool *pgxpool.Pool) (err error) {
	show := func() error { return c.once(ctx, env, pool) }
	if c.paints {
		screen := output.Screen{Keys: env.stdin, To: env.stdout}
		var leave func()
		if ctx, leave, err = screen.Enter(ctx); err != nil {
			return err
		}
		defer leave()
		show = func() error {
			var frame bytes.Buffer
			if err := c.once(ctx, env.onto(&frame), pool); err != nil {
				return err
			}
			return screen.Paint(frame.Bytes())
		}
	}
	for {
		if err := show(); err != nil && ctx.Err() == nil {
			return err
		}
		if !sleep.For(ctx, c.every) {
			return nil // an interrupt is the normal end
		}
	}
}

func (c *statusCommand) once(ctx context.Context, env *environment, pool *pgxpool.Pool) error {
	ctx = database.Briefly(ctx)
	state, err := observe.Read(ctx, pool, c.memory, env.redact.Text)
	if err != nil {
		return err
	}
	if err := c.choose(ctx, env, pool, &state); err != nil {
		return err
	}
	for i := range state.Pipelines {
		state.Pipelines[i].Priced(env.config.PriceOf(state.Pipelines[i].Model))
	}
	if c.lanes {
		names := lists.Map(state.Pipelines, func(p observe.Pipeline) string { return p.Name })
		if state.Lanes, err = report.Lanes(ctx, pool, names); err != nil {
			return err
		}
	}
	if !env.out.ForPeople() {
		return env.out.Show(state, func() output.Table { return pipelineTable(state.Pipelines) })
	}
	return c.tell(env, &state, time.Now())
}

// tell prints the state for people.
func (c *statusCommand) tell(env *environment, state *observe.Database, now time.Time) error {
	var lines []string
	if c.paints {
		lines = append(lines, headOf(state, now))
	}
	for i := range state.Slots {
		lines = append(lines, state.Slots[i].Line())
	}
	if len(state.Slots) == 0 {
		lines = append(lines, "no pipeline is set up yet: embedsidecar init")
	}
	if err := env.tellLines("", lines); err != nil || len(state.Slots) == 0 {
		return err
	}
	tables := []output.Table{pipelineTable(state.Pipelines)}
	if c.lanes {
		tables = append(tables, laneTable(state.Lanes))
	}
	if c.paints && len(state.Sidecars) > 0 {
		tables = append(tables, sidecarTable(state.Sidecars))
	}
	for _, t := range tables {
		if err := env.out.Table(t); err != nil {
			return err
		}
	}
	lines = nil
	for i := range state.Pipelines {
		lines = append(lines, c.progress(&state.Pipelines[i].Pipeline, now), state.Pipelines[i].SpeedLine(),
			state.Pipelines[i].BudgetLine(), report.BatchLine(state.Pipelines[i].Name, state.Pipelines[i].BatchJobs))
	}
	return errors.Join(env.tellLines("", append(lines, state.SavedLines()...)), env.tellLines("! ", state.Remarks()))
}

// tellLines prints lines with a prefix, without empty ones.
func (e *environment) tellLines(mark string, lines []string) error {
	for _, line := range lines {
		if line == "" {
			continue
		}
		if err := e.printf("%s%s\n", mark, wording.OneLine(line)); err != nil {
			return err
		}
	}
	return nil
}

// choose keeps only the named pipelines, if any are named.
func (c *statusCommand) choose(ctx context.Context, env *environment, pool *pgxpool.Pool, state *observe.Database,
) error {
	if len(env.args) == 0 {
		return nil
	}
	meant, err := lookup.Chosen(ctx, pool, env.args)
	state.Pipelines = slices.DeleteFunc(state.Pipelines, func(p observe.Pipeline) bool {
		return lookup.Find(meant, p.Name) < 0
	})
	return err
}

// progress returns the progress of a pipeline. Without --watch there is only that of a scan, since other starts are
// unknown.
func (c *statusCommand) progress(p *report.Pipeline, now time.Time) string {
	if c.clocks == nil {
		var once report.Countdown
		if bar := once.Of(p, now); bar.Rate > 0 && bar.Done > 0 {
			return p.Name + "  " + bar.String()
		}
		return ""
	}
	if c.clocks[p.Name] == nil {
		c.clocks[p.Name] = &report.Countdown{}
	}
	bar := c.clocks[p.Name].Of(p, now).String()
	if bar == "" {
		return ""
	}
	return p.Name + "  " + bar
}

func laneTable(lanes []report.Lane) output.Table {
	columns := []string{"pipeline", "priority", "state", ">rows", ">oldest", ">newest", ">average"}
	return output.Rows(lanes, columns, func(l *report.Lane) []any {
		return []any{
			l.Pipeline, l.Priority, l.State, l.Rows, wording.Age(l.Oldest), wording.Age(l.Newest),
			wording.Age(l.Average / 1000), // milliseconds
		}
	})
}

func pipelineTable(pipelines []observe.Pipeline) output.Table {
	columns := []string{
		"pipeline", "model", ">coverage", ">rows", ">pending", ">running", ">retrying", ">failed", ">cancelled", ">oldest",
		">tokens", "index", "state",
	}
	return output.Rows(pipelines, columns, func(p *observe.Pipeline) []any {
		oldest := ""
		if p.OldestSeconds != nil {
			oldest = wording.Age(*p.OldestSeconds)
		}
		return []any{
			p.Name, cmp.Or(p.Model, p.Plugin), p.CoverageWord(), p.Rows, p.Pending, p.Running, p.Retrying, p.Failed, p.Cancelled,
			oldest, p.Tokens, p.IndexWord(), p.Word(),
		}
	})
}

func sidecarTable(sidecars []report.Sidecar) output.Table {
	columns := []string{"sidecar", "stream", ">seen", ">done 24h", ">failed 24h", "version"}
	return output.Rows(sidecars, columns, func(s *report.Sidecar) []any {
		stream := string(s.Stream)
		if s.Stream == health.NoStream {
			stream = "works only"
		}
		if s.StreamDetail != "" {
			stream += ": " + s.StreamDetail
		}
		return []any{s.Instance, stream, wording.Age(s.SeenSecondsAgo) + " ago", s.Succeeded, s.GivenUp, s.Version}
	})
}

// headOf summarizes the state in one line.
func headOf(d *observe.Database, now time.Time) string {
	var open, failed, act int64
	for i := range d.Pipelines {
		p := &d.Pipelines[i]
		open, failed = open+p.Open(), failed+p.Failed
		if p.NeedsAct {
			act++
		}
	}
	what := "all is well"
	if act > 0 {
		what = "attention: " + wording.Count(act, "pipeline")
	}
	return fmt.Sprintf("embedsidecar %s  %s; %s, %s to embed, %d failed, %s", now.UTC().Format(time.DateTime), what,
		wording.Count(int64(len(d.Pipelines)), "pipeline"), wording.Count(open, "row"), failed,
		wording.Count(int64(len(d.Sidecars)), "sidecar"))
}
