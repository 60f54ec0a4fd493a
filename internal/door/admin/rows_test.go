package admin_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/door/admin"
	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/search"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestLook_Finished: pages of finished tasks together equal the view for these pipelines, without duplicates, the
// newest first.
func TestLook_Finished(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.reset()
	f.MustExec(`INSERT INTO embedsidecar.worker (instance, version, slot_name, stream) VALUES ('one', 'v1', 's', 'none')`)
	f.MustExec(`INSERT INTO embedsidecar.history (bucket, finished_at, pipeline_id, row_key, outcome, attempt, worker_id,
		committed_at, lsn, error_code, took_ms)
		SELECT b.bucket, now() - (i + b.bucket * 100) * interval '1 min', p.pipeline_id,
		       i::text, CASE WHEN i % 3 = 0 THEN 'failed' ELSE 'embedded' END, 1,
		       (SELECT max(w.worker_id) FROM embedsidecar.worker AS w), now() - interval '1 day', '0/1',
		       CASE WHEN i % 3 = 0 THEN 'too_long' END, 250
		FROM   embedsidecar.pipeline AS p, generate_series(1, 5) AS i, (VALUES (0), (7)) AS b (bucket)`)
	for token, names := range map[string]string{"viewer": "'.'", "scoped": "'^public.docs$'"} {
		shown := testenv.Values[string](f.Database, `SELECT concat_ws(' ', pipeline, row_key, outcome, error_code, worked_by,
			round(extract(epoch FROM finished_at - started_at) * 1000)) FROM embedsidecar.finished_tasks
			WHERE pipeline ~ `+names+` ORDER BY finished_at DESC, pipeline, row_key`)
		var finished []string
		for path := "/api/v1/tasks?state=finished&limit=3"; path != ""; {
			page := gets[admin.TaskPage](f, token, path)
			for _, task := range page.Tasks {
				words := []string{task.Pipeline, task.Key, task.Outcome}
				if task.Code != "" {
					words = append(words, task.Code)
				}
				took := task.FinishedAt.Sub(*task.StartedAt).Milliseconds()
				finished = append(finished, strings.Join(append(words, task.LeasedBy, fmt.Sprint(took)), " "))
			}
			if path = ""; page.Next != "" {
				path = "/api/v1/tasks?state=finished&limit=3&cursor=" + page.Next
			}
		}
		if !slices.Equal(finished, shown) || len(finished) < 10 {
			t.Errorf("%s: finished: %q, the view has %q", token, finished, shown)
		}
	}
	for _, cursor := range []string{"nonsense", "8.1.1.x", "0.1", "-1"} {
		a := f.ask("viewer", http.MethodGet, "/api/v1/tasks?state=finished&cursor="+cursor, "")
		if a.status != http.StatusBadRequest {
			t.Errorf("cursor %s: %d %s", cursor, a.status, a.body)
		}
	}
	const some = "/api/v1/tasks?state=finished&code=too_long&key=3&older_than=90m"
	if page := gets[admin.TaskPage](f, "viewer", some); len(page.Tasks) == 0 || page.Tasks[0].Key != "3" {
		t.Errorf("chosen: %+v", page)
	}
}

