package workload

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// Embed returns the vector of a text, or that the text is empty.
type Embed func(text string) (vector []float32, empty bool)

// tolerance is the allowed difference between a stored and a recomputed number.
const tolerance = 1e-5

// Finding is a row with a wrong state.
type Finding struct {
	Shape string
	Key   string
	What  string
}

// Report is what Check found.
type Report struct {
	Rows     int       // looked at
	Vectors  int       // that are right
	Missing  []Finding // a text without its vector
	Stale    []Finding // the vector of another text
	Unwanted []Finding // a vector of a row without a text, or excluded by the filter
	Orphans  []Finding // a vector in an embedding table without a source row
	Tasks    map[string]int
}

// Open is the number of open tasks.
func (r Report) Open() int { return r.Tasks["todo"] + r.Tasks["retrying"] }

// OK reports whether every row has its vector and no task is open or failed.
func (r Report) OK() bool {
	return len(r.Missing)+len(r.Stale)+len(r.Unwanted)+len(r.Orphans)+r.Open()+r.Tasks["failed"] == 0
}

// String returns the counts and the first findings of each kind.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d rows, %d vectors right, %d missing, %d stale, %d unwanted, %d orphans; tasks", r.Rows, r.Vectors,
		len(r.Missing), len(r.Stale), len(r.Unwanted), len(r.Orphans))
	if len(r.Tasks) == 0 {
		b.WriteString(" none")
	}
	for _, state := range slices.Sorted(maps.Keys(r.Tasks)) {
		fmt.Fprintf(&b, " %s %d", state, r.Tasks[state])
	}
	for _, kind := range []struct {
		word     string
		findings []Finding
	}{{"missing", r.Missing}, {"stale", r.Stale}, {"unwanted", r.Unwanted}, {"orphan", r.Orphans}} {
		for _, f := range kind.findings[:min(len(kind.findings), 5)] {
			fmt.Fprintf(&b, "\n  %s: %s %s: %s", kind.word, f.Shape, f.Key, f.What)
		}
	}
	return b.String()
}

// Check recomputes the text and the vector of every row and compares them, all shapes in one snapshot. The pool must be
// able to read everything, as Database.Pool is.
func Check(ctx context.Context, pool *pgxpool.Pool, shapes []Shape, embed Embed) (Report, error) {
	r := Report{Tasks: map[string]int{}}
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return r, fmt.Errorf("check vectors: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	for _, setting := range []string{
		"datestyle = 'ISO, MDY'", "timezone = 'UTC'", "intervalstyle = 'postgres'",
		"extra_float_digits = 3", "bytea_output = 'hex'",
	} {
		if _, err := tx.Exec(ctx, "SET LOCAL "+setting); err != nil {
			return r, fmt.Errorf("check vectors: %w", err)
		}
	}
	for _, s := range shapes {
		if err := r.compare(ctx, tx, s, embed); err != nil {
			return r, fmt.Errorf("check vectors of %s: %w", s.Name, err)
		}
	}
	if err := r.countTasks(ctx, tx); err != nil {
		return r, fmt.Errorf("count tasks: %w", err)
	}
	return r, nil
}

// found is a row, a vector, or both where their keys are equal.
type found struct {
	Key     string
	Present bool
	Text    *string
	Wanted  bool
	Vector  []float32
	Chunk   int
}

func (r *Report) compare(ctx context.Context, tx pgx.Tx, s Shape, embed Embed) error {
	if s.Chunking.On() {
		return r.compareChunks(ctx, tx, s, embed)
	}
	rows, _ := tx.Query(ctx, s.compareSQL())
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[found])
	if err != nil {
		return err
	}
	for _, f := range all {
		r.judge(s, f, embed)
	}
	return nil
}

func (r *Report) judge(s Shape, f found, embed Embed) {
	note := func(list *[]Finding, format string, args ...any) {
		*list = append(*list, Finding{Shape: s.Name, Key: f.Key, What: fmt.Sprintf(format, args...)})
	}
	if !f.Present {
		note(&r.Orphans, "there is no such row (chunk %d)", f.Chunk)
		return
	}
	r.Rows++
	var want []float32
	why := "the filter leaves it out"
	if f.Wanted {
		why = "it has no text"
		if f.Text != nil && *f.Text != "" {
			vector, empty := embed(*f.Text)
			if !empty {
				want = vector
			}
		}
	}
	switch {
	case want == nil && f.Vector != nil:
		note(&r.Unwanted, "%s", why)
	case want == nil:
	case f.Vector == nil:
		note(&r.Missing, "its text has %d bytes", len(*f.Text))
	case f.Chunk != 0 || !near(s.Stored, f.Vector, want):
		note(&r.Stale, "chunk %d begins with %v, want %v; its text has %d bytes", f.Chunk, f.Vector[:min(3, len(f.Vector))],
			want[:min(3, len(want))], len(*f.Text))
	default:
		r.Vectors++
	}
}

