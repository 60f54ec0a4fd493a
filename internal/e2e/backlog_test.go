//go:build linux

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestTenants_ABacklogDelaysNoOther: a lone change of a tenant is embedded about as soon while another one has
// EMBEDSIDECAR_BACKLOG rows waiting as it is without, be they schemas or databases. How many of these go before it is
// counted: that is the same on any machine.
func TestTenants_ABacklogDelaysNoOther(t *testing.T) {
	t.Parallel()
	const changes, table = 100, "docs (id bigint PRIMARY KEY, body text, at timestamptz DEFAULT clock_timestamp())"
	rows := fromEnvironment(t, "EMBEDSIDECAR_BACKLOG", 5000)
	measure := func(t *testing.T, w *town, busyIn, busy, otherIn, other string) {
		t.Helper()
		c := w.startPlain(append(slices.DeleteFunc(w.environ(), func(v string) bool {
			return busyIn == otherIn && strings.HasPrefix(v, "EMBEDSIDECAR_DATABASE_URL=")
		}), "EMBEDSIDECAR_PLUGIN_FAULTS=cost=10ms/text"), "run")
		for _, tenant := range [][2]string{{busyIn, busy}, {otherIn, other}} {
			testenv.Eventually(t, waitTimeout, func() (bool, string) {
				c.mustLive()
				return w.number(tenant[0], "SELECT count(*) FROM "+tenant[1]+".docs_embedding") == 0, tenant[1] + ": " + c.tail()
			})
		}
		conn, err := pgx.Connect(t.Context(), w.server.URL(otherIn, ""))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
		lone := func(from int) (median, p99 int) {
			t.Helper()
			for id := from; id < from+changes; id++ {
				if _, err := conn.Exec(t.Context(), "INSERT INTO "+other+".docs VALUES ($1, 'a lone change ' || $1::bigint)", id); err != nil {
					t.Fatal(err)
				}
				testenv.Eventually(t, waitTimeout, func() (bool, string) {
					var n int
					err := conn.QueryRow(t.Context(), "SELECT count(*) FROM "+other+".docs_embedding WHERE id = $1", id).Scan(&n)
					return n == 1, fmt.Sprintf("%v: %s", err, c.tail())
				})
			}
			err := conn.QueryRow(t.Context(), "SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY ms)::int, percentile_disc(0.99) "+
				"WITHIN GROUP (ORDER BY ms)::int FROM (SELECT 1000 * extract(epoch FROM e.embedded_at - d.at) AS ms FROM "+other+
				".docs AS d JOIN "+other+".docs_embedding AS e USING (id) WHERE id >= $1) AS f", from).Scan(&median, &p99)
			if err != nil {
				t.Fatal(err)
			}
			return median, p99
		}
		lone(0)
		median, alone := lone(changes)
		w.exec(busyIn, "SELECT embedsidecar.pause('"+busy+".docs')",
			fmt.Sprintf("INSERT INTO %s.docs SELECT i, 'text ' || i FROM generate_series(1, %d) AS i", busy, rows))
		waiting := func() int { return w.number(busyIn, "SELECT count(*) FROM embedsidecar.task") }
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			n := waiting()
			return n == rows, fmt.Sprintf("%d rows wait", n)
		})
		w.exec(busyIn, "SELECT embedsidecar.resume('"+busy+".docs')")
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			return w.number(busyIn, "SELECT count(*) FROM "+busy+".docs_embedding") > 0, "none is embedded: " + c.tail()
		})
		before := waiting()
		besideMedian, beside := lone(2 * changes)
		t.Logf("a lone change after %d ms (median), %d (p99); beside %d to %d waiting rows of another tenant %d, %d", median,
			alone, before, waiting(), besideMedian, beside)
		passed := passing(moments(w, busyIn, "SELECT embedded_at, embedded_at FROM "+busy+".docs_embedding"),
			moments(w, otherIn, fmt.Sprintf("SELECT d.at, e.embedded_at FROM %[1]s.docs AS d JOIN %[1]s.docs_embedding AS e "+
				"USING (id) WHERE id >= %[2]d", other, 2*changes)))
		usual, most := passed[len(passed)/2], passed[len(passed)-1]
		t.Logf("%d rows of the backlog (median) were embedded before a lone change, %d at most", usual, most)
		if usual > pipeline.DefaultBatchRows || most > rows/2 {
			t.Errorf("%d rows (median) of a backlog of %d went before a lone change, %d at most: want a batch, and half of it",
				usual, rows, most)
		}
		c.terminate()
	}
	const pipelines = "columns: [body], into: {table: docs_embedding}}]\n"
	t.Run("databases", func(t *testing.T) {
		t.Parallel()
		w := newTown(t, nil)
		w.write("databases: [{match: 'tenant_*'}]\npipelines: [{table: public.docs, " + pipelines)
		for _, name := range []string{"tenant_a", "tenant_b"} {
			w.exec("postgres", "CREATE DATABASE "+name)
			w.exec(name, "CREATE EXTENSION vector", "CREATE TABLE "+table)
		}
		measure(t, w, "tenant_a", "public", "tenant_b", "public")
	})
	t.Run("schemas", func(t *testing.T) {
		t.Parallel()
		w := newTown(t, nil)
		w.exec("postgres", "CREATE DATABASE the_two")
		w.exec("the_two", "CREATE EXTENSION vector", "CREATE SCHEMA tenant_a CREATE TABLE "+table,
			"CREATE SCHEMA tenant_b CREATE TABLE "+table)
		w.write("database: {url: '" + w.server.URL("the_two", "") + "'}\npipelines: [{schemas: {match: 'tenant_*'}, table: docs, " +
			pipelines)
		measure(t, w, "the_two", "tenant_a", "the_two", "tenant_b")
	})
}

// moment is when a row changed, and when it was embedded.
type moment struct{ Changed, Embedded time.Time }

func moments(w *town, database, sql string) []moment {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), w.server.URL(database, ""))
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = conn.Close(w.t.Context()) }()
	found, _ := conn.Query(w.t.Context(), sql)
	list, err := pgx.CollectRows(found, pgx.RowToStructByPos[moment])
	if err != nil {
		w.t.Fatal(err)
	}
	return list
}

// passing counts the rows that were embedded while each of some others waited, and returns the fewest first.
func passing(rows, others []moment) (passed []int) {
	for _, o := range others {
		n := 0
		for _, r := range rows {
			if r.Embedded.After(o.Changed) && r.Embedded.Before(o.Embedded) {
				n++
			}
		}
		passed = append(passed, n)
	}
	slices.Sort(passed)
	return passed
}
