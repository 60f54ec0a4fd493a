package main

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP10_AnActionSaysTheSameByEveryDoor: with and without something to do, for a running and for a paused pipeline,
// the command line and HTTP answer with the result word of the audit and of SQL. For an unknown pipeline each is an
// error, and the audit has no entry.
func TestP10_AnActionSaysTheSameByEveryDoor(t *testing.T) {
	t.Parallel()
	d := newDoors(t, testenv.Majors(t)[0])
	const (
		empty  = `TRUNCATE embedsidecar.task, embedsidecar.ledger`
		paused = `UPDATE embedsidecar.pipeline SET enabled = false`
		urgent = `UPDATE embedsidecar.pipeline SET lane = 3; UPDATE embedsidecar.task SET lane = 3`
	)
	for _, c := range []struct{ cli, sql, path, body, some, idle, none string }{
		{"pause docs", `pause('docs')`, "/pipelines/docs/pause", "", "paused", paused, "already_paused"},
		{"resume docs", `resume('docs')`, "/pipelines/docs/resume", "", "resumed", ``, "already_on"},
		{"backfill docs", `backfill('docs')`, "/pipelines/docs/backfill", "", "scan_requested", "", ""},
		{"reembed docs", `reembed('docs')`, "/pipelines/docs/reembed", "", "reembed_requested", empty, "nothing_to_reembed"},
		{"tasks prioritise docs urgent", `set_priority('docs', 'urgent')`, "/pipelines/docs/priority", `{"priority": "urgent"}`, "set", urgent, "already_so"},
		{"tasks prioritise docs urgent --waiting", `prioritise('docs', 'urgent')`, "/tasks/prioritise", `{"pipelines": ["docs"], "priority": "urgent"}`, "prioritised", urgent, "nothing_to_prioritise"},
		{"tasks retry docs", `retry_failed('docs')`, "/tasks/retry", `{"pipelines": ["docs"]}`, "retried", empty, "nothing_to_retry"},
		{"tasks discard docs", `discard_dead('docs')`, "/tasks/discard", `{"pipelines": ["docs"]}`, "discarded", empty, "nothing_to_discard"},
		{"tasks requeue docs", `requeue('docs')`, "/tasks/requeue", `{"pipelines": ["docs"]}`, "requeued", empty, "nothing_to_requeue"},
		{"tasks cancel docs 1", `cancel('docs', '{1}')`, "/tasks/cancel", `{"pipelines": ["docs"], "keys": ["1"]}`, "cancelled", empty, "nothing_to_cancel"},
	} {
		at := door{c.cli, "SELECT embedsidecar." + c.sql, c.path, c.body}
		before := ""
		if c.some == "resumed" {
			before = paused
		}
		d.words(before, at, c.some)
		if c.some != "paused" && c.some != "resumed" {
			d.words(paused, at, c.some)
		}
		if c.none != "" {
			d.words(c.idle, at, c.none)
		}
		d.nowhere(at)
	}
}

// door is an action by each door.
type door struct{ cli, sql, path, body string }

// words fails the test unless an action has the same word by every door, and in the audit.
func (d *doors) words(before string, at door, want string) {
	d.t.Helper()
	type said struct {
		Pipelines, Outcomes []struct{ Result string }
	}
	word := func(text string) string {
		a := decoded[said](d.t, text)
		if all := append(a.Pipelines, a.Outcomes...); len(all) == 1 {
			return all[0].Result
		}
		return text
	}
	for i, act := range []func() string{
		func() string {
			stdout, _ := d.run(0, append(strings.Fields(at.cli), "-o", "json")...)
			return word(stdout)
		},
		func() string {
			if _, err := d.conn.Exec(d.t.Context(), at.sql); err != nil {
				d.t.Fatalf("%s: %v", at.sql, err)
			}
			return want // the audit has it
		},
		func() string { return word(d.post(at.path, at.body)) },
	} {
		d.reset(before)
		got := act()
		kept := testenv.Values[string](d.db, `SELECT action || ' ' || result FROM embedsidecar.audit_log`)
		if got != want || len(kept) != 1 || !strings.HasSuffix(kept[0], " "+want) {
			d.t.Errorf("%s after %q by door %d says %q, and the audit %q, want %q", at.cli, before, i, got, kept, want)
		}
	}
}

// nowhere fails the test unless an action on an unknown pipeline is an error by every door.
func (d *doors) nowhere(at door) {
	d.t.Helper()
	d.reset("")
	elsewhere := strings.NewReplacer("docs", "nonesuch")
	before := d.left()
	d.run(exitUsage, strings.Fields(elsewhere.Replace(at.cli))...)
	if _, err := d.conn.Exec(d.t.Context(), elsewhere.Replace(at.sql)); err == nil {
		d.t.Errorf("%s: no error for a pipeline that is not there", at.sql)
	}
	r, err := http.NewRequestWithContext(d.t.Context(), http.MethodPost, d.base+elsewhere.Replace(at.path),
		strings.NewReader(elsewhere.Replace(at.body)))
	if err != nil {
		d.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+d.token)
	if at.body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if content, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusNotFound || !json.Valid(content) {
		d.t.Errorf("POST %s: %d %s", at.path, answer.StatusCode, content)
	}
	if after := d.left(); after != before {
		d.t.Errorf("%s on a pipeline that is not there left\n%s\nof\n%s", at.cli, after, before)
	}
}
