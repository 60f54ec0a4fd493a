// Package indexes inspects the indexes on vectors, and builds them on request.
package indexes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
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
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// State is the result for an index.
type State string

// The states of an index.
const (
	There   State = "there"   // a suitable one already exists
	Built   State = "built"   // it was built now
	Waits   State = "waits"   // for the backfill, or for another session that builds one
	Refused State = "refused" // the role does not own the table
)

// Build builds the index of a pipeline's destination concurrently, once its backfill is done, unless a suitable one
// exists. With Refused it returns the statements for the owner. The pool must not use a pooler. An interrupted build is
// repeated the next time.
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
	state, err = alone(ctx, pool, conn, p, func(tables []indexedTable) error {
		for range len(tables) {
			at := slices.IndexFunc(tables, func(t indexedTable) bool { return !t.Valid })
			if at < 0 {
				break
			}
			if err := tables[at].build(ctx, conn, p); err != nil {
				return err
			}
			if tables, err = indexedTables(ctx, conn, p); err != nil { // the build took a name
				return err
			}
		}
		return nil
	})
	return state, statements, err
}

// alone calls build with the current tables while no other sidecar builds an index. Another sidecar's unfinished index
// looks like one of an interrupted build. So does one whose sidecar was killed, which the server goes on with: dropping
// it would wait for its end, or fail it. One build at a time is enough for a server.
func alone(ctx context.Context, pool *pgxpool.Pool, conn *pgxpool.Conn, p *pipeline.Pipeline,
	build func([]indexedTable) error,
) (state State, err error) {
	release, err := database.Hold(ctx, pool, "embedsidecar.index_lock")
	if err != nil || release == nil {
		return Waits, err
	}
	defer release()
	var lock, client string
	err = conn.QueryRow(ctx, "SELECT current_setting('lock_timeout'), current_setting('client_connection_check_interval')").
		Scan(&lock, &client)
	set := func(ctx context.Context, lock, client string) error {
		_, err := conn.Exec(ctx, "SELECT set_config('lock_timeout', $1, false),"+
			" set_config('client_connection_check_interval', $2, false)", lock, client)
		return err
	}
	defer func() { // the connection returns to the pool
		if set(context.WithoutCancel(ctx), lock, client) != nil {
			_ = conn.Conn().Close(context.WithoutCancel(ctx))
		}
	}()
	// A concurrent build waits for older transactions without limit, and blocks no writers meanwhile. The server goes on
	// with it if this sidecar is killed.
	if err == nil {
		err = set(ctx, "0", "0")
	}
	var tables []indexedTable
	if err == nil {
		tables, err = indexedTables(ctx, conn, p)
	}
	if err == nil && slices.ContainsFunc(tables, func(t indexedTable) bool { return t.Building }) {
		return Waits, nil
	}
	if err == nil {
		err = build(tables)
	}
	if err != nil {
		return "", fmt.Errorf("build index of pipeline %q: %w", p.Name, err)
	}
	return Built, nil
}

// indexedTable is a table to index: the destination, or each of its partitions.
type indexedTable struct {
	Schema, Name string
	Owned        bool
	Valid        bool     // a suitable index exists
	Broken       string   // the invalid index of an interrupted build, quoted; "": none
	Building     bool     // a session builds an index of the table
	Made         []string // valid indexes that a sidecar built, quoted; the newest first
	MadeAt       string   // comment of the newest
	Taken        string   // the name of the next index
	Rows         int64    // the server's estimate
	// schema of the operator class, quoted; "": that of pgvector
	OperatorSchema string
}

func (t *indexedTable) create(p *pipeline.Pipeline) string {
	return fmt.Sprintf("CREATE INDEX CONCURRENTLY %s ON %s USING %s (%s %s.%s)%s;", database.Quote(t.Taken),
		database.Quote(t.Schema, t.Name), kindOf(p), database.Quote(p.VectorColumn()), cmp.Or(t.OperatorSchema, p.Extension),
		p.Stored.OperatorClass(), t.with(p))
}

// kindOf is the kind of index for a pipeline.
func kindOf(p *pipeline.Pipeline) string { return cmp.Or(p.Index, pipeline.IndexHNSW) }

// with returns the storage parameters of the index that differ from pgvector's defaults.
func (t *indexedTable) with(p *pipeline.Pipeline) string {
	if other := pipeline.OtherIndexOf(p.Index); other != nil {
		return other.With(p.IndexBuild.Options)
	}
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

// lists is how many lists pgvector recommends for a number of rows.
func lists(rows int64) int {
	const few, each, many = 10, 1000, 1_000_000
	if rows > many {
		return int(math.Sqrt(float64(rows)))
	}
	return int(max(few, rows/each))
}

func (t *indexedTable) build(ctx context.Context, conn *pgxpool.Conn, p *pipeline.Pipeline) error {
	if t.Broken != "" {
		if _, err := conn.Exec(ctx, "DROP INDEX CONCURRENTLY IF EXISTS "+t.Broken); err != nil {
			return err
		}
	}
	var began time.Time
	err := conn.QueryRow(ctx, "SELECT now()").Scan(&began)
	if err == nil {
		_, err = conn.Exec(ctx, t.create(p))
	}
	if err == nil && kindOf(p) == pipeline.IndexIVFFlat {
		err = note(ctx, conn, database.Quote(t.Schema, t.Taken), began)
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == pgerrcode.ProgramLimitExceeded && p.Stored == pipeline.StoredSparse {
		return refusal.For(p.Name, code.Width, fmt.Sprintf(
			"an HNSW index takes sparse vectors with up to %d numbers that are not zero, and %s has some with more",
			pipeline.MaxSparseIndexed, p.DestinationName()),
			"leave index out: searches then read every vector", "or have the model keep fewer numbers")
	}
	if errors.As(err, &pg) && pg.Code == pgerrcode.DuplicateTable {
		return fmt.Errorf("there is something else called %s: %w", database.Quote(t.Schema, t.Taken), err)
	}
	return err
}

// indexedTables reads the tables of a destination and their indexes on the vector.
func indexedTables(ctx context.Context, conn *pgxpool.Conn, p *pipeline.Pipeline) ([]indexedTable, error) {
	return database.Collect(ctx, conn, "index_targets", pgx.RowToStructByName[indexedTable], pgx.StrictNamedArgs{
		"table": p.VectorTable(), "column": p.VectorColumn(), "operators": p.Stored.OperatorClass(), "kind": kindOf(p),
	})
}

// backfilled reports whether the scan of the pipeline's rows and most of the tasks it queued are done.
func backfilled(ctx context.Context, conn *pgxpool.Conn, p *pipeline.Pipeline) (ready bool, err error) {
	const few = 100 // new tasks may come at any time
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
