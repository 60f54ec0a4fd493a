// Package indexes looks at the indexes over vectors, and builds one where it is asked for.
package indexes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// State is what became of an index.
type State string

// The states of an index.
const (
	There   State = "there"   // one that fits was there already
	Built   State = "built"   // it was built now
	Waits   State = "waits"   // for the backfill, or for somebody else who builds it
	Refused State = "refused" // the role does not own the table
)

// Build builds the index of a pipeline's destination, concurrently, once its backfill is done, unless there
// is one that fits. With IndexRefused come the statements for the owner. The pool must lead straight to the server; a
// build that is broken off is begun anew the next time.
func Build(ctx context.Context, pool *pgxpool.Pool, p *pipeline.Pipeline) (state State, statements []string,
	err error,
) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return "", nil, fmt.Errorf("build index of pipeline %q: %w", p.Name, err)
	}
	defer conn.Release()
	tables, err := indexedTables(ctx, conn, p)
	if err != nil {
		return "", nil, fmt.Errorf("build index of pipeline %q: %w", p.Name, err)
	}
	state = There
	for _, t := range tables {
		if t.Valid {
			continue
		}
		statements = append(statements, t.create(p))
		if !t.Owned {
			state = Refused
		}
	}
	if len(statements) == 0 || state == Refused {
		return state, statements, nil
	}
	ready, err := backfilled(ctx, conn, p)
	if err != nil || !ready {
		return Waits, nil, err
	}
	// Another sidecar may be building it: what it has begun looks just like what a build that was broken off has left.
	// One build at a time is enough for a server.
	release, err := database.Hold(ctx, pool, "embedsidecar.index_lock")
	if err != nil || release == nil {
		return Waits, nil, err
	}
	defer release()
	defer func() { // the connection goes back to others
		if _, err := conn.Exec(context.WithoutCancel(ctx),
			"SELECT set_config('lock_timeout', reset_val, false) FROM pg_settings WHERE name = 'lock_timeout'"); err != nil {
			_ = conn.Conn().Close(context.WithoutCancel(ctx))
		}
	}()
	// It waits for transactions that are older, however long they take, and blocks no writer meanwhile.
	if _, err := conn.Exec(ctx, "SET lock_timeout = 0"); err != nil {
		return "", nil, fmt.Errorf("build index of pipeline %q: %w", p.Name, err)
	}
	if tables, err = indexedTables(ctx, conn, p); err != nil { // as it is now that nobody else builds
		return "", nil, fmt.Errorf("build index of pipeline %q: %w", p.Name, err)
	}
	for _, t := range tables {
		if err := t.build(ctx, conn, p); err != nil {
			return "", nil, fmt.Errorf("build index of pipeline %q: %w", p.Name, err)
		}
	}
	return Built, statements, nil
}

// indexedTable is a table that an index of the destination is over: the destination's own, or each partition of it.
type indexedTable struct {
	Schema, Name string
	Owned        bool
	Valid        bool   // an index is there that fits
	Broken       string // what a build that was broken off has left, quoted; "": nothing
	Taken        string // the name that the next index gets
	Rows         int64  // as the server estimates them
}

func (t *indexedTable) create(p *pipeline.Pipeline) string {
	return fmt.Sprintf("CREATE INDEX CONCURRENTLY %s ON %s USING %s (%s %s.%s)%s;", database.Quote(t.Taken),
		database.Quote(t.Schema, t.Name), kindOf(p), database.Quote(p.VectorColumn()), p.Extension, p.Stored.OperatorClass(),
		t.with(p))
}

// kindOf is the kind of index that a pipeline gets.
func kindOf(p *pipeline.Pipeline) string { return cmp.Or(p.Index, pipeline.IndexHNSW) }

// with is what the index is built with, where pgvector would choose otherwise.
func (t *indexedTable) with(p *pipeline.Pipeline) string {
	var list []string
	add := func(name string, value int) {
		if value > 0 {
			list = append(list, fmt.Sprintf("%s = %d", name, value))
		}
	}
	add("m", p.IndexBuild.M)
	add("ef_construction", p.IndexBuild.EfConstruction)
	if kindOf(p) == pipeline.IndexIVFFlat {
		add("lists", cmp.Or(p.IndexBuild.Lists, lists(t.Rows)))
	}
	if list == nil {
		return ""
	}
	return " WITH (" + strings.Join(list, ", ") + ")"
}

// lists is how many lists pgvector advises for so many rows.
func lists(rows int64) int {
	const few, each, many = 10, 1000, 1_000_000
	if rows > many {
		return int(math.Sqrt(float64(rows)))
	}
	return int(max(few, rows/each))
}

func (t *indexedTable) build(ctx context.Context, conn *pgxpool.Conn, p *pipeline.Pipeline) error {
	if t.Valid {
		return nil
	}
	if t.Broken != "" {
		if _, err := conn.Exec(ctx, "DROP INDEX CONCURRENTLY IF EXISTS "+t.Broken); err != nil {
			return err
		}
	}
	_, err := conn.Exec(ctx, t.create(p))
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == pgerrcode.ProgramLimitExceeded && p.Stored == pipeline.StoredSparse {
		return &refusal.ConfigError{
			Code: code.Width, Pipeline: p.Name, Problem: fmt.Sprintf(
				"an HNSW index takes sparse vectors with up to %d numbers that are not zero, and %s has some with more",
				pipeline.MaxSparseIndexed, catalog.DestinationName(p.Spec)),
			Hint: []string{"leave index out: searches then read every vector", "or have the model keep fewer numbers"},
		}
	}
	if errors.As(err, &pg) && pg.Code == pgerrcode.DuplicateTable {
		return fmt.Errorf("there is something else called %s: %w", database.Quote(t.Schema, t.Taken), err)
	}
	return err
}

// indexedTables looks at the tables of a destination and their indexes over the vector.
func indexedTables(ctx context.Context, conn *pgxpool.Conn, p *pipeline.Pipeline) ([]indexedTable, error) {
	return database.Collect(ctx, conn, "index_targets", pgx.RowToStructByName[indexedTable], pgx.StrictNamedArgs{
		"table": p.VectorTable(), "column": p.VectorColumn(), "operators": p.Stored.OperatorClass(), "kind": kindOf(p),
	})
}

// backfilled reports whether the scan of the pipeline's rows is done, and most of what it queued.
func backfilled(ctx context.Context, conn *pgxpool.Conn, p *pipeline.Pipeline) (ready bool, err error) {
	const few = 100 // others may come at any time
	if err := conn.QueryRow(ctx, "SELECT NOT EXISTS (SELECT FROM embedsidecar.scan WHERE pipeline_id = $1 AND phase <> 'done')", p.ID).Scan(&ready); err != nil {
		return false, fmt.Errorf("look for the backfill of pipeline %q: %w", p.Name, err)
	}
	var open int
	args := pgx.StrictNamedArgs{"pipeline_id": p.ID, "max": few, "due_after": time.Time{}}
	if err := conn.QueryRow(ctx, sqlfiles.Query("open_tasks"), args).Scan(&open); err != nil {
		return false, fmt.Errorf("count open tasks of pipeline %q: %w", p.Name, err)
	}
	return ready && open < few, nil
}