// TestLook_AsTheViewsShowIt: workers, lanes and states of rows equal the views of the same names, which use other
// statements.
func TestLook_AsTheViewsShowIt(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.reset()
	f.MustExec(`INSERT INTO embedsidecar.worker (instance, version, slot_name, stream, stream_detail, host, role,
		succeeded_24h, failed_24h, last_batch_at, last_seen_at, problems)
		VALUES ('one', 'v1', 's', 'streaming', 'hunter2', 'h', 'all', 7, 2, now(), now(),
		        '{"1": {"code": "plugin_down", "detail": "hunter2"}}'),
		       ('two', 'v0', 's', 'none', '', '', '', 0, 0, NULL, now() - interval '1 h', '{}')`)
	f.MustExec(`INSERT INTO embedsidecar.task (pipeline_id, row_key, lane, xid, first_lsn, last_lsn, committed_at)
		SELECT p.pipeline_id, i::text, i % 4, '3', '0/1', '0/1', now() - i * interval '1 min'
		FROM   embedsidecar.pipeline AS p, generate_series(5, 9) AS i`)
	f.MustExec(`INSERT INTO embedsidecar.lease (pipeline_id, token, worker_id, task_ids, extended_at, leased_until,
		timeline, epoch)
		SELECT t.pipeline_id, 1, (SELECT min(w.worker_id) FROM embedsidecar.worker AS w), array_agg(t.task_id), now(),
		       now() + interval '1 h', 1, p.lease_epoch
		FROM   embedsidecar.task AS t JOIN embedsidecar.pipeline AS p USING (pipeline_id) WHERE t.row_key IN ('5', '6')
		GROUP  BY t.pipeline_id, p.lease_epoch`)
	f.MustExec(`INSERT INTO embedsidecar.ledger (pipeline_id, row_key, generation, lsn, text_hash, source_hash, vector_hash)
		SELECT p.pipeline_id, r.key, p.generation - r.before, '0/1', sha256(r.text::bytea), '', r.vector::bytea
		FROM   embedsidecar.pipeline AS p,
		       (VALUES ('1', 'a', 'v', 0), ('7', 'a', 'v', 0), ('8', NULL, 'v', 0), ('20', 'a', 'v', 0), ('21', NULL, 'v', 0),
		       ('22', 'a', '', 0), ('23', 'a', 'v', 1)) AS r (key, text, vector, before)`)

	workers := gets[struct{ Workers []report.Worker }](f, "viewer", "/api/v1/workers").Workers
	var told []string
	shown := testenv.Values[string](f.Database, `SELECT concat_ws(' ', v.instance, v.version, v.host, v.role, runs, processed_24h, v.succeeded_24h, v.failed_24h, v.last_batch_at IS NOT NULL, rows_leased) FROM embedsidecar.workers AS v ORDER BY worker_id`)
	for _, w := range workers {
		told = append(told, strings.Join([]string{
			w.Instance, w.Version, w.Host, w.Role, word(w.Runs), fmt.Sprint(w.Processed), fmt.Sprint(w.Succeeded),
			fmt.Sprint(w.GivenUp), word(w.LastBatchAt != nil), fmt.Sprint(w.Leased),
		}, " "))
		if strings.Contains(fmt.Sprint(w), "hunter2") {
			t.Errorf("what is secret shows: %+v", w)
		}
	}
	if !slices.Equal(told, shown) || len(told) != 2 {
		t.Errorf("workers: %q, the view has %q", told, shown)
	}

	var lanes []string
	for _, l := range gets[struct{ Lanes []report.Lane }](f, "viewer", "/api/v1/lanes").Lanes {
		lanes = append(lanes, fmt.Sprintf("%s %s %s %d %.0f %.0f %.0f", l.Pipeline, l.Priority, l.State, l.Rows, l.Oldest/60, l.Newest/60, l.Average/60000))
	}
	shown = testenv.Values[string](f.Database, `SELECT concat_ws(' ', pipeline, priority, state, rows, round(oldest_seconds / 60), round(newest_seconds / 60), round(average_ms / 60000)) FROM embedsidecar.lanes`)
	slices.Sort(lanes)
	slices.Sort(shown)
	if !slices.Equal(lanes, shown) || len(lanes) < 10 {
		t.Errorf("lanes: %q, the view has %q", lanes, shown)
	}
	if scoped := gets[struct{ Lanes []report.Lane }](f, "scoped", "/api/v1/lanes").Lanes; len(scoped) != len(lanes)/2 {
		t.Errorf("for some pipelines: %v", scoped)
	}

	query := "?key=nobody"
	for i := range 30 {
		query += fmt.Sprintf("&key=%d&key=%d", i, i)
	}
	var states []string
	for _, r := range gets[struct{ Rows []report.RowState }](f, "scoped", "/api/v1/pipelines/docs/rows"+query).Rows {
		states = append(states, r.Key+" "+r.State+" "+word(r.WrittenAt != nil)+" "+word(r.ChangedAt != nil))
	}
	shown = testenv.Values[string](f.Database, `SELECT concat_ws(' ', row_key, state, written_at IS NOT NULL, changed_at IS NOT NULL) FROM embedsidecar.row_state WHERE pipeline = 'public.docs' ORDER BY row_key COLLATE "C"`)
	if !slices.Equal(states, shown) || len(states) != 13 {
		t.Errorf("rows: %q, the view has %q", states, shown)
	}
	const others = "/api/v1/pipelines/notes/rows?key=1"
	f.refused(http.StatusNotFound, "pipeline_not_found", "scoped", http.MethodGet, others, "")
	if a := f.ask("viewer", http.MethodGet, "/api/v1/pipelines/docs/rows", ""); a.status != http.StatusUnprocessableEntity && a.status != http.StatusBadRequest {
		t.Errorf("without keys: %d %s", a.status, a.body)
	}
}

