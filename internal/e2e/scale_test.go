//go:build linux

package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/testenv"
)

// village is one database of a server of its own, whose statements are counted, with a pipeline in each of many
// schemas.
type village struct {
	*town

	schemas int
}

func newVillage(t *testing.T, schemas int) *village {
	t.Helper()
	w := &village{town: newTown(t, map[string]string{
		"shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.track_planning": "on",
		"log_min_messages": "warning",
	})}
	w.exec("postgres", "CREATE EXTENSION pg_stat_statements", "CREATE DATABASE village")
	w.exec("village", "CREATE EXTENSION vector")
	w.write("database: {url: '" + w.server.URL("village", "") + "'}\npipelines: [{schemas: {match: 'tenant_*'}, " +
		"table: docs, columns: [body], into: {table: docs_embedding}}]\n")
	w.grow(schemas)
	return w
}

// grow makes schemas with a table of a few rows each.
func (w *village) grow(schemas int) {
	w.t.Helper()
	for range schemas {
		w.exec("village", fmt.Sprintf(`CREATE SCHEMA tenant_%[1]d
			CREATE TABLE docs (id bigint PRIMARY KEY, body text, at timestamptz DEFAULT clock_timestamp())`, w.schemas),
			fmt.Sprintf("INSERT INTO tenant_%d.docs SELECT i, 'text ' || i FROM generate_series(1, 3) AS i", w.schemas))
		w.schemas++
	}
}

func (w *village) environ() []string {
	return slices.DeleteFunc(w.town.environ(), func(v string) bool {
		return strings.HasPrefix(v, "EMBEDSIDECAR_DATABASE_URL=")
	})
}

// settled waits until every row has its vector.
func (w *village) settled(c *child) {
	w.t.Helper()
	testenv.Eventually(w.t, waitTimeout, func() (bool, string) {
		c.mustLive()
		n := w.number("village", `SELECT count(*) FROM embedsidecar.pipeline AS p JOIN embedsidecar.scan AS s
			USING (pipeline_id) WHERE s.phase = 'done' AND NOT EXISTS (SELECT FROM embedsidecar.task)`)
		return n == w.schemas, fmt.Sprintf("%d pipelines are done, want %d: %s", n, w.schemas, c.tail())
	})
}

// counted returns how many statements that begin so were run since forget, and the blocks that they read, of each.
func (w *village) counted(begin string) (calls, blocks int) {
	w.t.Helper()
	const of = ` FROM pg_stat_statements AS s JOIN pg_database AS d ON d.oid = s.dbid
		WHERE d.datname = 'village' AND starts_with(s.query, '%s')`
	calls = w.number("postgres", fmt.Sprintf("SELECT coalesce(sum(calls), 0)::int"+of, begin))
	return calls, w.number("postgres",
		fmt.Sprintf("SELECT coalesce(sum(shared_blks_hit + shared_blks_read), 0)::int"+of, begin))
}

func (w *village) forget() { w.exec("postgres", "SELECT pg_stat_statements_reset()") }

// costs runs f and returns what the server spent on it: seconds of CPU are no measure on a busy machine, statements and
// blocks are.
func (w *village) costs(what string, f func()) (calls, blocks int) {
	w.t.Helper()
	w.forget()
	began := time.Now()
	f()
	calls, blocks = w.counted("")
	w.t.Logf("%d pipelines: %s: %d statements, %d blocks, %s", w.schemas, what, calls, blocks,
		time.Since(began).Round(time.Millisecond))
	return calls, blocks
}

