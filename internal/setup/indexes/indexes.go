package indexes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// Index describes how searches of a pipeline find the nearest vectors in one table: by an index, or without one.
type Index struct {
	Table         string   `json:"table"` // quoted; each partition of a partitioned table
	State         Health   `json:"state"`
	Name          string   `json:"name,omitempty"`
	Method        string   `json:"method,omitempty"`
	OperatorClass string   `json:"operator_class,omitempty"`
	Phase         string   `json:"phase,omitempty"`   // of the build, in the server's words
	Percent       *float64 `json:"percent,omitempty"` // of that phase; null: unknown
	// of the table, the server's estimate: what a search without an index reads; null: unknown
	Rows   *int64   `json:"rows,omitempty"`
	Detail string   `json:"detail,omitempty"` // what is wrong with it, or why it is missing
	SQL    []string `json:"sql,omitempty"`    // creates or repairs it, for the owner of the table
}

// Health is the state of an index.
type Health string

// The states, from the least to the most urgent.
const (
	Other    Health = "other"    // it serves other queries: general searches do not use it
	Ready    Health = "ready"    // searches use it
	None     Health = "none"     // there is no index: each search reads every vector
	Building Health = "building" // it is being built, or the server cannot use it yet
	Invalid  Health = "invalid"  // its build was interrupted: it slows down writers without any use
)

// Worse reports whether a state is more urgent than another.
func (w Health) Worse(than Health) bool {
	order := []Health{Other, Ready, None, Building, Invalid}
	return slices.Index(order, w) > slices.Index(order, than)
}

// Progress describes the progress of a build: ": loading tuples, 42 %", or "".
func (i *Index) Progress() string {
	var words string
	if i.Phase != "" {
		words = ": " + i.Phase
	}
	if i.Percent != nil {
		words += fmt.Sprintf(", %.0f %%", *i.Percent)
	}
	return words
}

// Large reports whether a search that reads all vectors of the table is noticeably slow.
func (i *Index) Large() bool {
	const most = 10_000
	return i.Rows != nil && *i.Rows >= most
}

// Of inspects the indexes on the vectors of an active pipeline. It returns at least one Index per table.
func Of(ctx context.Context, db database.Beginner, p *pipeline.Pipeline) ([]Index, error) {
	list, err := OfAll(ctx, db, []*pipeline.Pipeline{p})
	if err != nil {
		return nil, fmt.Errorf("pipeline %q: %w", p.Name, err)
	}
	return list[0], nil
}