// word formats a boolean as SQL does.
func word(is bool) string { return fmt.Sprint(is)[:1] }

// embedded writes the vector N, 1, 0 for row N of docs.
func (f *fixture) embedded() {
	f.t.Helper()
	f.MustExec(`INSERT INTO docs_embedding (id, chunk_no, generation, text_hash, embedded_at, embedding)
		SELECT i, 0, (SELECT generation FROM embedsidecar.pipeline WHERE name = 'public.docs'), '', now(),
		       format('[%s,1,0]', i)::vector FROM generate_series(1, 4) AS i`)
}

// TestSearch_ByText: a search finds the nearest rows, as the role of the program. It shows texts only to callers that
// may see them, and rejects an invalid query.
func TestSearch_ByText(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(f *fixture, _ *gate.Options) {
		f.embed = func(_ context.Context, _ *pipeline.Pipeline, text string) ([]float32, error) {
			return []float32{float32(len(text)), 1, 0}, nil
		}
	})
	f.embedded()
	const path = "/api/v1/search"
	found := func(who, body string) (keys []string, hits []search.Hit) {
		t.Helper()
		hits = decoded[admin.Answer](f, body, f.ask(who, http.MethodPost, path, body)).Hits
		for _, hit := range hits {
			keys = append(keys, hit.Key)
		}
		return keys, hits
	}
	keys, hits := found("operator", `{"pipeline": "docs", "text": "abc", "k": 2}`)
	if fmt.Sprint(keys) != "[3 4]" || hits[0].Text != "" {
		t.Errorf("%v", hits)
	}
	if keys, _ := found("scoped", `{"pipeline": "docs", "text": "a"}`); len(keys) != 4 || keys[0] != "1" {
		t.Errorf("%q", keys)
	}
	if _, hits := found("operator", `{"pipeline": "docs", "text": "a", "show_text": true}`); hits[0].Text != "" {
		t.Errorf("texts show: %v", hits)
	}
	f.config.Admin.ShowRowText = true
	f.listen()
	if _, hits := found("operator", `{"pipeline": "docs", "text": "a", "show_text": true}`); hits[0].Text != "CANARY 1" {
		t.Errorf("where they may be seen: %v", hits)
	}
	for _, body := range []string{
		`{"pipeline": "docs", "text": " "}`, `{"pipeline": "docs", "text": "` + strings.Repeat("x", 9000) + `"}`, `{"pipeline": "docs", "text": "a\u0000"}`,
	} {
		f.refused(http.StatusBadRequest, "usage", "operator", http.MethodPost, path, body)
	}
	f.refused(http.StatusForbidden, "role", "viewer", http.MethodPost, path, `{"pipeline": "docs", "text": "a"}`)
	f.embed = nil
	f.listen()
	f.refused(http.StatusServiceUnavailable, "no_model", "operator", http.MethodPost, path, `{"pipeline": "docs", "text": "a"}`)
}
