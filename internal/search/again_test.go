package search_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/search"
	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// watched is a database that records its searches.
type watched struct {
	*pgxpool.Pool

	searches []string
}

func (w *watched) BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error) {
	tx, err := w.Pool.BeginTx(ctx, o)
	return watchedTx{tx, w}, err
}

type watchedTx struct {
	pgx.Tx

	of *watched
}

func (tx watchedTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if strings.Contains(sql, "embedsidecar_nearest") {
		tx.of.searches = append(tx.of.searches, sql)
	}
	return tx.Tx.Query(ctx, sql, args...)
}

// A search that meets a table just dropped by a switch of the model runs again, and gives up after a few tries.
func TestWithin_BeginsAnewWhereSomethingVanished(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code      string
		times, in int
		fails     bool
	}{
		{pgerrcode.InternalError, 2, 3, false},
		{pgerrcode.LockNotAvailable, 2, 3, false},
		{pgerrcode.InternalError, 100, 4, true},
		{pgerrcode.UndefinedColumn, 1, 1, true},
	} {
		tries := 0
		_, err := search.Within(t.Context(), time.Minute, func(context.Context) (int, error) {
			if tries++; tries > c.times {
				return 0, nil
			}
			return 0, fmt.Errorf("search vectors: %w", &pgconn.PgError{Code: c.code})
		})
		if (err != nil) != c.fails || tries != c.in {
			t.Errorf("%s %d times: %v after %d tries, want %d", c.code, c.times, err, tries, c.in)
		}
	}
}

// Dead entries of re-embedded rows stay in an HNSW index until a vacuum and take up places in its result. The index
// scan goes on beyond them, so a search does not read the whole table.
func TestFind_TheIndexGoesOnBehindDeadEntries(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		const rows = 400
		r := newRig(t, major, rows)
		if !testenv.Value[bool](r.db, "SELECT string_to_array(extversion, '.')::int[] >= '{0,8}' FROM pg_extension WHERE extname = 'vector'") {
			t.Fatal("pgvector is older than 0.8: it cannot go on")
		}
		p := r.pipelines["table"]
		r.db.MustExec("ALTER TABLE docs_embedding SET (autovacuum_enabled = off)")
		r.db.MustExec("CREATE INDEX CONCURRENTLY near ON docs_embedding USING hnsw (embedding vector_cosine_ops)")
		for id := 1; id <= rows/4; id++ { // at other positions, so that no entry stays valid
			r.db.MustExec("UPDATE docs_embedding SET embedding = $2::text::vector WHERE id = $1", id,
				text(vector.Of(fmt.Sprint("anew ", id), dims)))
		}
		for _, setting := range []string{"enable_seqscan = off", "enable_sort = off"} {
			r.db.MustExecSuper(fmt.Sprintf(`ALTER DATABASE "%s" SET %s`, r.db.Name, setting))
		}
		r.pool.Reset()
		for _, request := range []search.Request{
			{Rows: 60}, {Rows: 100}, {Rows: 10, Hybrid: true, Text: "row 3"},
		} {
			request.Vector = vector.Of("question", dims)
			db := &watched{Pool: r.pool}
			e, err := search.Explain(t.Context(), r.pool, p, request)
			if err != nil || !strings.Contains(strings.Join(e.Plan, "\n"), "near") {
				t.Fatalf("the index is not used (%v):\n%s", err, strings.Join(e.Plan, "\n"))
			}
			hits, err := search.Find(t.Context(), db, p, request)
			if err != nil || len(hits) != request.Rows {
				t.Errorf("%d rows, want %d: %v", len(hits), request.Rows, err)
			}
			if len(db.searches) != 1 {
				t.Errorf("%d rows, hybrid %v: it took %d searches, want 1", request.Rows, request.Hybrid, len(db.searches))
			}
		}
	})
}

func text(v []float32) string { return strings.ReplaceAll(fmt.Sprint(v), " ", ",") }
