package report

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/queue"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// taskCap is where exact counts of tasks end.
const taskCap = 100_000

type server struct{ db database.DB }

func collect[T any](ctx context.Context, db database.Reader, what string, scan pgx.RowToFunc[T], query string,
	args ...any,
) (list []T, err error) {
	if list, err = database.Collect(ctx, db, query, scan, args...); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return list, nil
}

func (s server) slots(ctx context.Context) ([]Slot, error) {
	return collect(ctx, s.db, "read the slots", pgx.RowToStructByPos[Slot], "status_slots")
}

func (s server) sidecars(ctx context.Context) ([]Sidecar, error) { return Sidecars(ctx, s.db) }

// Sidecars returns those that run.
func Sidecars(ctx context.Context, db database.DB) ([]Sidecar, error) {
	return collect(ctx, db, "read the sidecars", pgx.RowToStructByPos[Sidecar], "status_workers")
}

func (s server) pipelines(ctx context.Context, found map[int32]Found, only int32) ([]Pipeline, error) {
	args := pgx.StrictNamedArgs{"cap": taskCap, "found": found, "only": nil}
	if only != 0 {
		args["only"] = only
	}
	return collect(ctx, s.db, "read the pipelines", scanPipeline, "status_pipelines", args)
}

func scanPipeline(row pgx.CollectableRow) (p Pipeline, err error) {
	var estimate *int64
	var checkpoint *string
	var attempts *int
	err = row.Scan(&p.ID, &p.Name, &p.Slot, &p.Schema, &p.Table, &p.ReplacedBy, &p.Dropped, &p.Model, &p.Plugin,
		&p.Generation, &p.State, &p.Reason, &p.Hints, &p.Works, &p.NeedsAct, &p.Severity, &p.MayMiss,
		&p.Enabled, &p.Active, &p.Closed, &p.Status, &p.Detail, &p.Pending, &p.Running, &p.Retrying, &p.Failed,
		&p.Cancelled, &p.OldestSeconds, &p.WaitsFor,
		&p.Aside, &p.ScanPhase, &p.ScanReason, &p.ScanSeen, &p.ScanExpected, &p.ScanRate, &p.ScanLeft, &p.Tokens,
		&p.Saved.Embedded, &p.Saved.Reused, &p.Saved.Unchanged, &estimate, &checkpoint, &p.Cut, &p.Budgets, &p.BatchJobs,
		&p.SearchTokens, &p.SearchPrice, &attempts, &p.Labels)
	p.Saved.reckon(p.Tokens)
	if estimate != nil {
		p.Rows, p.RowsEstimated = *estimate, true
	}
	if checkpoint != nil {
		p.Checkpoint = *checkpoint
	}
	if attempts != nil {
		p.MaxAttempts = *attempts
	}
	return p, err
}

func (s server) plan(ctx context.Context, table string) (text string, err error) {
	err = s.read(ctx, table, "EXPLAIN (FORMAT JSON) SELECT FROM %s", &text, pgx.QueryExecModeSimpleProtocol)
	return text, err
}

func (s server) rows(ctx context.Context, table string, most int64) (n int64, err error) {
	err = s.read(ctx, table, "SELECT count(*) FROM (SELECT FROM %s LIMIT $1) AS r", &n, most)
	return n, err
}

// read runs a statement over the rows of a source table unless that would run code of somebody else with a superuser's
// rights.
func (s server) read(ctx context.Context, table, query string, into any, args ...any) error {
	return database.ReadOnly(ctx, s.db, func(tx pgx.Tx) error {
		if err := catalog.Unruly(ctx, tx, table); err != nil {
			return err
		}
		var rows string // a plain table that others inherit from is only itself
		if err := tx.QueryRow(ctx, `SELECT CASE WHEN relkind <> 'p' THEN 'ONLY ' ELSE '' END || $1 FROM pg_class
			WHERE oid = $1::regclass`, table).Scan(&rows); err != nil {
			return err
		}
		return tx.QueryRow(ctx, fmt.Sprintf(query, rows), args...).Scan(into)
	})
}

func (s server) known(ctx context.Context, p *Pipeline) (rows int64, err error) {
	counts, err := s.countKnown(ctx, []Pipeline{{ID: p.ID, Generation: p.Generation}})
	return counts[p.ID], wrap.Errorf(err, "count what is known of pipeline %q", p.Name)
}

// countKnown counts what is known of some pipelines.
func (s server) countKnown(ctx context.Context, list []Pipeline) (map[int32]int64, error) {
	ids, generations := make([]int32, len(list)), make([]int32, len(list))
	for i := range list {
		ids[i], generations[i] = list[i].ID, list[i].Generation
	}
	rows, _ := s.db.Query(ctx, sqlfiles.Query("count_known"),
		pgx.StrictNamedArgs{"pipelines": ids, "generations": generations})
	counts := map[int32]int64{}
	var id int32
	var n int64
	_, err := pgx.ForEachRow(rows, []any{&id, &n}, func() error {
		counts[id] = n
		return nil
	})
	return counts, err
}

