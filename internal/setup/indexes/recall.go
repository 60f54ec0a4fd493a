package indexes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// Queries is how many vectors of the table are used as queries to measure an index.
const Queries = 200

// Enough is the required recall among the nearest rows.
const (
	Enough  = 0.95
	nearest = 10
)

// Recall compares searches with an index to exact searches.
type Recall struct {
	Pipeline string    `json:"pipeline"`
	Table    string    `json:"table"`
	Index    string    `json:"index"`
	Kind     string    `json:"kind"`
	Rows     *int64    `json:"rows"`    // the server's estimate; null: unknown
	Queries  int       `json:"queries"` // vectors of the table that were used as queries
	Exact    Setting   `json:"exact"`   // without the index
	Setting  string    `json:"setting"` // hnsw.ef_search or ivfflat.probes
	Now      int       `json:"now"`     // its current value for this role
	Measured []Setting `json:"measured"`
	Enough   *Setting  `json:"enough"` // the first with a recall of 0.95 with statistical certainty; null: none has it
}

// Setting is the measurement for a value of the setting.
type Setting struct {
	Value  int     `json:"value"`
	Recall float64 `json:"recall_at_10"`
	P50    float64 `json:"p50_ms"`
	P99    float64 `json:"p99_ms"`
}

// Way describes what to set.
func (r *Recall) Way() string {
	switch {
	case r.Enough == nil && r.Kind == pipeline.IndexHNSW:
		return fmt.Sprintf("no value of %s reaches a recall of %.2f: build the index with larger m and ef_construction", r.Setting,
			Enough)
	case r.Enough == nil:
		return fmt.Sprintf("no value of %s reaches a recall of %.2f: rebuild the index (REINDEX INDEX CONCURRENTLY)", r.Setting,
			Enough)
	case r.Now >= r.Enough.Value:
		return fmt.Sprintf("%s = %d reaches a recall of %.2f; it is %d", r.Setting, r.Enough.Value, Enough, r.Now)
	}
	return fmt.Sprintf("%s = %d reaches a recall of %.2f; it is %d: ALTER ROLE ... SET %[1]s = %[2]d", r.Setting,
		r.Enough.Value, Enough, r.Now)
}

// ladders are the values to try for each kind of index.
var ladders = map[string]struct {
	setting string
	usual   int
	values  []int
}{
	pipeline.IndexHNSW:    {"hnsw.ef_search", 40, []int{10, 20, 40, 80, 120, 160, 240, 320, 480, 640, 1000}},
	pipeline.IndexIVFFlat: {"ivfflat.probes", 1, []int{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}},
}

// meter measures one index.
type meter struct {
	tx    pgx.Tx
	p     *pipeline.Pipeline
	table string
	sql   string
	args  []any // parameters after the vector and the number of rows
	found Recall
	asked []string    // query vectors
	far   [][]float64 // distances of the nearest rows to each
}

// Filtered returns a statement for the distances of the $2 rows nearest to $1 that match a filter, and the parameters
// from $3 on.
type Filtered func(ctx context.Context, tx pgx.Tx, p *pipeline.Pipeline) (sql string, args []any, err error)

// Measure searches for vectors of the pipeline's table with and without its index, in one transaction that changes
// nothing. With filtered, it searches only among the matching rows. It takes as long as that many exact searches; most
// limits their total time by reducing their number.
func Measure(ctx context.Context, pool *pgxpool.Pool, p *pipeline.Pipeline, queries int, most time.Duration,
	filtered Filtered,
) (Recall, error) {
	list, err := Of(ctx, pool, p)
	if err != nil {
		return Recall{}, err
	}
	at := slices.IndexFunc(list, func(i Index) bool { return i.State == Ready && ladders[i.Method].setting != "" })
	if at < 0 {
		e := &refusal.ConfigError{
			Pipeline: p.Name, Problem: "there is no index to measure: searches read every vector", Code: code.Destination,
		}
		for _, i := range list {
			e.Hint = append(e.Hint, i.SQL...)
		}
		e.Hint = append(e.Hint, "or have it built: index: hnsw in the configuration")
		return Recall{}, e
	}
	m := &meter{p: p, found: Recall{
		Pipeline: p.Name, Table: list[at].Table, Index: list[at].Name, Kind: list[at].Method, Rows: list[at].Rows,
		Setting: ladders[list[at].Method].setting, Measured: []Setting{},
	}}
	m.table = p.VectorTable()
	if p.InSource() {
		m.table = p.Rows()
	}
	typed := "$1::text::" + p.Stored.Column(p.Extension, p.Dims)
	distance := p.Between("r."+database.Quote(p.VectorColumn()), typed)
	m.sql = "SELECT " + distance + " FROM " + m.table + " AS r ORDER BY " + distance + " LIMIT $2"
	err = database.ReadOnly(ctx, pool, func(tx pgx.Tx) error {
		m.tx = tx
		return m.measure(ctx, queries, most, filtered)
	})
	return m.found, wrap.Errorf(err, "measure the index of pipeline %q", p.Name)
}

