package main

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/pgvector/pgvector-go"

	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestCounts compares what is counted with what was done, on a real server: CPU time of a backend that ends while it is
// watched, rows and index entries in the WAL, statements, and the moment of a commit.
func TestCounts(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		p := countingPlace(t, major)
		ctx := t.Context()
		const rows, changed = 100, 10
		pool, err := p.docs(ctx, "counts", rows)
		if err == nil {
			err = p.countIn(ctx, pool)
		}
		if err == nil {
			err = p.countStatements(ctx)
		}
		if err != nil || !p.counts {
			t.Fatalf("statements are counted: %t, %v", p.counts, err)
		}
		conn, err := pgx.Connect(ctx, p.pg.URL("counts", "")+"&application_name=somebody")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(ctx, "SELECT"); err != nil { // reads the new settings
			t.Fatal(err)
		}
		var burnt time.Duration
		u := &use{rows: changed}
		err = p.within(ctx, &subject{pool: pool}, u, func(*processes) error {
			for i := range changed {
				if _, err := conn.Exec(ctx, changeRow, i+1, "another text"); err != nil {
					return err
				}
			}
			before, _ := cpuClock(int(conn.PgConn().PID()))
			deadline := time.Now().Add(5 * time.Minute)
			for burnt < 100*time.Millisecond && time.Now().Before(deadline) {
				if _, err := conn.Exec(ctx, "SELECT count(*) FROM generate_series(1, 100000)"); err != nil {
					return err
				}
				now, _ := cpuClock(int(conn.PgConn().PID()))
				burnt = now - before
			}
			return conn.Close(ctx)
		}, func() error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		// The server's sum over those that ended comes in hundredths of a second.
		if used := u.cpu[ofBackends]; burnt == 0 || used < burnt-20*time.Millisecond {
			t.Errorf("%s of a backend that burnt %s and ended", used, burnt)
		}
		if u.wal.tuples != changed || u.wal.commits < changed || u.wal.bytes == 0 || u.wal.by[byRelation]["docs"] == 0 {
			t.Errorf("%d rows changed: %+v", changed, u.wal)
		}
		if u.statements.Calls < changed+1 {
			t.Errorf("%d statements", u.statements.Calls)
		}
		times, err := freshness(ctx, pool, columnFresh, time.Unix(0, 0))
		if err != nil || len(times) != changed {
			t.Fatalf("%d moments of commits, %v", len(times), err)
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
	if err := p.startServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, pool := range p.pools {
			pool.Close()
		}
		if err := p.pg.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// TestOracle: a vector of another text, one that is missing and one of a row that is gone each end a benchmark.
func TestOracle(t *testing.T) {
	t.Parallel()
	p := countingPlace(t, 0)
	pool, err := p.docs(t.Context(), "oracle", 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), `CREATE TABLE public.docs_embedding (id bigint PRIMARY KEY,
		embedding public.vector(384) NOT NULL)`); err != nil {
		t.Fatal(err)
	}
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := pool.Exec(context.WithoutCancel(t.Context()), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	s := &subject{pool: pool, vectors: tableVectors, of: simpleVector}
	write := func(id int, text string) {
		exec("INSERT INTO public.docs_embedding VALUES ($1, $2)", id, pgvector.NewVector(simpleVector(text)))
	}
	for _, wrong := range []struct {
		what string
		make func()
	}{
		{"no vector", func() {}},
		{"a vector of another text", func() { write(1, "another") }},
		{"a vector without a row", func() { write(1, p.text(1, 0)); write(2, "gone") }},
	} {
		exec("TRUNCATE public.docs_embedding")
		wrong.make()
		if err := s.oracle(t.Context()); err == nil {
			t.Errorf("%s was not seen", wrong.what)
		}
	}
	exec("DELETE FROM public.docs_embedding WHERE id = 2")
	if err := s.oracle(t.Context()); err != nil {
		t.Error(err)
	}
}
