package indexes

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// Index tells how searches of a pipeline find the nearest vectors in one table: by an index, or without one.
type Index struct {
	Table         string   `json:"table"` // quoted; of a partitioned table each partition
	State         Health   `json:"state"`
	Name          string   `json:"name,omitempty"`
	Method        string   `json:"method,omitempty"` // hnsw or ivfflat
	OperatorClass string   `json:"operator_class,omitempty"`
	Phase         string   `json:"phase,omitempty"`   // of building, as the server names it
	Percent       *float64 `json:"percent,omitempty"` // of that phase; null: not known
	// of the table, the server's estimate: what a search without an index reads; null: not known
	Rows   *int64   `json:"rows,omitempty"`
	Detail string   `json:"detail,omitempty"` // what is wrong with it, or why there is none
	SQL    []string `json:"sql,omitempty"`    // what makes or mends it, for the owner of the table
}

// Health is the state of an index in a word.
type Health string

// The states, in the order in which they need somebody.
const (
	Other    Health = "other"    // somebody's for other questions: searches in general do not use it
	Ready    Health = "ready"    // searches use it
	None     Health = "none"     // there is none: each search reads every vector
	Building Health = "building" // somebody builds it, or the server waits before it uses it
	Invalid  Health = "invalid"  // its build was broken off: it costs writers time and helps nobody
)

// Worse reports whether a state needs somebody more than another.
func (w Health) Worse(than Health) bool {
	order := []Health{Other, Ready, None, Building, Invalid}
	return slices.Index(order, w) > slices.Index(order, than)
}

// Progress words how far building has come: ": loading tuples, 42 %", or "".
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

// Large reports whether a search that reads all vectors of the table takes long enough to be noticed.
func (i *Index) Large() bool {
	const most = 10_000
	return i.Rows != nil && *i.Rows >= most
}

// Of looks at the indexes over the vectors of an active pipeline. It returns at least one Index for each table.
func Of(ctx context.Context, db database.DB, p *pipeline.Pipeline) ([]Index, error) {
	var found []foundIndex
	err := database.Patiently(ctx, db, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, indexesSQL, destinationTable(p), vectorColumn(p))
		if err != nil {
			return err
		}
		found, err = pgx.CollectRows(rows, pgx.RowToStructByName[foundIndex])
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look at the indexes of pipeline %q: %w", p.Name, err)
	}
	var all []Index
	for len(found) > 0 {
		same := 1
		for same < len(found) && found[same].OID == found[0].OID {
			same++
		}
		all = append(all, ofTable(p, found[:same])...)
		found = found[same:]
	}
	return all, nil
}

// foundIndex is a table with an index over its vectors, or without one.
type foundIndex struct {
	OID                          uint32
	Schema, Table                string
	Rows                         *int64
	Index, Method, OperatorClass string // "": there is none
	Taken                        string // the name that a new one gets
	// Hidden: somebody builds an index in this database, and this role may not see which
	Valid, Partial, Building, Hidden bool
	Early                            bool   // it is too new for the oldest transactions of the server
	Phase                            string // of building
	Percent                          *float64
}

// tooNew tells of an index i that no search uses yet: it was built without CONCURRENTLY over rows that had been
// changed in place, and a transaction that is older than it, in whatever database of the server, still runs.
const tooNew = `(i.indcheckxmin AND age(i.xmin) <= age(pg_snapshot_xmin(pg_current_snapshot())::xid))`

// everySearch tells of an index i over column a whether searches without a filter can use it: it has no condition, or
// the one that every search has. From version 17 on the server drops that from a search where the column is NOT NULL
// anyway, and then sees no use for the index.
const everySearch = `(i.indpred IS NULL OR pg_get_expr(i.indpred, i.indrelid) = format('(%I IS NOT NULL)', a.attname)
		AND NOT (a.attnotnull AND current_setting('server_version_num')::int >= 170000))`

const indexesSQL = `SELECT c.oid, n.nspname::text AS schema, c.relname::text AS table, CASE WHEN c.reltuples >= 0
	THEN c.reltuples::bigint END AS rows,
		coalesce(x.relname::text, '') AS index, coalesce(x.method, '') AS method, coalesce(x.opcname::text,
		'') AS operator_class, left(c.relname, 27) || '_' || left($2, 20) || '_hnsw' AS taken,
		coalesce(x.indisvalid, false) AS valid, coalesce(x.partial, false) AS partial, coalesce(x.early, false) AS early,
		g.pid IS NOT NULL AS building,
		EXISTS (SELECT FROM pg_stat_progress_create_index AS h WHERE h.datname = current_database()
		AND h.relid IS NULL) AS hidden,
		coalesce(g.phase, '') AS phase, round(100.0 * g.blocks_done / nullif(g.blocks_total, 0), 1)::float8 AS percent
	FROM (SELECT t.relid FROM pg_partition_tree($1::regclass) AS t WHERE t.isleaf
		UNION SELECT $1::regclass::oid WHERE NOT EXISTS (SELECT FROM pg_partitioned_table
		WHERE partrelid = $1::regclass)) AS leaf
	JOIN pg_class c ON c.oid = leaf.relid JOIN pg_namespace n ON n.oid = c.relnamespace
	JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = $2
	LEFT JOIN LATERAL (SELECT r.oid, r.relname, m.amname::text AS method, o.opcname, i.indisvalid, NOT ` + everySearch +
	` AS partial, ` + tooNew + ` AS early
		FROM pg_index i JOIN pg_class r ON r.oid = i.indexrelid JOIN pg_am m ON m.oid = r.relam AND m.amname IN ('hnsw',
		'ivfflat')
		JOIN pg_opclass o ON o.oid = i.indclass[0] WHERE i.indrelid = c.oid AND i.indkey[0] = a.attnum) AS x ON true
	LEFT JOIN pg_stat_progress_create_index AS g ON g.index_relid = x.oid
	ORDER BY n.nspname, c.relname, x.relname`

// ofTable words what is there for one table.
func ofTable(p *pipeline.Pipeline, found []foundIndex) []Index {
	var list []Index
	helped := false // an index is there or comes
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
		case i.State == Invalid && !helped: // one that fits, but for being done
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
	if p.Dims > p.Stored.Indexable() {
		none.Detail = fmt.Sprintf("vectors of type %s are indexed up to %d dimensions; these have %d", p.Stored.Name(),
			p.Stored.Indexable(), p.Dims)
	} else {
		next := indexedTable{Schema: first.Schema, Name: first.Table, Taken: first.Taken}
		none.SQL = []string{next.create(p)}
	}
	return append(list, none)
}

// about words one index.
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
		i.State, i.Detail = Invalid, "its build was broken off"
	}
	return i
}
