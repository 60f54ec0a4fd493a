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

// A ledger that is counted repeatedly is counted once in countsAge, and for at most a hundredth of the time.
const (
	countsAge   = time.Minute
	countsShare = 100
)

// Counts caches the number of known rows of each pipeline. Its zero value is empty. It is safe for concurrent use.
type Counts struct {
	// Age is the maximum age of a count; 0: a minute. A slow count may become older.
	Age time.Duration

	mu  sync.Mutex
	set map[int32]counted
}

type counted struct {
	generation int32
	known      int64
	until      time.Time // it is used until then
}

// Cover counts the known rows of a pipeline, and computes its coverage. A nil Counts caches nothing.
func (c *Counts) Cover(ctx context.Context, db database.DB, p *Pipeline) error {
	return c.cover(p, func() (map[int32]int64, error) { return server{db: db}.countKnown(ctx, []Pipeline{*p}) })
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

// covered returns the known share of a table, from 0 to 1; nil: unknown.
func (p *Pipeline) covered() *float64 {
	part := 1.0
	switch {
	case p.MayMiss && p.Known > 0: // without any vector, the coverage is 0 even if changes were missed
		return nil
	case p.Rows > 0:
		part = min(1, float64(p.Known)/float64(p.Rows))
	case p.Status != string(pipeline.Active): // the table could not be read: an estimate of no rows proves nothing
		part = 0
	case !p.looked: // the role may not read the table: the same
		return nil
	}
	return &part
}

// CoverageOr returns the coverage, or unknown.
func (p *Pipeline) CoverageOr(unknown float64) float64 {
	if p.Coverage == nil {
		return unknown
	}
	return *p.Coverage
}

// CoverageWord returns the coverage for display.
func (p *Pipeline) CoverageWord() string {
	switch {
	case p.Coverage == nil:
		return "unknown"
	case p.RowsEstimated:
		return wording.Percent(*p.Coverage) + " (est.)"
	}
	return wording.Percent(*p.Coverage)
}

// Among describes the searched part of a pipeline's table; "": all of it.
func (p *Pipeline) Among() string {
	if p.Known >= p.Rows {
		return ""
	}
	return fmt.Sprintf("among the %d of %s that are embedded so far (%s):", p.Known, wording.Count(p.Rows, "row"),
		wording.Percent(float64(p.Known)/float64(p.Rows)))
}

// known returns how many rows of a pipeline have a vector that matches their current text, as far as known. A nil
// Counts always counts.
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
	// many is the number of pipelines from which they are read together.
	many = 50
	// oneStatement is how many tables one statement counts: it locks each of them.
	oneStatement = 100
)

// small counts the small tables, many in one statement, because a thousand statements take longer than the counts. With
// many tables it runs in the background, with up to atOnce statements at a time. wait returns the rows by the tables'
// quoted names.
func small(ctx context.Context, db tables, upTo int64, atOnce int) (wait func() map[string]int64) {
	names, _ := db.smallTables(ctx, upTo) // without this list, each table is counted by itself
	counted := make(chan map[string]int64, 1)
	if atOnce > 1 && len(names) >= many {
		go func() { counted <- countFew(ctx, db, names, upTo, atOnce) }()
	} else {
		counted <- countFew(ctx, db, names, upTo, atOnce)
	}
	return func() map[string]int64 { return <-counted }
}

// countFew counts small tables, many in one statement. If a statement fails, for example on a locked table, its tables
// are counted one by one.
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
