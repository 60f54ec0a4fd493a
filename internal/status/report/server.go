package report

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/queue"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// taskCap is the limit of exact counts of tasks.
const taskCap = 100_000

type server struct {
	db   database.DB
	late *atomic.Int32 // how often the server took too long for a table
}

// A table is counted within countTime, after one that takes longer within leastCountTime, and after mostLate such
// tables not at all: a plan may evaluate code of the table's owner that never ends, and all pipelines wait for it.
const (
	countTime      = 5 * time.Second
	leastCountTime = time.Second
	mostLate       = 5
)

var errLate = errors.New("the server takes too long to count tables")

// brief runs a statement on the rows of source tables.
func (s server) brief(ctx context.Context, tx pgx.Tx, sql string, into any, args ...any) error {
	limit := countTime
	switch late := s.late.Load(); {
	case late >= mostLate:
		return errLate
	case late > 0:
		limit = leastCountTime
	}
	err := database.Limited(ctx, limit+time.Second, func(ctx context.Context) error {
		if err := database.Within(ctx, tx, limit); err != nil {
			return err
		}
		return tx.QueryRow(ctx, sql, args...).Scan(into)
	})
	if database.Judge(err) == database.Canceled {
		s.late.Add(1)
	}
	return err
}

func collect[T any](ctx context.Context, db database.Reader, what string, scan pgx.RowToFunc[T], query string,
	args ...any,
) (list []T, err error) {
	list, err = database.Collect(ctx, db, query, scan, args...)
	return list, wrap.Errorf(err, "%s", what)
}

func (s server) slots(ctx context.Context) ([]Slot, error) {
	return collect(ctx, s.db, "read the slots", pgx.RowToStructByPos[Slot], "status_slots")
}

func (s server) sidecars(ctx context.Context) ([]Sidecar, error) {
	return collect(ctx, s.db, "read the sidecars", pgx.RowToStructByPos[Sidecar], "status_workers")
}

func (s server) pipelines(ctx context.Context, found map[int32]Found, only int32) ([]Pipeline, error) {
	args := pgx.StrictNamedArgs{"cap": taskCap, "found": found, "only": database.Given(only)}
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

// read runs a statement on the rows of a source table, unless that would run another role's code with a superuser's
// rights.
func (s server) read(ctx context.Context, table, query string, into any, args ...any) error {
	return database.ReadOnly(ctx, s.db, func(tx pgx.Tx) error {
		var oid uint32
		var rows string // a plain table is read without the tables that inherit from it
		if err := tx.QueryRow(ctx, `SELECT oid, CASE WHEN relkind <> 'p' THEN 'ONLY ' ELSE '' END || $1 FROM pg_class
			WHERE oid = $1::regclass`, table).Scan(&oid, &rows); err != nil {
			return err
		}
		if err := catalog.Unruly(ctx, tx, oid); err != nil {
			return err
		}
		return s.brief(ctx, tx, fmt.Sprintf(query, rows), into, args...)
	})
}

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
	return counts, wrap.Errorf(err, "count what is known of pipelines")
}

func (s server) caughtUp(ctx context.Context, slot string, lsn pglogrepl.LSN) (c CaughtUp, pipelines bool, err error) {
	err = s.db.QueryRow(ctx, sqlfiles.Query("caught_up"), pgx.StrictNamedArgs{"slot": slot, "lsn": lsn.String()}).
		Scan(&c.Decoded, &c.Open, &c.Scans, &c.Failed, &c.Cancelled, &c.PutOff, &c.Resting, &c.Unrouted, &pipelines)
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

func (s server) smallTables(ctx context.Context, most int64) ([]string, error) {
	return database.Collect(ctx, s.db, "small_tables", func(row pgx.CollectableRow) (string, error) {
		var schema, name string
		err := row.Scan(&schema, &name)
		return database.Quote(schema, name), err
	}, pgx.StrictNamedArgs{"most": most})
}

func (s server) countAll(ctx context.Context, names []string, most int64) (counts []int64, err error) {
	selects := lists.Map(names, func(name string) string {
		return fmt.Sprintf("(SELECT count(*) FROM (SELECT FROM ONLY %s LIMIT %d) AS r)", name, most)
	})
	err = database.ReadOnly(ctx, s.db, func(tx pgx.Tx) error {
		return s.brief(ctx, tx, "SELECT ARRAY["+strings.Join(selects, ", ")+"]", &counts, pgx.QueryExecModeSimpleProtocol)
	})
	return counts, err
}
