package dashboard_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// crowd copies public.tickets into 300 pipelines.
func (r *rig) crowd() {
	r.t.Helper()
	r.db.MustExec(`DO $$ DECLARE p embedsidecar.pipeline; BEGIN
		SELECT q.* INTO p FROM embedsidecar.pipeline AS q WHERE q.name = 'public.tickets';
		FOR i IN 1..300 LOOP
			EXECUTE format('CREATE TABLE crowd_%s (LIKE tickets INCLUDING ALL)', i);
			EXECUTE format('INSERT INTO crowd_%s SELECT * FROM tickets', i);
			EXECUTE format('CREATE TABLE crowd_%s_embedding (LIKE tickets_embedding INCLUDING ALL)', i);
			INSERT INTO embedsidecar.pipeline OVERRIDING SYSTEM VALUE
			SELECT (jsonb_populate_record(p, jsonb_build_object('pipeline_id', 1000 + i,
				'name', format('tenant_%s.knowledge_base_articles', lpad(i::text, 3, '0')),
				'table_name', 'crowd_' || i, 'table_oid', ('crowd_' || i)::regclass::oid,
				'destination_table', format('crowd_%s_embedding', i),
				'destination_oid', format('crowd_%s_embedding', i)::regclass::oid))).*;
		END LOOP;
		INSERT INTO embedsidecar.route SELECT (jsonb_populate_record(t, jsonb_build_object('pipeline_id', 1000 + i))).*
		FROM embedsidecar.route AS t, generate_series(1, 300) AS i WHERE t.pipeline_id = p.pipeline_id;
		INSERT INTO embedsidecar.scan SELECT (jsonb_populate_record(t, jsonb_build_object('pipeline_id', 1000 + i))).*
		FROM embedsidecar.scan AS t, generate_series(1, 300) AS i WHERE t.pipeline_id = p.pipeline_id;
		INSERT INTO embedsidecar.ledger SELECT (jsonb_populate_record(t, jsonb_build_object('pipeline_id', 1000 + i))).*
		FROM embedsidecar.ledger AS t, generate_series(1, 300) AS i WHERE t.pipeline_id = p.pipeline_id;
	END $$`)
	r.db.MustExec("GRANT SELECT ON ALL TABLES IN SCHEMA public TO " + r.run)
	r.db.MustExec(`INSERT INTO embedsidecar.worker (instance, version, slot_name, stream)
		VALUES ('docs-1', '1.0.0', $1, 'streaming')`, r.slot)
	stream, err := database.ConnectReplication(r.t.Context(), r.db.URL(r.db.StreamRole())+"&wal_sender_timeout=0",
		database.Options{IdleInTransaction: -1})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = stream.Close(context.WithoutCancel(r.t.Context())) })
	err = pglogrepl.StartReplication(r.t.Context(), stream, r.slot, 0, pglogrepl.StartReplicationOptions{
		PluginArgs: []string{"proto_version '1'", "publication_names '" + r.db.Name + "_pub'"},
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// wait adds tasks with numbers from one to another: one in ten is a dead letter, and one in a hundred is to be retried,
// each for one of a dozen reasons.
func (r *rig) wait(from, to int) {
	r.t.Helper()
	r.db.MustExec(`INSERT INTO embedsidecar.task (pipeline_id, row_key, state, lane, xid, first_lsn, last_lsn,
		committed_at, due_at, attempt, error_class, error_code, error_message)
		SELECT 1001 + i % 300, (100000 + i)::text, s.state, i / 300 % 4, '3', '0/1', '0/1',
		       now() - i * interval '1 ms', CASE s.state WHEN 'retrying' THEN now() + interval '1 h' END, 1,
		       CASE WHEN s.state <> 'todo' THEN 'data' END, CASE WHEN s.state <> 'todo' THEN 'reason_' || i / 3000 % 12 END,
		       CASE WHEN s.state <> 'todo' THEN 'byte ' || i || ' is no part of any token ' || repeat('of the text ', 12) END
		FROM   generate_series($1::int, $2) AS i,
		       LATERAL (SELECT (CASE WHEN i / 300 % 10 = 0 THEN 'failed' WHEN i / 300 % 100 = 1 THEN 'retrying'
		       ELSE 'todo' END)::embedsidecar.task_state) AS s (state)`, from, to)
	r.db.MustExec(`INSERT INTO embedsidecar.history (bucket, finished_at, pipeline_id, row_key, outcome, attempt,
		committed_at, lsn, took_ms)
		SELECT 0, now() - i * interval '1 ms', 1001 + i % 300, i::text, 'embedded', 1, now() - interval '1 h', '0/1', 5
		FROM   generate_series($1::int / 5, $2 / 5) AS i`, from, to)
	r.db.MustExecSuper("VACUUM ANALYZE embedsidecar.task, embedsidecar.ledger, embedsidecar.history, embedsidecar.pipeline")
}

// meter records the queries of a dashboard, to measure the blocks that they read.
type meter struct {
	mu    sync.Mutex
	asked []pgx.TraceQueryStartData
}

// named matches the name of a query.
var named = regexp.MustCompile(`^-- (\w+):`)

func (m *meter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if named.MatchString(q.SQL) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.asked = append(m.asked, q)
	}
	return ctx
}

func (*meter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// take returns the queries since the last call.
func (m *meter) take() []pgx.TraceQueryStartData {
	m.mu.Lock()
	defer m.mu.Unlock()
	asked := m.asked
	m.asked = nil
	return asked
}

// touches runs queries again, and returns the blocks that each reads, by name.
func (r *rig) touches(asked []pgx.TraceQueryStartData) map[string]int {
	r.t.Helper()
	blocks := map[string]int{}
	conn, err := pgx.Connect(r.t.Context(), r.db.URL(r.run))
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(r.t.Context())) }()
	for _, q := range asked {
		var told []byte
		err := conn.QueryRow(r.t.Context(), "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+q.SQL, q.Args...).Scan(&told)
		var plan []struct {
			Plan struct {
				Hit  int `json:"Shared Hit Blocks"`
				Read int `json:"Shared Read Blocks"`
			}
		}
		if err == nil {
			err = json.Unmarshal(told, &plan)
		}
		if err != nil {
			r.t.Fatalf("%s: %v", q.SQL, err)
		}
		blocks[named.FindStringSubmatch(q.SQL)[1]] += plan[0].Plan.Hit + plan[0].Plan.Read
	}
	return blocks
}

// TestPages_AreQuick: with 300 pipelines and 20,000 tasks (or EMBEDSIDECAR_TASKS), no page or answer takes 100 kB or 10
// s or, on a busy machine, a thousand times as long as a page that reads nothing. It logs the median time of
// EMBEDSIDECAR_TIMES requests. With four times as many tasks a page reads no more, except for what all pages share and
// cache.
func TestPages_AreQuick(t *testing.T) {
	t.Parallel()
	tasks := testenv.FromEnvironment(t, "EMBEDSIDECAR_TASKS", 20_000)
	times := testenv.FromEnvironment(t, "EMBEDSIDECAR_TIMES", 2) // the first fills the cache of a second
	r := newRig(t)
	stop := r.work()
	stop()
	r.crowd()
	r.wait(1, tasks/4)
	m := &meter{}
	r.tracer = m
	at, _ := r.serve(r.run, options{})
	b := r.signIn(at, "vera")
	const name = "tenant_150.knowledge_base_articles"
	pages := []string{
		"/help", "/", "/?window=7d&by=pipeline", "/pipelines", "/pipelines?page=7", "/pipelines/" + name, "/queue",
		"/queue?state=failed", "/queue?state=retrying", "/queue?state=cancelled", "/queue?state=finished",
		"/queue?pipeline=" + name, "/queue?pipeline=public.articles", "/queue?class=data&code=reason_1",
		"/queue?code=none", "/queue?lanes=1", "/queue?lanes=1&pipeline=" + name,
		"/errors", "/errors?pipeline=" + name, "/dead-letters", "/dead-letters?pipeline=" + name, "/search",
		"/row?pipeline=" + name + "&key=100149", "/system", "/checks", "/audit", "/models",
		"/api/v1/status", "/api/v1/pipelines",
	}
	shared := map[string]bool{} // what all pages share is read at most once a second
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		b.get(http.StatusOK, "/api/v1/status")
		for _, q := range m.take() {
			shared[named.FindStringSubmatch(q.SQL)[1]] = true
		}
		return shared["error_groups"] && shared["count_known"], fmt.Sprint(shared)
	})
	read := func() (touched map[string]map[string]int) {
		t.Helper()
		touched = map[string]map[string]int{}
		for _, path := range pages {
			m.take()
			b.get(http.StatusOK, path)
			touched[path] = r.touches(slices.DeleteFunc(m.take(), func(q pgx.TraceQueryStartData) bool {
				return shared[named.FindStringSubmatch(q.SQL)[1]]
			}))
		}
		return touched
	}
	if page := b.get(http.StatusOK, "/queue?lanes=1"); !strings.Contains(page, "choose one to count its rows") {
		t.Errorf("of which pipeline rows are to be counted is not asked:\n%s", page)
	}
	// The checks page shows the last findings; new ones follow for the script.
	for _, c := range []struct {
		path         string
		again, found bool
	}{{"/checks", true, false}, {"/checks?now=1", false, true}, {"/checks", false, true}} {
		page := b.get(http.StatusOK, c.path)
		// on a slow machine it is outdated again
		if again := strings.Contains(page, "data-again"); again != c.again && !strings.Contains(page, "As of") ||
			strings.Contains(page, "max_slot_wal_keep_size") != c.found {
			t.Errorf("%s: want more to come %t, findings %t:\n%s", c.path, c.again, c.found, page)
		}
	}
	few := read()
	r.wait(tasks/4+1, tasks)
	many := read()
	for _, path := range pages {
		for statement, blocks := range many[path] {
			if few := few[path][statement]; blocks > 2*few+200 {
				t.Errorf("%s: %s reads %d blocks with %d tasks, and %d with %d", path, statement, few, tasks/4, blocks, tasks)
			}
		}
	}
	whole := testenv.Value[int](r.db, "SELECT (pg_relation_size('embedsidecar.task') / 8192)::int")
	for path, statement := range map[string]string{
		"/queue?code=none": "list_tasks", "/queue?pipeline=public.articles": "list_tasks",
		"/queue?lanes=1&pipeline=" + name: "count_lanes",
	} {
		if blocks, asked := many[path][statement]; !asked || blocks > whole/2 {
			t.Errorf("%s: %s reads %d blocks, want less than half of the %d of the queue", path, statement, blocks, whole)
		}
	}
	limit := 10 * time.Second
	for _, path := range pages {
		var took []time.Duration
		var size int
		for range times {
			began := time.Now()
			page := b.get(http.StatusOK, path)
			took, size = append(took, time.Since(began)), len(page)
		}
		slices.Sort(took)
		if path == "/help" {
			limit = max(limit, 1000*took[0])
		}
		t.Logf("%-50s %6d bytes, %4d ms in the middle, %4d at most, %v blocks", path, size,
			took[len(took)/2].Milliseconds(), took[len(took)-1].Milliseconds(), many[path])
		if size > 100_000 || took[0] > limit {
			t.Errorf("%s: %d bytes in %s, want 100,000 in %s at most", path, size, took[0], limit)
		}
	}
}
