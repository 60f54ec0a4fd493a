package dashboard_test

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// crowd makes 300 pipelines out of public.tickets, with so many tasks: one in ten is a dead letter, and one in a
// hundred is to be tried again, each for one of a dozen reasons.
func (r *rig) crowd(tasks int) {
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
	r.db.MustExec(`INSERT INTO embedsidecar.task (pipeline_id, row_key, state, lane, xid, first_lsn, last_lsn,
		committed_at, due_at, attempt, error_class, error_code, error_message)
		SELECT 1001 + i % 300, (100000 + i)::text, s.state, i / 300 % 4, '3', '0/1', '0/1',
		       now() - i * interval '1 ms', CASE s.state WHEN 'retrying' THEN now() + interval '1 h' END, 1,
		       CASE WHEN s.state <> 'todo' THEN 'data' END, CASE WHEN s.state <> 'todo' THEN 'reason_' || i / 3000 % 12 END,
		       CASE WHEN s.state <> 'todo' THEN 'byte ' || i || ' is no part of any token ' || repeat('of the text ', 12) END
		FROM   generate_series(1, $1::int) AS i,
		       LATERAL (SELECT (CASE WHEN i / 300 % 10 = 0 THEN 'failed' WHEN i / 300 % 100 = 1 THEN 'retrying'
		       ELSE 'todo' END)::embedsidecar.task_state) AS s (state)`, tasks)
	r.db.MustExec(`INSERT INTO embedsidecar.history (bucket, finished_at, pipeline_id, row_key, outcome, attempt,
		committed_at, lsn, took_ms)
		SELECT 0, now() - i * interval '1 ms', 1001 + i % 300, i::text, 'embedded', 1, now() - interval '1 h', '0/1', 5
		FROM   generate_series(1, $1::int / 5) AS i`, tasks)
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
	r.db.MustExecSuper("VACUUM ANALYZE embedsidecar.task, embedsidecar.ledger, embedsidecar.history, embedsidecar.pipeline")
}

// TestPages_AreQuick: no page or answer takes 100 kB or 10 s, or, where the machine is so busy, a thousand times what
// a page takes that reads nothing, with 300 pipelines and 30,000 tasks, or as many as EMBEDSIDECAR_TASKS says. It logs
// how long each takes.
func TestPages_AreQuick(t *testing.T) {
	t.Parallel()
	tasks := testenv.FromEnvironment(t, "EMBEDSIDECAR_TASKS", 30_000)
	r := newRig(t)
	stop := r.work()
	stop()
	r.crowd(tasks)
	at, _ := r.serve(r.run, options{})
	b := r.signIn(at, "vera")
	const name = "tenant_150.knowledge_base_articles"
	limit := 10 * time.Second
	for _, path := range []string{
		"/help", "/", "/?window=7d&by=pipeline", "/pipelines", "/pipelines?page=7", "/pipelines/" + name, "/queue",
		"/queue?state=failed", "/queue?state=retrying", "/queue?state=finished", "/queue?pipeline=" + name,
		"/queue?class=data&code=reason_7",
		"/errors", "/errors?pipeline=" + name, "/dead-letters", "/dead-letters?pipeline=" + name, "/search",
		"/row?pipeline=" + name + "&key=100149", "/system", "/checks", "/audit", "/models",
		"/api/v1/status", "/api/v1/pipelines",
	} {
		var took []time.Duration
		var size int
		for range 2 { // the first reads what is kept for a second
			began := time.Now()
			page := b.get(http.StatusOK, path)
			took, size = append(took, time.Since(began)), len(page)
		}
		least := slices.Min(took)
		if path == "/help" {
			limit = max(limit, 1000*least)
		}
		t.Logf("%-50s %7d bytes %4d ms (%v)", path, size, least.Milliseconds(), took)
		if size > 100_000 || least > limit {
			t.Errorf("%s: %d bytes in %s, want 100,000 in %s at most", path, size, least, limit)
		}
	}
}