// TestScale_PipelinesCostTheSameEach: with many pipelines in a database what is asked again and again takes as many
// statements as with few, and reads as much for each. EMBEDSIDECAR_SCALE pipelines; the figures in docs/scaling.md are
// of 1000.
func TestScale_PipelinesCostTheSameEach(t *testing.T) {
	t.Parallel()
	n := fromEnvironment(t, "EMBEDSIDECAR_SCALE", 60)
	w := newVillage(t, n)
	began := time.Now()
	c := w.startPlain(w.environ(), "run")
	w.settled(c)
	t.Logf("%d pipelines: set up and embedded after %s, %s of CPU", n, time.Since(began).Round(time.Second), c.cpu())
	c.terminate()

	w.forget()
	began = time.Now()
	c = w.startPlain(w.environ(), "run")
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		c.mustLive()
		status, body := w.answer("/readyz")
		return status == http.StatusOK, body
	})
	calls, blocks := w.counted("")
	t.Logf("%d pipelines: started after %s, %s of CPU, %d statements, %d blocks", n,
		time.Since(began).Round(time.Millisecond), c.cpu(), calls, blocks)
	if calls > 30*n+500 {
		t.Errorf("a start takes %d statements for each pipeline, want 30 at most", calls/n)
	}

	// Scans do not ask one by one, whether all begin, or one is asked for.
	const scan = "SELECT s.phase, s.reason, s.after_key"
	atStart, _ := w.counted(scan)
	w.exec("village", "SELECT embedsidecar.backfill('tenant_0.docs')")
	w.settled(c)
	if all, _ := w.counted(scan); all == atStart || all > n/2 {
		t.Errorf("scans have asked %d times, %d of them at the start; want some, and %d at most", all, atStart, n/2)
	}

	// The heartbeat.
	w.forget()
	before := c.cpu()
	const heartbeat = "WITH publication AS MATERIALIZED"
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		calls, blocks = w.counted(heartbeat)
		return calls >= 3, fmt.Sprintf("%d heartbeats", calls)
	})
	t.Logf("%d pipelines: a heartbeat reads %d blocks; with all else that is done meanwhile it takes %s of CPU", n,
		blocks/calls, (c.cpu()-before)/time.Duration(calls))
	if each := blocks / calls / n; each > 100 {
		t.Errorf("a heartbeat reads %d blocks for each pipeline, want 100 at most", each)
	}

	bound := func(what string, calls, blocks int) {
		t.Helper()
		if calls > 150+n/10 || blocks > 500*n+50_000 {
			t.Errorf("%s: %d statements, %d blocks for each pipeline, want %d and 500 at most", what, calls, blocks/n, 150+n/10)
		}
	}
	calls, blocks = w.costs("status", func() { w.status(0) })
	bound("status", calls, blocks)

	// A lone change: nothing of what it takes is asked for all pipelines.
	w.forget()
	const changes = 20
	for i := range changes {
		w.exec("village", fmt.Sprintf("INSERT INTO tenant_%d.docs VALUES (%d, 'a lone change')", i%n, 100+i))
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			found := w.number("village", fmt.Sprintf("SELECT count(*) FROM tenant_%d.docs_embedding WHERE id = %d", i%n,
				100+i))
			return found == 1, c.tail()
		})
	}
	var late []int
	for i := range changes {
		late = append(late, w.number("village", fmt.Sprintf(`SELECT (1000 * extract(epoch FROM e.embedded_at - d.at))::int
			FROM tenant_%[1]d.docs AS d JOIN tenant_%[1]d.docs_embedding AS e USING (id) WHERE id = %[2]d`, i%n, 100+i)))
	}
	slices.Sort(late)
	t.Logf("%d pipelines: a lone change after %d ms (median), %d at most; memory %d MiB at most", n, late[changes/2],
		late[changes-1], c.peak()>>10)
	if c.peak() > 256<<10 {
		t.Errorf("%d MiB of memory, want 256 at most", c.peak()>>10)
	}
	// While all is paused nobody asks again and again for what waits.
	w.exec("village", "SELECT embedsidecar.pause()")
	for i := range n {
		w.exec("village", fmt.Sprintf("INSERT INTO tenant_%d.docs VALUES (200, 'it waits')", i))
	}
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		w.forget()
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			calls, _ = w.counted(heartbeat)
			return calls > 0, c.tail()
		})
		calls, _ = w.counted("WITH fence AS MATERIALIZED")
		waiting := w.number("village", "SELECT count(*) FROM embedsidecar.task")
		return calls == 0 && waiting == n, fmt.Sprintf("%d leases were asked for, %d rows wait", calls, waiting)
	})
	c.terminate()
	calls, blocks = w.costs("status without a sidecar", func() { w.status(4) })
	bound("status without a sidecar", calls, blocks)

	w.readsOthersOnce(n)
}

// readsOthersOnce: tables of others are read by a few queries once, not by a look for each of n pipelines.
func (w *village) readsOthersOnce(n int) {
	w.t.Helper()
	const others = 500
	rows := func() int {
		before := w.classes()
		w.status(4)
		return w.classes() - before
	}
	few := rows()
	w.exec("village", fmt.Sprintf(`DO $$ BEGIN FOR i IN 1..%d LOOP
		EXECUTE format('CREATE SCHEMA other_%%s CREATE TABLE docs (id int) CREATE TABLE docs_embedding (id int)', i);
		END LOOP; END $$`, others))
	more := rows() - few
	w.t.Logf("%d pipelines: status reads %d rows more of pg_class beside %d other schemas", n, more, others)
	if more > n*others*3/4 { // of 60 pipelines 1,500 to 11,000 were seen, with one such look 41,000
		w.t.Errorf("status reads %d rows more of pg_class beside %d other schemas: for each of %d pipelines", more, others, n)
	}
}

// classes returns how many rows of pg_class the sessions that have ended have read.
func (w *village) classes() int {
	w.t.Helper()
	testenv.Eventually(w.t, waitTimeout, func() (bool, string) {
		n := w.number("postgres",
			"SELECT count(*) FROM pg_stat_activity WHERE datname = 'village' AND backend_type = 'client backend'")
		return n == 0, fmt.Sprintf("%d sessions are there", n)
	})
	return w.number("village", "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_sys_tables WHERE relname = 'pg_class'")
}

// status runs the command to its end.
func (w *village) status(exit int) {
	w.t.Helper()
	c := w.startPlain(w.environ(), "status")
	if s := c.wait(waitTimeout); s.ExitStatus() != exit && s.ExitStatus() != 0 {
		w.t.Fatalf("status ended with %d: %s", s.ExitStatus(), c.tail())
	}
}
