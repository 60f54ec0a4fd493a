package sidecar_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/embedsidecar/embedsidecar/internal/base/limit"
	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// crossing is what an embedder sees of the rows that come to it.
type crossing struct {
	mu     sync.Mutex
	inside int
	most   int // rows at once
	order  []string
	held   func(text string) bool // is not answered before the gate opens; nil: nothing is
	gate   chan struct{}
	stuck  map[string]bool // that wait at the gate
}

func (c *crossing) hook(ctx context.Context, texts []string) error {
	c.mu.Lock()
	c.inside += len(texts)
	c.most = max(c.most, c.inside)
	c.order = append(c.order, texts...)
	var gate chan struct{}
	if c.held != nil && slices.ContainsFunc(texts, c.held) {
		gate = c.gate
		for _, text := range texts {
			c.stuck[text] = true
		}
	}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.inside -= len(texts)
		c.mu.Unlock()
	}()
	if gate == nil {
		return nil
	}
	select {
	case <-gate:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// close has texts wait until open is called.
func (c *crossing) close(held func(text string) bool) (open func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held, c.gate, c.order, c.stuck = held, make(chan struct{}), nil, map[string]bool{}
	gate := c.gate
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.held = nil
		close(gate)
	})
}

// seen returns the texts that came, in their order, and how many wait at the gate.
func (c *crossing) seen() (order []string, stuck int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.order), len(c.stuck)
}

// urgent makes tables whose rows say how urgent they are, and pipelines of them into both destinations.
func urgent(t *testing.T) *rig {
	t.Helper()
	db := testenv.DB(t)
	specs := []pipeline.Spec{intoTable("docs", "body"), column("notes", "body")}
	for i := range specs {
		specs[i].PriorityBy = "coalesce(urgency, 'normal')"
		db.MustExec(`CREATE TABLE ` + specs[i].Table + ` (id bigint PRIMARY KEY, body text, urgency text)`)
	}
	r := newRig(t, db, specs...)
	db.MustExec(`GRANT SELECT (urgency) ON docs, notes TO ` + r.role)
	r.known()
	return r
}

// Whatever changes come to whichever pipeline, worked at once or by the queue: with one row in work at a time the
// embedder never has two, also while it is late with one that was given up; and of what waits in a pipeline the most
// urgent row goes first, of the same urgency the oldest.
func TestProperty_SequentialWorkIsOneRowAtATimeInOrder(t *testing.T) {
	t.Parallel()
	r := urgent(t)
	c := &crossing{}
	r.embedder.hook(c.hook)
	r.options = func(o *sidecar.Options) {
		o.NoDirect, o.InWork, o.Quick = false, limit.NewInWork(1), 200*time.Millisecond
	}
	r.start()
	r.settle()
	version := 0
	rapid.Check(t, func(rt *rapid.T) {
		version++
		plug := fmt.Sprint("plug ", version)
		open := c.close(func(text string) bool { return text == plug })
		defer open()
		change := func(table string, id int, text, urgency string) {
			r.db.MustExec(`INSERT INTO `+table+` VALUES ($1, $2, $3) ON CONFLICT (id) DO UPDATE
				SET body = excluded.body, urgency = excluded.urgency`, id, text, urgency)
		}
		change(rapid.SampledFrom([]string{"docs", "notes"}).Draw(rt, "table of the plug"), 0, plug, "normal")
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			_, stuck := c.seen()
			return stuck == 1, "the plug is not in work"
		})
		for range rapid.IntRange(1, 8).Draw(rt, "changes") {
			version++
			table, id := rapid.SampledFrom([]string{"docs", "notes"}).Draw(rt, "table"), rapid.IntRange(1, 6).Draw(rt, "id")
			change(table, id, fmt.Sprintf("%s %d in version %d", table, id, version),
				rapid.SampledFrom([]string{"low", "normal", "high", "urgent"}).Draw(rt, "urgency"))
		}
		// The last one is queued behind all others, so whoever works these knows of them by then.
		version++
		change("docs", 7, fmt.Sprint("docs 7 in version ", version), "low")
		type row struct{ Pipeline, Text string }
		var want []row
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			want = testenv.Rows[row](r.db, `SELECT p.name AS pipeline, coalesce(d.body, n.body) AS text
				FROM embedsidecar.task AS t JOIN embedsidecar.pipeline AS p USING (pipeline_id)
				LEFT JOIN docs AS d ON p.name = 'docs' AND d.id::text = t.row_key
				LEFT JOIN notes AS n ON p.name = 'notes' AND n.id::text = t.row_key
				WHERE t.row_key <> '0' ORDER BY t.lane DESC, t.seq`)
			return slices.ContainsFunc(want, func(w row) bool { return w.Text == fmt.Sprint("docs 7 in version ", version) }),
				fmt.Sprint(want)
		})
		if order, _ := c.seen(); len(order) != 1 {
			rt.Fatalf("came beside the plug: %v", order)
		}
		open()
		r.settle()
		got := map[string][]string{}
		order, _ := c.seen()
		for _, text := range order {
			if table, _, _ := strings.Cut(text, " "); table != "plug" {
				got[table] = append(got[table], text)
			}
		}
		wanted := map[string][]string{}
		for _, w := range want {
			wanted[w.Pipeline] = append(wanted[w.Pipeline], w.Text)
		}
		for _, name := range []string{"docs", "notes"} {
			if !slices.Equal(got[name], wanted[name]) {
				rt.Fatalf("%s came as\n%q, want\n%q", name, got[name], wanted[name])
			}
		}
		if c.most > 1 {
			rt.Fatalf("%d rows were in work at once", c.most)
		}
	})
	r.embedder.hook(nil)
	r.verify()
}

