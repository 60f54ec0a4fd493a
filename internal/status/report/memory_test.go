package report

import (
	"context"
	"slices"
	"sync"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
)

// memory is an installation in memory, for tests of the report. It knows no SQL; other tests run the queries on a real
// server.
type memory struct {
	set       []Slot
	running   []Sidecar
	installed []Pipeline        // as stored in the tables
	found     map[int32]Found   // as found in the catalog
	plans     map[string]string // by table; none: the role may not read it
	size      int64             // of a table
	ledger    int64             // of a pipeline
	small     []string          // tables that are counted together

	progress CaughtUp
	news     int64 // altered pipelines
	absent   bool  // there is no checkpoint

	refuse map[string]error // errors by query
	asked  []string
}

var (
	_ tables   = (*memory)(nil)
	_ progress = (*memory)(nil)
)

// noting guards the record of queries, since some run concurrently.
var noting sync.Mutex

func (m *memory) note(what string) error {
	noting.Lock()
	defer noting.Unlock()
	m.asked = append(m.asked, what)
	return m.refuse[what]
}

func (m *memory) slots(context.Context) ([]Slot, error) { return m.set, m.note("slots") }

func (m *memory) sidecars(context.Context) ([]Sidecar, error) { return m.running, m.note("sidecars") }

func (m *memory) pipelines(_ context.Context, found map[int32]Found, _ int32) ([]Pipeline, error) {
	m.found = found
	return slices.Clone(m.installed), m.note("pipelines")
}

func (m *memory) plan(_ context.Context, table string) (string, error) {
	err := m.note("plan")
	if plan, ok := m.plans[table]; ok {
		return plan, err
	}
	return "", pgx.ErrNoRows
}

func (m *memory) rows(_ context.Context, _ string, most int64) (int64, error) {
	return min(m.size, most), m.note("rows")
}

func (m *memory) smallTables(context.Context, int64) ([]string, error) {
	if err := m.note("small"); err != nil {
		return nil, err
	}
	return m.small, nil
}

func (m *memory) countAll(_ context.Context, names []string, most int64) ([]int64, error) {
	return slices.Repeat([]int64{min(m.size, most)}, len(names)), m.note("all")
}

func (m *memory) countKnown(_ context.Context, list []Pipeline) (map[int32]int64, error) {
	known := map[int32]int64{}
	for i := range list {
		known[list[i].ID] = m.ledger
	}
	return known, m.note("ledger")
}

func (m *memory) caughtUp(context.Context, string, pglogrepl.LSN) (CaughtUp, bool, error) {
	if err := m.note("queue"); err != nil {
		return CaughtUp{}, false, err
	}
	if m.absent {
		return CaughtUp{}, false, pgx.ErrNoRows
	}
	return m.progress, len(m.installed) > 0, nil
}

func (m *memory) altered(context.Context, string) (int64, error) { return m.news, m.note("catalogue") }

func (m *memory) ask(_ context.Context, lsn *string) (pglogrepl.LSN, error) {
	m.progress.Decoded = true // the streamer got the request
	if lsn == nil {
		return 0, m.note("hurry")
	}
	return 0, m.note("hurry to " + *lsn)
}
