package main

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/pgvector/pgvector-go"

	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestCounts checks the counters on a real server: CPU time of a backend that ends during the measurement, rows and
// index entries in the WAL, statements, and commit times.
func TestCounts(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		p := countingPlace(t, major)
		ctx := t.Context()
		const rows, changed = 100, 10
		if !p.counts {
			t.Fatal("statements are not counted")
		}
		pool := p.docs(ctx, "counts", rows)
		p.countIn(ctx, pool)
		p.countStatements(ctx)
		conn, err := pgx.Connect(ctx, p.pg.URL("counts", "")+"&application_name=somebody")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(ctx, "SELECT"); err != nil { // reads the new settings
			t.Fatal(err)
		}
		var burnt time.Duration
		u := &use{rows: changed}
		p.within(ctx, &subject{pool: pool}, u, func(*processes) {
			for i := range changed {
				must(conn.Exec(ctx, changeRow, i+1, "another text"))
			}
			before, _ := cpuClock(int(conn.PgConn().PID()))
			deadline := time.Now().Add(5 * time.Minute)
			for burnt < 100*time.Millisecond && time.Now().Before(deadline) {
				execute(ctx, conn, "SELECT count(*) FROM generate_series(1, 100000)")
				now, _ := cpuClock(int(conn.PgConn().PID()))
				burnt = now - before
			}
			check(conn.Close(ctx))
		}, func() {})
		// The server's sum over those that ended comes in hundredths of a second.
		if used := u.cpu[ofBackends]; burnt == 0 || used < burnt-20*time.Millisecond {
			t.Errorf("%s of a backend that burnt %s and ended", used, burnt)
		}
		known := major >= walinspectSince // otherwise only the bytes are
		if u.wal.bytes == 0 ||
			known && (u.wal.tuples != changed || u.wal.commits < changed || u.wal.by[byRelation]["docs"] == 0) {
			t.Errorf("%d rows changed: %+v", changed, u.wal)
		}
		if u.statements.Calls < changed+1 {
			t.Errorf("%d statements", u.statements.Calls)
		}
		times := freshness(ctx, pool, columnFresh, time.Unix(0, 0))
		if len(times) != changed {
			t.Errorf("%d moments of commits", len(times))
		}
		for _, ms := range times {
			if ms < 0 || ms > float64(5*time.Minute.Milliseconds()) {
				t.Errorf("committed %v ms after the change", ms)
			}
		}
	})
}

// countingPlace is a place on a server that can count, which ends with the test.
func countingPlace(t *testing.T, major int) *place {
	t.Helper()
	p := &place{options: options{only: []string{costPart}, major: major}, summary: []string{"one", "two"}}
	p.startServer(t.Context())
	t.Cleanup(func() {
		if err := p.close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// TestOracle: a wrong, a missing and an orphaned vector each fail a benchmark.
func TestOracle(t *testing.T) {
	t.Parallel()
	p := countingPlace(t, 0)
	pool := p.docs(t.Context(), "oracle", 1)
	execute(t.Context(), pool, `CREATE TABLE public.docs_embedding (id bigint PRIMARY KEY,
		embedding public.vector(384) NOT NULL)`)
	s := &subject{pool: pool, vectors: tableVectors, of: simpleVector}
	write := func(id int, text string) {
		must(pool.Exec(t.Context(), "INSERT INTO public.docs_embedding VALUES ($1, $2)", id,
			pgvector.NewVector(simpleVector(text))))
	}
	for _, wrong := range []struct {
		what string
		make func()
	}{
		{"no vector", func() {}},
		{"a vector of another text", func() { write(1, "another") }},
		{"a vector without a row", func() { write(1, p.text(1, 0)); write(2, "gone") }},
	} {
		execute(t.Context(), pool, "TRUNCATE public.docs_embedding")
		wrong.make()
		if err := try(func() { s.oracle(t.Context()) }); !errors.Is(err, errNotTrue) {
			t.Errorf("%s was not seen", wrong.what)
		}
	}
	execute(t.Context(), pool, "DELETE FROM public.docs_embedding WHERE id = 2")
	s.oracle(t.Context())
}
