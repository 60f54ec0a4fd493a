package report

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// A ledger that is counted again and again is counted once in countsAge, and for a hundredth of the time at most.
const (
	countsAge   = time.Minute
	countsShare = 100
)

// Counts remembers how many rows of each pipeline are known. Its zero value remembers none. It is safe for concurrent
// use.
type Counts struct {
	// Age is how old a count may become; 0: a minute. One that took long may become older.
	Age time.Duration

	mu  sync.Mutex
	set map[int32]counted
}

type counted struct {
	generation int32
	known      int64
	until      time.Time // it is as good as new
}

// Cover counts what is known of a pipeline, and works out its coverage. A nil Counts remembers nothing.
func (c *Counts) Cover(ctx context.Context, db database.DB, p *Pipeline) error {
	return c.cover(p, func() (map[int32]int64, error) { return server{db}.countKnown(ctx, []Pipeline{*p}) })
}

func (c *Counts) cover(p *Pipeline, count func() (map[int32]int64, error)) (err error) {
	p.Known, err = c.known(p, func() (int64, error) {
		all, err := count()
		return all[p.ID], err
	})
	if err == nil {
		p.Coverage = p.covered()
	}
	return err
}

// covered is how much of a table is known, from 0 to 1; nil: nobody can say.
func (p *Pipeline) covered() *float64 {
	part := 1.0
	switch {
	case p.MayMiss && p.Known > 0: // nothing at all has a vector, whatever was missed
		return nil
	case p.Rows > 0:
		part = min(1, float64(p.Known)/float64(p.Rows))
	case p.Status != string(pipeline.Active): // nobody could look: an estimate of none is no proof
		part = 0
	case !p.looked: // an estimate of none is no proof either of a table that may not be looked at
		return nil
	}
	return &part
}

// CoverageOr returns the coverage as a number.
func (p *Pipeline) CoverageOr(unknown float64) float64 {
	if p.Coverage == nil {
		return unknown
	}
	return *p.Coverage
}

// CoverageWord returns the coverage as people read it.
func (p *Pipeline) CoverageWord() string {
	switch {
	case p.Coverage == nil:
		return "unknown"
	case p.RowsEstimated:
		return wording.Percent(*p.Coverage) + " (est.)"
	}
	return wording.Percent(*p.Coverage)
}

// Among tells over how much of its table a pipeline is searched; "": over all of it.
func (p *Pipeline) Among() string {
	if p.Known >= p.Rows {
		return ""
	}
	return fmt.Sprintf("among the %d of %s that are embedded so far (%s):", p.Known, wording.Count(p.Rows, "row"),
		wording.Percent(float64(p.Known)/float64(p.Rows)))
}

// known returns how many rows of a pipeline have the vector of their text now, for all that is known. A nil Counts has
// them counted.
func (c *Counts) known(p *Pipeline, count func() (int64, error)) (rows int64, err error) {
	began := time.Now()
	if c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if last, ok := c.set[p.ID]; ok && last.generation == p.Generation && began.Before(last.until) {
			return last.known, nil
		}
	}
	if rows, err = count(); err != nil {
		return 0, err
	}
	if c != nil {
		if c.set == nil {
			c.set = map[int32]counted{}
		}
		now := time.Now()
		c.set[p.ID] = counted{p.Generation, rows, now.Add(max(cmp.Or(c.Age, countsAge), countsShare*now.Sub(began)))}
	}
	return rows, nil
}

const (
	// many is from how many pipelines on they are asked about together.
	many = 50
	// oneStatement is how many tables a statement counts: it locks each of them.
	oneStatement = 100
)

// small counts the tables that are small, many in a statement: a thousand statements take longer than what they ask
// for. Of many that goes on, with up to so many statements at once, until wait is called, which returns the rows by the
// tables' quoted names.
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
