package report

import (
	"context"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

// several are tables of which many can be asked at once.
type several interface {
	tables
	// smallTables are the quoted names of tables that have up to so many rows by what the last ANALYZE says.
	smallTables(ctx context.Context, most int64) ([]string, error)
	// countAll counts the rows of each of some tables, up to so many.
	countAll(ctx context.Context, names []string, most int64) ([]int64, error)
	// countKnown is known of some pipelines, by their numbers.
	countKnown(ctx context.Context, list []Pipeline) (map[int32]int64, error)
}

// together asks of many pipelines at once what a server is asked of few one after the other: a thousand statements
// take longer than what they ask for.
type together struct {
	several

	upTo      int64 // rows up to which a table is counted
	atOnce    int   // statements that count
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

// pipelines counts small tables beside, if there are many: to say where their pipelines stand takes as long.
func (t *together) pipelines(ctx context.Context, found map[int32]Found, only int32) (list []Pipeline, err error) {
	var counting sync.WaitGroup
	defer counting.Wait()
	if t.atOnce > 1 && t.upTo >= 0 && only == 0 {
		if names, _ := t.smallTables(ctx, t.upTo); len(names) >= many {
			counting.Go(func() { t.countFew(ctx, names) })
		}
	}
	list, err = t.several.pipelines(ctx, found, only)
	t.pipelined = list
	return list, err
}

// plan has nothing to say of a table that is counted with others.
func (t *together) plan(ctx context.Context, table string) (string, error) {
	if len(t.pipelined) < many {
		return t.several.plan(ctx, table)
	}
	if t.upTo < 0 { // nobody asks: what the last ANALYZE says will do
		return "", pgx.ErrNoRows
	}
	if t.few == nil {
		names, _ := t.smallTables(ctx, t.upTo) // where nobody can tell, each is counted by itself
		t.countFew(ctx, names)
	}
	if _, is := t.few[table]; is {
		return "", nil
	}
	return t.several.plan(ctx, table)
}

func (t *together) rows(ctx context.Context, table string, most int64) (int64, error) {
	if n, is := t.few[table]; is {
		return n, nil
	}
	return t.several.rows(ctx, table, most)
}

// countFew counts small tables, many in a statement. Those of a statement that fails, as a table of it is locked, are
// counted one by one.
func (t *together) countFew(ctx context.Context, names []string) {
	t.few = map[string]int64{}
	var mu sync.Mutex
	var all errgroup.Group
	all.SetLimit(max(t.atOnce, 1))
	for part := range slices.Chunk(names, oneStatement) {
		all.Go(func() error {
			counts, err := t.countAll(ctx, part, t.upTo+1)
			if err != nil {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			for i, name := range part {
				t.few[name] = counts[i]
			}
			return nil
		})
	}
	_ = all.Wait()
}

func (t *together) known(ctx context.Context, p *Pipeline) (int64, error) {
	if len(t.pipelined) < many {
		return t.several.known(ctx, p)
	}
	if t.ledger == nil {
		var err error
		if t.ledger, err = t.countKnown(ctx, t.pipelined); err != nil {
			return 0, err
		}
	}
	return t.ledger[p.ID], nil
}
