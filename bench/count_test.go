package main

import (
	"context"
	"maps"
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
		pool, err := p.costDocs(ctx, "counts", rows)
		if err != nil {
			t.Fatal(err)
		}
		counted, err := p.countStatements(ctx, true)
		if err != nil || !counted {
			t.Fatalf("statements are counted: %t, %v", counted, err)
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
		c := newCosts(costSizes{}, counted)
		err = p.within(ctx, c, &subject{pool: pool}, u, func(*processes) error {
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
		})
		if err != nil {
			t.Fatal(err)
		}
		// The server's sum over those that ended comes in hundredths of a second.
		if used := u.cpu[ofBackends]; burnt == 0 || used < burnt-20*time.Millisecond {
			t.Errorf("%s of a backend that burnt %s and ended", used, burnt)
		}
		if u.wal.tuples != changed || u.wal.commits < changed || u.wal.bytes == 0 || u.wal.byRelation["docs"] == 0 {
			t.Errorf("%d rows changed: %+v", changed, u.wal)
		}
		var calls int64
		for _, s := range u.statements {
			calls += s.Calls
		}
		if calls < changed+1 {
			t.Errorf("%d statements: %+v", calls, u.statements)
		}
		times, err := freshness(ctx, pool, columnFresh, "epoch")
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
	bin, _, err := testenv.FindServer(t.Context(), major)
	if err != nil {
		t.Fatal(err)
	}
	p := &place{options: options{server: maps.Clone(serverConfig)}, summary: []string{"one", "two"}}
	costServer(bin, p.server)
	if p.pg, err = testenv.Start(t.Context(), testenv.Options{Major: major, Config: p.server}); err != nil {
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
	if err := prepareToy(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := pool.Exec(context.WithoutCancel(t.Context()), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	look := func() error { return oracle(t.Context(), pool, tableVectors, simpleVector) }
	write := func(id int, text string) {
		exec("INSERT INTO public.docs_embedding VALUES ($1, '', $2)", id, pgvector.NewVector(simpleVector(text)))
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
		if err := look(); err == nil {
			t.Errorf("%s was not seen", wrong.what)
		}
	}
	exec("DELETE FROM public.docs_embedding WHERE id = 2")
	if err := look(); err != nil {
		t.Error(err)
	}
}