// near reports whether a stored vector equals the expected one, within the precision of its type.
func near(stored pipeline.Stored, a, b []float32) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		tolerance := tolerance
		switch stored {
		case pipeline.StoredBit:
			if (a[i] == 1) != (b[i] > 0) || a[i] != 0 && a[i] != 1 {
				return false
			}
			continue
		case pipeline.StoredHalfvec:
			tolerance += math.Abs(float64(b[i])) / 2048 // half of the last of 11 binary digits
		case pipeline.StoredVector, pipeline.StoredSparse:
		}
		if !(math.Abs(float64(a[i])-float64(b[i])) <= tolerance) { // NaN is far from everything
			return false
		}
	}
	return true
}

// compareSQL reads all rows with their text and all vectors, joined by the types' equality: 1.0 equals the key 1.00.
func (s Shape) compareSQL() string {
	key, on := make([]string, len(s.Key)), make([]string, len(s.Key))
	for i, c := range s.Key {
		name := quote(c.Name)
		key[i] = fmt.Sprintf("coalesce(s.%s, e.%s)::text", name, name)
		on[i] = fmt.Sprintf("s.%s = e.%s", name, name)
		if s.IntoColumn != "" {
			key[i] = fmt.Sprintf("s.%s::text", name)
		}
	}
	text, wanted := s.textSQL()
	source := fmt.Sprintf("SELECT *, (%s) AS workload_text, %s AS workload_wanted FROM %s", text, wanted, s.Source())
	shown := "concat_ws(' | ', " + strings.Join(key, ", ") + ")"
	if s.IntoColumn != "" {
		return fmt.Sprintf("SELECT %s, true, s.workload_text, s.workload_wanted, %s, 0 FROM (%s) AS s", shown,
			s.numbers("s."+quote(s.IntoColumn)), source)
	}
	return fmt.Sprintf(`SELECT %s, s.workload_wanted IS NOT NULL, s.workload_text, coalesce(s.workload_wanted, false), %s,
		coalesce(e.chunk_no, 0)
		FROM (%s) AS s FULL JOIN %s AS e ON %s`, shown, s.numbers("e.embedding"), source, s.Into(), strings.Join(on, " AND "))
}

// textSQL returns the expressions of the text and of whether the row has one.
func (s Shape) textSQL() (text, wanted string) {
	text, wanted = s.Text, "true"
	if text == "" {
		parts := lists.Map(s.Columns, func(c string) string { return fmt.Sprintf("nullif(%s::text, '')", quote(c)) })
		if s.joined != "" {
			parts = append(parts, "nullif("+s.joined+", '')")
		}
		text = `concat_ws(E'\n\n', ` + strings.Join(parts, ", ") + ")"
	}
	if s.Filter != "" {
		wanted = "(" + s.Filter + ") IS TRUE"
	}
	return text, wanted
}

// numbers returns the SQL of a stored vector as an array.
func (s Shape) numbers(column string) string {
	if s.Stored == pipeline.StoredBit {
		return "string_to_array(" + column + "::text, NULL)::real[]"
	}
	return column + "::real[]"
}

func (r *Report) countTasks(ctx context.Context, tx pgx.Tx) error {
	var there bool
	if err := tx.QueryRow(ctx, `SELECT to_regclass('embedsidecar.task') IS NOT NULL`).Scan(&there); err != nil || !there {
		return err
	}
	rows, _ := tx.Query(ctx, `SELECT state::text, count(*) FROM embedsidecar.task GROUP BY 1`)
	var state string
	var n int
	_, err := pgx.ForEachRow(rows, []any{&state, &n}, func() error { r.Tasks[state] = n; return nil })
	return err
}

// Settle waits until every row has its vector and no task is open, and returns that report. After timeout it fails the
// test with the findings. The workload must have stopped.
func Settle(t testing.TB, db *testenv.Database, shapes []Shape, embed Embed, timeout time.Duration) Report {
	t.Helper()
	var last Report
	remembered := map[string][]float32{} // rows change little between two checks
	remember := func(text string) ([]float32, bool) {
		vector, ok := remembered[text]
		if !ok {
			var empty bool
			if vector, empty = embed(text); empty {
				vector = nil
			}
			remembered[text] = vector
		}
		return vector, vector == nil
	}
	testenv.Eventually(t, timeout, func() (bool, string) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		r, err := Check(ctx, db.Pool, shapes, remember)
		if err != nil {
			return false, err.Error()
		}
		last = r
		return r.OK(), r.String()
	})
	return last
}