// However much bulk work hangs in the embedder, and whatever the limit of rows in work is from two on: each live change
// is embedded meanwhile, and no more rows are in work than the limit lets in.
func TestProperty_BulkWorkKeepsNoLiveChangeWaiting(t *testing.T) {
	t.Parallel()
	r := urgent(t)
	c := &crossing{}
	r.embedder.hook(c.hook)
	places := limit.NewInWork(0)
	r.options = func(o *sidecar.Options) {
		o.InWork, o.BatchRows, o.Quick = places, 4, waitTimeout // however long it takes to ask rows how urgent they are
	}
	r.start()
	r.settle()
	version := 0
	rapid.Check(t, func(rt *rapid.T) {
		most := rapid.SampledFrom([]int{0, 2, 3, 8, 100}).Draw(rt, "rows in work at most")
		places.Set(most)
		c.mu.Lock()
		c.most = 0
		c.mu.Unlock()
		n := rapid.IntRange(1, 40).Draw(rt, "rows of bulk work")
		version++
		open := c.close(func(text string) bool { return strings.HasPrefix(text, "bulk") })
		defer open()
		for _, table := range []string{"docs", "notes"} { // in the lane of backfills
			r.db.MustExec(`INSERT INTO `+table+` SELECT i, 'bulk `+table+` ' || i || ' in version ' || $2::int, 'low'
				FROM generate_series(100, 99 + $1::int) AS i ON CONFLICT (id) DO UPDATE SET body = excluded.body`, n, version)
		}
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			_, stuck := c.seen()
			return stuck > 0, "no bulk work is in work"
		})
		for range rapid.IntRange(1, 4).Draw(rt, "live changes") {
			version++
			table, id := rapid.SampledFrom([]string{"docs", "notes"}).Draw(rt, "table"), rapid.IntRange(1, 6).Draw(rt, "id")
			text := fmt.Sprintf("live %s %d in version %d", table, id, version)
			r.db.MustExec(`INSERT INTO `+table+` VALUES ($1, $2, $3) ON CONFLICT (id) DO UPDATE
				SET body = excluded.body, urgency = excluded.urgency`, id, text,
				rapid.SampledFrom([]string{"normal", "high", "urgent"}).Draw(rt, "urgency"))
			testenv.Eventually(t, waitTimeout, func() (bool, string) {
				order, stuck := c.seen()
				return slices.Contains(order, text), fmt.Sprintf("%s waits for %d rows of bulk work", text, stuck)
			})
		}
		order, stuck := c.seen()
		bulk := len(order)
		bulk -= len(slices.DeleteFunc(order, func(s string) bool { return strings.HasPrefix(s, "bulk") }))
		if bulk != stuck {
			rt.Fatalf("%d of %d rows of bulk work wait in the embedder", stuck, bulk)
		}
		open()
		r.settle()
		if most > 0 && c.most > most {
			rt.Fatalf("%d rows were in work at once, at most %d", c.most, most)
		}
	})
	r.embedder.hook(nil)
	r.verify()
}