// OfAll is Of for many pipelines, in their order: nil for one whose table is missing. They need not have Stored and
// Extension set.
func OfAll(ctx context.Context, db database.Beginner, list []*pipeline.Pipeline) ([][]Index, error) {
	tables, columns, kinds := make([]string, len(list)), make([]string, len(list)), make([]string, len(list))
	for i, p := range list {
		tables[i], columns[i], kinds[i] = p.VectorTable(), p.VectorColumn(), kindOf(p)
	}
	var found []foundIndex
	err := database.RetryReadOnly(ctx, db, func(tx pgx.Tx) (err error) {
		found, err = database.Collect(ctx, tx, "vector_indexes", pgx.RowToStructByName[foundIndex],
			pgx.StrictNamedArgs{"tables": tables, "columns": columns, "kinds": kinds})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look at indexes: %w", err)
	}
	all := make([][]Index, len(list))
	for len(found) > 0 {
		at, same := found[0].N-1, 1
		for same < len(found) && found[same].N == found[0].N && found[same].OID == found[0].OID {
			same++
		}
		p := *list[at]
		p.Stored, p.Extension = found[0].Type, database.Quote(found[0].Extension)
		all[at] = append(all[at], ofTable(&p, found[:same])...)
		found = found[same:]
	}
	return all, nil
}

type foundIndex struct {
	N                            int
	Type                         pipeline.Stored
	Extension                    string // the schema of pgvector
	OID                          uint32
	Schema, Table                string
	Rows                         *int64
	Index, Method, OperatorClass string // "": no index
	Taken                        string // the name for a new one
	// Hidden: an index is being built in this database, but this role may not see which
	Valid, Partial, Building, Hidden bool
	Early                            bool   // it is too new for the oldest transactions of the server
	Phase                            string // of the build
	Percent                          *float64
}

// ofTable describes the indexes of one table.
func ofTable(p *pipeline.Pipeline, found []foundIndex) []Index {
	var list []Index
	helped := false // an index exists or is being built
	for _, f := range found {
		i := f.about(p)
		if f.Index == "" {
			continue
		}
		helped = helped || i.State == Ready || i.State == Building
		list = append(list, i)
	}
	first := found[0]
	for k := range list {
		i := &list[k]
		name := database.Quote(first.Schema, i.Name)
		switch {
		case i.State == Invalid && !helped: // suitable except for the interrupted build
			i.SQL = []string{"REINDEX INDEX CONCURRENTLY " + name + ";"}
			helped = true
		case i.State == Invalid:
			i.SQL = []string{"DROP INDEX CONCURRENTLY " + name + ";"}
		}
	}
	if helped {
		return list
	}
	none := Index{Table: database.Quote(first.Schema, first.Table), State: None, Rows: first.Rows}
	if p.Dims > p.Stored.Indexable() && pipeline.OtherIndexOf(p.Index) == nil {
		none.Detail = fmt.Sprintf("vectors of type %s are indexed up to %d dimensions; these have %d", p.Stored.Name(),
			p.Stored.Indexable(), p.Dims)
	} else {
		next := indexedTable{Schema: first.Schema, Name: first.Table, Taken: first.Taken}
		if first.Rows != nil {
			next.Rows = *first.Rows
		}
		none.SQL = []string{next.create(p)}
	}
	return append(list, none)
}

func (f *foundIndex) about(p *pipeline.Pipeline) Index {
	i := Index{
		Table: database.Quote(f.Schema, f.Table), Name: f.Index, Method: f.Method, OperatorClass: f.OperatorClass,
		Rows: f.Rows, State: Ready,
	}
	want := p.Stored.OperatorClass()
	switch {
	case f.OperatorClass != want:
		i.State, i.Detail = Other,
			fmt.Sprintf("its operator class is %s; searches are by %s distance, need %s and do not use it", f.OperatorClass,
				p.Stored.Metric(), want)
	case f.Partial:
		i.State, i.Detail = Other, "it has a condition (WHERE); searches without that condition do not use it"
	case f.Building, !f.Valid && f.Hidden:
		i.State, i.Phase, i.Percent = Building, f.Phase, f.Percent
	case f.Valid && f.Early:
		i.State, i.Phase = Building, "waiting for transactions that are older than it"
	case !f.Valid:
		i.State, i.Detail = Invalid, "its build was interrupted"
	}
	return i
}

// An IVFFlat index finds vectors by lists that were computed when it was built. It has drifted when more than half of
// the present vectors were written later. A comment on the index has the time of the build.

const madeWord = "embedsidecar: lists made "

// note stores the time at which an index's lists were computed.
func note(ctx context.Context, conn *pgxpool.Conn, index string, at time.Time) error {
	_, err := conn.Exec(ctx, "COMMENT ON INDEX "+index+" IS "+database.Literal(madeWord+at.UTC().Format(time.RFC3339Nano)))
	return err
}

// Refresh rebuilds the drifted IVFFlat indexes of a pipeline that a sidecar built. It builds new ones concurrently and
// then drops the old ones, so that no search and no writer waits. It returns There if there is nothing to do. An
// interrupted rebuild is completed the next time. The pool must not use a pooler.
func Refresh(ctx context.Context, pool *pgxpool.Pool, p *pipeline.Pipeline) (State, error) {
	if kindOf(p) != pipeline.IndexIVFFlat {
		return There, nil
	}
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return "", fmt.Errorf("look whether the index of pipeline %q has drifted: %w", p.Name, err)
	}
	defer conn.Release()
	tables, err := indexedTables(ctx, conn, p)
	if err != nil {
		return "", fmt.Errorf("look whether the index of pipeline %q has drifted: %w", p.Name, err)
	}
	needed := false
	for _, t := range tables {
		drifted, err := t.drifted(ctx, conn, p)
		if err != nil {
			return "", fmt.Errorf("look whether the index of pipeline %q has drifted: %w", p.Name, err)
		}
		needed = needed || drifted || t.Owned && len(t.Made) > 1
	}
	if !needed {
		return There, nil
	}
	return alone(ctx, pool, conn, p, func(tables []indexedTable) error {
		for _, t := range tables {
			old := t.Made[min(1, len(t.Made)):] // an interrupted rebuild had built a new one
			drifted, err := t.drifted(ctx, conn, p)
			if err != nil {
				return err
			}
			if drifted && len(t.Made) == 1 {
				if err := t.build(ctx, conn, p); err != nil {
					return err
				}
				old = t.Made
			}
			if !t.Owned {
				continue
			}
			for _, name := range old {
				if _, err := conn.Exec(ctx, "DROP INDEX CONCURRENTLY IF EXISTS "+name); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// drifted reports whether the index of a table must be rebuilt. An index without a build time gets the current one.
func (t *indexedTable) drifted(ctx context.Context, conn *pgxpool.Conn, p *pipeline.Pipeline) (drifted bool,
	err error,
) {
	if !t.Owned || len(t.Made) == 0 {
		return false, nil
	}
	at, err := time.Parse(time.RFC3339Nano, strings.TrimPrefix(t.MadeAt, madeWord))
	if err != nil {
		var now time.Time
		if err := conn.QueryRow(ctx, "SELECT now()").Scan(&now); err != nil {
			return false, err
		}
		return false, note(ctx, conn, t.Made[0], now)
	}
	err = conn.QueryRow(ctx, `SELECT 2 * count(*) FILTER (WHERE written_at > $2) > count(*) FROM embedsidecar.ledger
		WHERE pipeline_id = $1 AND text_hash IS NOT NULL`, p.ID, at).Scan(&drifted)
	return drifted, err
}
