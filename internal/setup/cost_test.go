package setup_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	"github.com/embedsidecar/embedsidecar/internal/status/check"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// meter counts statements, and the rows that they return.
type meter struct {
	mu    sync.Mutex
	kinds map[string]*metered
}

type metered struct {
	statements, rows int64
	took             time.Duration
}

type begun struct {
	kind string
	at   time.Time
}

type begunKey struct{}

func (m *meter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	kind, _, _ := strings.Cut(strings.TrimPrefix(data.SQL, "-- "), ":")
	return context.WithValue(ctx, begunKey{}, begun{kind[:min(len(kind), 40)], time.Now()})
}

func (m *meter) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	b := ctx.Value(begunKey{}).(begun)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.kinds[b.kind] == nil {
		m.kinds[b.kind] = &metered{}
	}
	k := m.kinds[b.kind]
	k.statements++
	k.rows += data.CommandTag.RowsAffected()
	k.took += time.Since(b.at)
}

// of returns the cost of do, in statements and rows.
func (m *meter) of(t *testing.T, what string, n int, do func()) (cost int64) {
	t.Helper()
	m.mu.Lock()
	m.kinds = map[string]*metered{}
	m.mu.Unlock()
	began := time.Now()
	do()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range m.kinds {
		cost += k.statements + k.rows
	}
	t.Logf("%s of %d pipelines: %d in %s", what, n, cost, time.Since(began).Round(time.Millisecond))
	kinds := slices.SortedFunc(maps.Keys(m.kinds),
		func(a, b string) int { return cmp.Compare(m.kinds[b].rows, m.kinds[a].rows) })
	for _, kind := range kinds[:min(len(kinds), 8)] {
		k := m.kinds[kind]
		t.Logf("  %-40q %5d statements %6d rows %s", kind, k.statements, k.rows, k.took.Round(time.Millisecond))
	}
	return cost
}

// wantRows checks how many rows queries returned; -1: they did not run.
func (m *meter) wantRows(t *testing.T, want map[string]int64) {
	t.Helper()
	for kind, rows := range want {
		got := int64(-1)
		if k := m.kinds[kind]; k != nil {
			got = k.rows
		}
		if got != rows {
			t.Errorf("%s returned %d rows, want %d (-1: it does not run)", kind, got, rows)
		}
	}
}

// TestP9_WhatAPipelineCostsDoesNotGrowWithTheirNumber: the cost is measured in statements and returned rows, for each
// operation on all pipelines. EMBEDSIDECAR_PIPELINES=1000 tests a larger number.
func TestP9_WhatAPipelineCostsDoesNotGrowWithTheirNumber(t *testing.T) {
	t.Parallel()
	costs := func(n int) map[string]float64 {
		b := newBase(t)
		var specs []pipeline.Spec
		for i := range n {
			name := fmt.Sprintf("t%04d", i)
			b.MustExec("CREATE TABLE public." + name + " (id bigint PRIMARY KEY, title text, body text)")
			specs = append(specs, pipeline.Spec{
				Name: name, Schema: "public", Table: name, Columns: []string{"title", "body"}, IntoTable: name + "_embedding",
				Priority: pipeline.Normal, Enabled: true,
			})
		}
		m := &meter{}
		config := b.pool.Config()
		config.ConnConfig.Tracer = m
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		o := b.options(b.SlotName(), specs...)
		o.Pool = pool
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		all := map[string]float64{}
		var loader resolve.Loader
		load := func() (loaded []pipeline.Pipeline) {
			t.Helper()
			loaded, err := loader.Load(t.Context(), pool, o.Slot)
			must(err)
			return loaded
		}
		for _, step := range []struct {
			what string
			do   func()
		}{
			{"init", func() { b.init(o) }},
			{"init again", func() { b.init(o) }},
			{"load", func() { load() }},
			{"load again", func() { load() }},
			{"check", func() {
				for _, f := range b.check(o) {
					if f.Status == check.Wrong {
						t.Errorf("%+v", f)
					}
				}
			}},
			{"status", func() { _, err := report.Read(t.Context(), pool); must(err) }},
		} {
			all[step.what] = float64(m.of(t, step.what, n, step.do)) / float64(n)
			if step.what == "load again" {
				m.wantRows(t, map[string]int64{"stored_pipelines": -1, "strangers": -1})
			}
		}
		if again := all["load again"]; again > all["load"]/5 {
			t.Errorf("what is as it was costs %.1f statements and rows to load again, at first %.1f", again, all["load"])
		}
		// Changes are noticed immediately, or after a caller that meets them calls Forget.
		broken := func(what, name string) {
			t.Helper()
			for _, p := range load() {
				if (p.Status != pipeline.Active) != (p.Name == name) {
					t.Errorf("%s: pipeline %s is %s: %s", what, p.Name, p.Status, p.Detail)
				}
			}
		}
		broken("at first", "")
		b.MustExec("ALTER TABLE t0001 RENAME body TO text; ALTER TABLE t0001 ADD body int")
		load()
		b.MustExec("ALTER TABLE t0001 DROP body; ALTER TABLE t0001 DROP text")
		broken("a column is gone", "t0001")
		b.MustExec("UPDATE embedsidecar.pipeline SET source_columns = '{title}', watched_columns = '{title}' WHERE name = 't0001'")
		m.of(t, "load with one that changed", n, func() { broken("it is mended", "") })
		m.wantRows(t, map[string]int64{"stored_pipelines": 1})
		b.MustExec("REVOKE ALL ON t0002_embedding FROM " + testenv.Owner)
		loader.Forget()
		m.of(t, "load of what is forgotten", n, func() { broken("a privilege is gone", "t0002") })
		m.wantRows(t, map[string]int64{"strangers": 0})
		return all
	}
	number := 40
	if text := os.Getenv("EMBEDSIDECAR_PIPELINES"); text != "" {
		var err error
		if number, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	few, many := costs(5), costs(number)
	for what, cost := range many {
		if cost > 1.2*few[what] {
			t.Errorf("%s: %.1f statements and rows for each of many pipelines, %.1f of few", what, cost, few[what])
		}
	}
}
