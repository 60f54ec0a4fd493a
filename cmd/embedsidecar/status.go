package main

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/door/top"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// statusCommand shows where every pipeline stands.
type statusCommand struct {
	watch  bool
	lanes  bool
	every  time.Duration
	memory *observe.Memory // with watch: what is known is not counted each time
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
			own.duration("every", &c.every, "`TIME` between two refreshes of --watch"),
			own.toggle("lanes", &c.lanes,
				"also count rows by priority and state, with their ages; counts all of them, once"),
		},
		settings: databaseGroups, reach: eachDatabase,
		run: c.run,
	}
}

func (c *statusCommand) run(ctx context.Context, env *environment) error {
	pool, err := env.lookAt(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	switch {
	case c.lanes && c.watch:
		return misuse("--lanes counts all rows that wait: not again and again, with --watch")
	case !c.watch:
		return c.once(ctx, env, pool)
	case output.IsTerminal(env.stdout) && env.out.ForPeople():
		return env.watch(ctx, pool, c.every)
	}
	c.memory, c.clocks = &observe.Memory{}, map[string]*report.Countdown{}
	for {
		if err := c.once(ctx, env, pool); err != nil && ctx.Err() == nil {
			return err
		}
		if !sleep.For(ctx, c.every) {
			return nil // that is how it is told to stop
		}
	}
}

// lookAt connects to a database that can be asked how it stands. The caller closes the pool.
func (e *environment) lookAt(ctx context.Context) (*pgxpool.Pool, error) {
	pool, err := e.connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := catalog.CheckVersion(ctx, pool); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

func (c *statusCommand) once(ctx context.Context, env *environment, pool *pgxpool.Pool) error {
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
		names := make([]string, len(state.Pipelines))
		for i := range state.Pipelines {
			names[i] = state.Pipelines[i].Name
		}
		if state.Lanes, err = report.Lanes(ctx, pool, names); err != nil {
			return err
		}
	}
	if !env.out.ForPeople() {
		return env.out.Show(state, func() output.Table { return pipelineTable(state.Pipelines) })
	}
	for _, s := range state.Slots {
		if err := env.printf("%s\n", wording.OneLine(s.Line())); err != nil {
			return err
		}
	}
	if len(state.Slots) == 0 {
		return env.printf("no pipeline is set up yet: embedsidecar init\n")
	}
	if err := env.out.Table(pipelineTable(state.Pipelines)); err != nil {
		return err
	}
	if c.lanes {
		if err := env.out.Table(laneTable(state.Lanes)); err != nil {
			return err
		}
	}
	var lines []string
	for i := range state.Pipelines {
		lines = append(lines, c.progress(&state.Pipelines[i].Pipeline), state.Pipelines[i].SpeedLine(),
			state.Pipelines[i].BudgetLine(), report.BatchLine(state.Pipelines[i].Name, state.Pipelines[i].BatchJobs))
	}
	for _, line := range append(lines, state.SavedLines()...) {
		if line == "" {
			continue
		}
		if err := env.printf("%s\n", wording.OneLine(line)); err != nil {
			return err
		}
	}
	for _, line := range state.Remarks() {
		if err := env.printf("! %s\n", wording.OneLine(line)); err != nil {
			return err
		}
	}
	return nil
}

// choose leaves the pipelines that are named, if any are.
func (c *statusCommand) choose(ctx context.Context, env *environment, pool *pgxpool.Pool, state *observe.Database,
) error {
	if len(env.args) == 0 {
		return nil
	}
	meant, err := lookup.Brief(ctx, pool, env.args)
	state.Pipelines = slices.DeleteFunc(state.Pipelines, func(p observe.Pipeline) bool {
		return lookup.Find(meant, p.Name) < 0
	})
	return err
}

// progress is how far a pipeline is that works. Who looks once is told of a scan: where others began nobody knows.
func (c *statusCommand) progress(p *report.Pipeline) string {
	if c.clocks == nil {
		var once report.Countdown
		if bar := once.Of(p, time.Now()); bar.Rate > 0 && bar.Done > 0 {
			return p.Name + "  " + bar.String()
		}
		return ""
	}
	if c.clocks[p.Name] == nil {
		c.clocks[p.Name] = &report.Countdown{}
	}
	bar := c.clocks[p.Name].Of(p, time.Now()).String()
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
			wording.Age(l.Average / 1000), //nolint:mnd // milliseconds
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

// watch shows frames on a terminal until it is interrupted.
func (e *environment) watch(ctx context.Context, pool *pgxpool.Pool, every time.Duration) (err error) {
	var view top.View
	memory := &observe.Memory{}
	frame := func() ([]byte, error) {
		d, err := observe.Read(ctx, pool, memory, e.redact.Text)
		if err != nil {
			return nil, err
		}
		var b bytes.Buffer
		to := *e.out
		to.To = &b
		err = view.Frame(&d, time.Now()).Print(&b, func(t top.Table) error { return to.Table(output.Table(t)) })
		return b.Bytes(), err
	}
	screen := output.Screen{Keys: e.stdin, To: e.stdout}
	ctx, leave, err := screen.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	for {
		b, err := frame()
		switch {
		case ctx.Err() != nil:
			return nil // that is how it is told to stop
		case err != nil:
			return err
		}
		if err := screen.Paint(b); err != nil {
			return err
		}
		if !sleep.For(ctx, every) {
			return nil
		}
	}
}
