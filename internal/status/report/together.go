package report

import (
	"context"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
)

const (
	// many is from how many pipelines on they are asked about together.
	many = 50
	// oneStatement is how many tables a statement counts: it locks each of them.
	oneStatement = 100
)

// small counts the tables that are small, as more than one small table is asked of at once: a thousand statements take
// longer than what they ask for. Of many it goes on while others are asked, with up to so many statements at once, until
// wait is called, which returns the rows by the tables' quoted names.
func small(ctx context.Context, db tables, upTo int64, atOnce int) (wait func() map[string]int64) {
	names, _ := db.smallTables(ctx, upTo) // where nobody can tell, each is counted by itself
	counted := make(chan map[string]int64, 1)
	if atOnce > 1 && len(names) >= many {
		go func() { counted <- countFew(ctx, db, names, upTo, atOnce) }()
	} else {
		counted <- countFew(ctx, db, names, upTo, atOnce)
	}
	return func() map[string]int64 { return <-counted }
}

// countFew counts small tables, many in a statement. Those of a statement that fails, as a table of it is locked, are
// counted one by one.
func countFew(ctx context.Context, db tables, names []string, upTo int64, atOnce int) map[string]int64 {
	few := map[string]int64{}
	var mu sync.Mutex
	var all errgroup.Group
	all.SetLimit(atOnce)
	for part := range slices.Chunk(names, oneStatement) {
		all.Go(func() error {
			counts, err := db.countAll(ctx, part, upTo+1)
			mu.Lock()
			defer mu.Unlock()
			for i, n := range counts {
				if err == nil {
					few[part[i]] = n
				}
			}
			return nil
		})
	}
	_ = all.Wait()
	return few
}