func (m *meter) measure(ctx context.Context, queries int, most time.Duration, filtered Filtered) (err error) {
	ladder := ladders[m.found.Kind]
	m.found.Now = ladder.usual
	var now string
	if err := m.tx.QueryRow(ctx, "SELECT coalesce(current_setting($1, true), '')", ladder.setting).Scan(&now); err != nil {
		return err
	}
	if n, err := strconv.Atoi(now); err == nil {
		m.found.Now = n
	}
	if filtered != nil {
		if m.sql, m.args, err = filtered(ctx, m.tx, m.p); err != nil {
			return err
		}
	}
	if err := m.draw(ctx, queries); err != nil {
		return err
	}
	if len(m.asked) == 0 {
		return errors.New("the table holds no vector")
	}
	if err := m.exact(ctx, most); err != nil {
		return err
	}
	m.found.Queries = len(m.asked)
	values := slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(ladder.values), m.found.Now))))
	for _, value := range values {
		if m.found.Enough != nil && value > m.found.Now {
			break
		}
		s, sure, err := m.with(ctx, value)
		if err != nil {
			return err
		}
		m.found.Measured = append(m.found.Measured, s)
		if m.found.Enough == nil && sure >= Enough {
			m.found.Enough = &s
		}
	}
	return nil
}

// draw picks random query vectors.
func (m *meter) draw(ctx context.Context, n int) error {
	column := "r." + database.Quote(m.p.VectorColumn())
	share := 100.0
	const spread = 50 // factor of candidates to draw from
	if m.found.Rows != nil && *m.found.Rows > int64(spread*n) {
		share = share * float64(spread*n) / float64(*m.found.Rows)
	}
	rows, err := m.tx.Query(ctx, "SELECT "+column+"::text FROM "+m.table+" AS r TABLESAMPLE BERNOULLI ($1::real) WHERE "+
		column+" IS NOT NULL ORDER BY random() LIMIT $2", share, n)
	if err != nil {
		return err
	}
	m.asked, err = pgx.CollectRows(rows, pgx.RowTo[string])
	return err
}

// exact searches without the index.
func (m *meter) exact(ctx context.Context, most time.Duration) error {
	if _, err := m.tx.Exec(ctx, "SELECT set_config('enable_indexscan', 'off', true)"); err != nil {
		return err
	}
	began := time.Now()
	var took []time.Duration
	for i, vector := range m.asked {
		const least = 20
		if i >= least && time.Since(began) > most {
			m.asked = m.asked[:i]
			break
		}
		distances, d, err := m.search(ctx, vector)
		if err != nil {
			return err
		}
		m.far, took = append(m.far, distances), append(took, d)
	}
	m.found.Exact = settingOf(0, took)
	m.found.Exact.Recall = 1
	// Make the planner use the vector index, even without statistics, for a small table, or with an index that fits the
	// filter.
	_, err := m.tx.Exec(ctx, "SELECT set_config('enable_indexscan', 'on', true), set_config('enable_seqscan', 'off', true), "+
		"set_config('enable_sort', 'off', true)")
	return err
}

// with searches by the index with a value of its setting. sure is the recall minus two standard errors, a lower bound
// for other vectors.
func (m *meter) with(ctx context.Context, value int) (s Setting, sure float64, err error) {
	if _, err := m.tx.Exec(ctx, "SELECT set_config($1, $2, true)", m.found.Setting, strconv.Itoa(value)); err != nil {
		return s, 0, err
	}
	var took []time.Duration
	var sum, squares, n float64
	for i, vector := range m.asked {
		distances, d, err := m.search(ctx, vector)
		if err != nil {
			return s, 0, err
		}
		took = append(took, d)
		if wanted := len(m.far[i]); wanted > 0 {
			recall := float64(found(distances, m.far[i])) / float64(wanted)
			sum, squares, n = sum+recall, squares+recall*recall, n+1
		}
	}
	s = settingOf(value, took)
	if n > 0 {
		s.Recall = sum / n
		sure = s.Recall - 2*math.Sqrt(max(squares/n-s.Recall*s.Recall, 0)/n)
	}
	return s, sure, nil
}

// found counts the rows that are as near as the nearest ones: equally distant rows are interchangeable.
func found(got, nearest []float64) (n int) {
	if len(nearest) == 0 {
		return 0
	}
	const rounding = 1e-6
	for _, d := range got {
		if d <= nearest[len(nearest)-1]+rounding {
			n++
		}
	}
	return min(n, len(nearest))
}

func (m *meter) search(ctx context.Context, vector string) (distances []float64, took time.Duration, err error) {
	began := time.Now()
	rows, err := m.tx.Query(ctx, m.sql, append([]any{vector, nearest}, m.args...)...)
	if err != nil {
		return nil, 0, err
	}
	distances, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (d float64, err error) {
		var near *float64 // NaN for a zero vector
		err = row.Scan(&near)
		if near != nil {
			d = *near
		}
		return d, err
	})
	distances = slices.DeleteFunc(distances, math.IsNaN)
	return distances, time.Since(began), err
}

// settingOf summarizes the times of searches.
func settingOf(value int, took []time.Duration) Setting {
	slices.SortFunc(took, cmp.Compare[time.Duration])
	at := func(share float64) float64 {
		if len(took) == 0 {
			return 0
		}
		d := took[min(int(share*float64(len(took))), len(took)-1)]
		return math.Round(float64(d.Microseconds())/10) / 100 //nolint:mnd // milliseconds with two digits
	}
	return Setting{Value: value, P50: at(0.5), P99: at(0.99)} //nolint:mnd // percentiles
}