func (s server) caughtUp(ctx context.Context, slot string, lsn pglogrepl.LSN) (c CaughtUp, pipelines bool, err error) {
	err = s.db.QueryRow(ctx, sqlfiles.Query("caught_up"), pgx.StrictNamedArgs{"slot": slot, "lsn": lsn.String()}).
		Scan(&c.Decoded, &c.Open, &c.Scans, &c.Failed, &c.Cancelled, &c.Resting, &c.Unrouted, &pipelines)
	return c, pipelines, err
}

func (s server) altered(ctx context.Context, slot string) (n int64, err error) {
	list, err := collect(ctx, s.db, "look at the catalogue", func(row pgx.CollectableRow) (bool, error) {
		return differs(row.FieldDescriptions(), row.RawValues()), nil
	}, "pipeline_catalogue", pgx.StrictNamedArgs{"slot": slot, "pipeline": nil})
	for _, other := range list {
		if other {
			n++
		}
	}
	return n, err
}

func (s server) ask(ctx context.Context, lsn *string) (at pglogrepl.LSN, err error) {
	var setting, notified string
	err = s.db.QueryRow(ctx, sqlfiles.Query("ask_streamer"), pgx.StrictNamedArgs{
		"channel": queue.Waiting,
		"lsn":     lsn,
	}).Scan(&at, &setting, &notified)
	return at, wrap.Errorf(err, "ask the streamer to hurry")
}

// together asks of many pipelines at once what a server is asked of few one after the other: a thousand statements
// take longer than what they ask for.
type together struct {
	server

	upTo      int64 // rows up to which a table is counted
	pipelined []Pipeline

	few    map[string]int64 // rows of small tables, by their quoted names; nil: not asked yet
	ledger map[int32]int64  // rows that are known, by pipeline; nil: not asked yet
}

const (
	// many is from how many pipelines on they are asked about together.
	many = 50
	// oneStatement is how many tables a statement counts: it locks each of them.
	oneStatement = 100
)

func (t *together) pipelines(ctx context.Context, found map[int32]Found, only int32) (list []Pipeline, err error) {
	list, err = t.server.pipelines(ctx, found, only)
	t.pipelined = list
	return list, err
}

// plan has nothing to say of a table that is counted with others.
func (t *together) plan(ctx context.Context, table string) (string, error) {
	if len(t.pipelined) < many {
		return t.server.plan(ctx, table)
	}
	if t.upTo < 0 { // nobody asks: what the last ANALYZE says will do
		return "", pgx.ErrNoRows
	}
	if t.few == nil {
		t.countFew(ctx)
	}
	if _, is := t.few[table]; is {
		return "", nil
	}
	return t.server.plan(ctx, table)
}

func (t *together) rows(ctx context.Context, table string, most int64) (int64, error) {
	if n, is := t.few[table]; is {
		return n, nil
	}
	return t.server.rows(ctx, table, most)
}

// countFew counts the small tables, many in a statement. Those of a statement that fails, as a table of it is locked,
// are counted one by one.
func (t *together) countFew(ctx context.Context) {
	t.few = map[string]int64{}
	names, err := database.Collect(ctx, t.db, "small_tables", func(row pgx.CollectableRow) (string, error) {
		var schema, name string
		err := row.Scan(&schema, &name)
		return database.Quote(schema, name), err
	}, pgx.StrictNamedArgs{"most": t.upTo})
	if err != nil {
		return
	}
	for len(names) > 0 {
		part := names[:min(oneStatement, len(names))]
		names = names[len(part):]
		selects := make([]string, len(part))
		for i, name := range part {
			selects[i] = fmt.Sprintf("SELECT count(*) FROM (SELECT FROM ONLY %s LIMIT %d) AS r", name, t.upTo+1)
		}
		counts := make([]int64, len(part))
		into := make([]any, len(part))
		for i := range counts {
			into[i] = &counts[i]
		}
		err := database.ReadOnly(ctx, t.db, func(tx pgx.Tx) error {
			return tx.QueryRow(ctx, "SELECT ("+strings.Join(selects, "), (")+")", pgx.QueryExecModeSimpleProtocol).Scan(into...)
		})
		for i := range part {
			if err == nil {
				t.few[part[i]] = counts[i]
			}
		}
	}
}

func (t *together) known(ctx context.Context, p *Pipeline) (int64, error) {
	if len(t.pipelined) < many {
		return t.server.known(ctx, p)
	}
	if t.ledger == nil {
		var err error
		if t.ledger, err = t.countKnown(ctx, t.pipelined); err != nil {
			return 0, err
		}
	}
	return t.ledger[p.ID], nil
}
