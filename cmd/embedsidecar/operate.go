package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/queue"
)

// switchCommand pauses pipelines, or lets them go on.
type switchCommand struct {
	on            bool
	done, already string // words for what was done, and for what was so before
}

func newPause() *command {
	c := &switchCommand{on: false, done: "paused", already: "already_paused"}
	return &command{
		name: "pause", group: groupOperate, usage: "embed nothing until resume; changes are queued meanwhile",
		arguments: "[PIPELINE...]", maxArgs: -1,
		description: "Without a name it turns the switch that is over all pipelines. What is being embedded at that moment is finished. Doing it twice does no harm; --dry-run tells what would be done.",
		settings:    databaseGroups, acts: true, run: c.run,
	}
}

func newResume() *command {
	c := &switchCommand{on: true, done: "resumed", already: "already_on"}
	return &command{
		name: "resume", group: groupOperate, usage: "take back pause", arguments: "[PIPELINE...]", maxArgs: -1,
		description: "Without a name it turns the switch that is over all pipelines; one that was paused by its name stays so. Sidecars that run notice within seconds.",
		settings:    databaseGroups, acts: true, run: c.run,
	}
}

// acted is what became of one pipeline; Pipeline is empty for the switch over all of them.
type acted struct {
	Pipeline string `json:"pipeline"`
	Result   string `json:"result"`
	Rows     int64  `json:"rows,omitempty"`
}

// everyPipeline is how the switch over all pipelines is shown.
const everyPipeline = "(all)"

func (c *switchCommand) run(ctx context.Context, env *environment) error {
	pool, pipelines, err := env.aim(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	list := []acted{}
	if len(env.args) == 0 {
		turned, err := turn(ctx, env, pool, "UPDATE embedsidecar.installation SET enabled = $1 WHERE enabled <> $1", c.on)
		if err != nil {
			return err
		}
		list = append(list, c.outcome("", turned > 0, env.dryRun))
		for i := range pipelines {
			if c.on && !pipelines[i].Enabled {
				env.say("pipeline %s stays paused: embedsidecar resume %s", pipelines[i].Name, quoted(pipelines[i].Name))
			}
		}
		return env.showActed(list)
	}
	for i := range pipelines {
		turned, err := turn(ctx, env, pool,
			"UPDATE embedsidecar.pipeline SET enabled = $1 WHERE enabled <> $1 AND pipeline_id = $2", c.on, pipelines[i].ID)
		if err != nil {
			return err
		}
		list = append(list, c.outcome(pipelines[i].Name, turned > 0, env.dryRun))
	}
	return env.showActed(list)
}

func (c *switchCommand) outcome(name string, turned, dry bool) acted {
	switch {
	case !turned:
		return acted{Pipeline: name, Result: c.already}
	case dry:
		return acted{Pipeline: name, Result: "would_be_" + c.done}
	}
	return acted{Pipeline: name, Result: c.done}
}

// errDryRun takes a transaction back that was only to tell what it would do.
var errDryRun = errors.New("dry run")

// turn runs a statement and tells how many rows it changed; a dry run is taken back.
func turn(ctx context.Context, env *environment, pool *pgxpool.Pool, sql string, args ...any) (int64, error) {
	var n int64
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, sql, args...)
		n = tag.RowsAffected()
		if err == nil && env.dryRun {
			err = errDryRun
		}
		return err
	})
	pg, _ := errors.AsType[*pgconn.PgError](err)
	switch {
	case errors.Is(err, errDryRun):
		err = nil
	case pg != nil && pg.Code == pgerrcode.InsufficientPrivilege:
		err = fail(exitPermission, err, "use the role that owns the schema embedsidecar, the one that ran embedsidecar init")
	}
	return n, err
}

// retryCommand gives dead letters another try.
type retryCommand struct{}

func newRetry() *command {
	c := &retryCommand{}
	return &command{
		name: "retry", group: groupOperate, usage: "try rows again that could not be embedded",
		arguments: "[PIPELINE...] | PIPELINE KEY...", maxArgs: -1,
		description: "Takes the dead letters of these pipelines, or of all, or of these rows alone, which embedsidecar failed names, and puts them back into the queue with all their tries. Rows that wait for their next try anyway do not wait any longer. --dry-run tells how many there are.",
		settings:    databaseGroups, acts: true, run: c.run,
	}
}

func (c *retryCommand) run(ctx context.Context, env *environment) error {
	pool, pipelines, keys, err := env.aimRows(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	list := []acted{}
	for i := range pipelines {
		if err := env.tellUnknown(ctx, pool, &pipelines[i], keys); err != nil {
			return err
		}
		n, err := retry(ctx, env, pool, pipelines[i].ID, keys)
		if err != nil {
			return err
		}
		a := acted{Pipeline: pipelines[i].Name, Result: "retried", Rows: n}
		switch {
		case n == 0:
			a.Result = "nothing_to_retry"
		case env.dryRun:
			a.Result = "would_be_retried"
		}
		list = append(list, a)
	}
	return env.showActed(list)
}

// retry opens dead letters and due retries again, all or those of some keys, as a change of the row would, and tells
// how many; a dry run only counts.
func retry(ctx context.Context, env *environment, pool *pgxpool.Pool, pipelineID int32, keys []string) (n int64,
	err error,
) {
	if env.dryRun {
		err = pool.QueryRow(ctx, "SELECT count(*) FROM embedsidecar.task WHERE pipeline_id = $1 AND state IN ('failed', 'retrying') AND ($2::text[] IS NULL OR row_key = ANY ($2))", pipelineID, keys).Scan(&n)
	} else {
		n, err = queue.Retry(ctx, pool, pipelineID, keys...)
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == pgerrcode.InsufficientPrivilege {
		err = fail(exitPermission, err, "use the role that owns the schema embedsidecar, the one that ran embedsidecar init")
	}
	return n, err
}

func (e *environment) showActed(list []acted) error {
	return e.show(map[string][]acted{"pipelines": list}, func() listing {
		l := listing{header: []string{"pipeline", "result", "rows"}, right: []int{2}}
		for _, a := range list {
			name, rows := a.Pipeline, ""
			if name == "" {
				name = everyPipeline
			}
			if a.Rows > 0 {
				rows = fmt.Sprint(a.Rows)
			}
			l.rows = append(l.rows, []any{name, a.Result, rows})
		}
		return l
	})
}
