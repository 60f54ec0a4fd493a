package report

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

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
