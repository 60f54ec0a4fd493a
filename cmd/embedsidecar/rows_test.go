package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/embedsidecar/embedsidecar/internal/manage/verbs"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP10_RowsThatFailedAreNamed: failed rows are listed by key, class, code, message, age and next try, and one of
// them is retried alone. The error of a trigger is kept; no text of a row is shown.
func TestP10_RowsThatFailedAreNamed(t *testing.T) {
	t.Parallel()
	s := newStage(t, 6)
	s.secrets = append(s.secrets, "POISON", "a text that nobody may see")
	s.db.MustExec("UPDATE docs SET body = 'POISON' WHERE id = 3")
	s.db.MustExec("UPDATE docs SET body = 'a text that nobody may see' WHERE id = 5")
	s.db.MustExec(`CREATE FUNCTION monday() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.embedding IS NOT NULL AND NEW.id = 5 THEN RAISE EXCEPTION 'no vectors on mondays for: %', NEW.body; END IF;
		RETURN NEW; END $$`)
	s.db.MustExec("CREATE TRIGGER monday BEFORE UPDATE ON docs FOR EACH ROW EXECUTE FUNCTION monday()")
	s.set("EMBEDSIDECAR_PLUGIN_FAULTS=refuse-on=POISON")
	_, stderr := s.run(exitFailed, "run", "--once", "--table", "docs", "--columns", "title,body", "--into", "embedding",
		"--set", "retry.max_attempts=1")
	s.has(stderr, "2 rows could not be embedded", "data refused, row 3: ", "data write_refused, row 5: ",
		"SQLSTATE P0001: raised by monday, line 2")
	stdout, _ := s.run(0, "tasks", "list", "docs", "--state", "failed", "-o", "json") // the bare table name is enough
	rows := decoded[map[string][]report.Task](t, stdout)["tasks"]
	if len(rows) != 2 || rows[0].Key != "3" && rows[1].Key != "3" {
		t.Fatalf("failed: %s", stdout)
	}
	for _, r := range rows {
		if r.Pipeline != "public.docs" || r.State != "failed" || r.Class != "data" || r.Code == "" || r.Message == "" ||
			strings.Contains(r.Message, r.Code+":") || r.Attempt != 1 || r.AgeSeconds < 0 ||
			r.ScheduledAt != nil || r.StartedAt == nil || r.FinishedAt == nil || r.StartedAt.Before(*r.CreatedAt) ||
			r.FinishedAt.Before(*r.StartedAt) {
			t.Errorf("%+v", r)
		}
	}
	stdout, _ = s.run(0, "status")
	s.has(stdout, "! public.docs: 1 row given up, data write_refused, row 5: ")
	if p := s.state("public.docs"); p.Failed != 2 || p.CoverageOr(-1) >= 1 {
		t.Errorf("%+v", p)
	}
	_, stderr = s.run(exitFailed, "wait", "--lsn", "0/1")
	s.has(stderr, "data refused, row 3: ", "embedsidecar tasks list --state failed lists all of them")

	// One of them is retried alone.
	s.set("EMBEDSIDECAR_PLUGIN_FAULTS=")
	retried := func(args ...string) verbs.Outcome {
		t.Helper()
		stdout, _ := s.run(0, append([]string{"tasks", "retry", "-o", "json"}, args...)...)
		return told(decoded[map[string][]verbs.Outcome](t, stdout)["pipelines"][0])
	}
	if diff := cmp.Diff(ofDocs("retried", 1), retried("docs", "3")); diff != "" {
		t.Errorf("retry of a key (-want +got):\n%s", diff)
	}
	if got := retried("docs", "4"); got.Result != "nothing_to_retry" {
		t.Errorf("retry of a row that is well: %+v", got)
	}
	d := s.start("--no-init")
	s.becomes("public.docs", health.RowsFailed, "1 row could not be embedded")
	s.db.MustExec("DROP TRIGGER monday ON docs")
	s.run(0, "tasks", "retry", "public.docs")
	s.becomes("public.docs", health.UpToDate)

	s.backfillEmbedsNone()
	s.reembedsAnew()
	s.repairsWhatIsWrong()
	d.end(syscall.SIGTERM, 0)
}

// embedded counts the texts that were embedded for rows.
func (s *stage) embedded() int {
	s.t.Helper()
	return testenv.Value[int](s.db, "SELECT count(*)::int FROM embedsidecar.history WHERE outcome = 'embedded'")
}

// backfillEmbedsNone rescans all rows, none of which needs an embedding.
func (s *stage) backfillEmbedsNone() {
	s.t.Helper()
	before := s.embedded()
	stdout, _ := s.run(0, "backfill", "docs")
	s.has(stdout, "scan_requested")
	s.run(0, "wait", "--caught-up")
	if p := s.state("public.docs"); p.ScanSeen != 6 || p.ScanReason != "requested" || s.embedded() != before {
		s.t.Errorf("%+v", p)
	}
}

// reembedsAnew embeds one row and then all rows again though no text changed, without any cache.
func (s *stage) reembedsAnew() {
	s.t.Helper()
	before := s.embedded()
	for _, c := range []struct {
		args   []string
		result string
		rows   int64
	}{
		{[]string{"reembed", "docs", "3", "--dry-run"}, "reembed_would_be_requested", 1},
		{[]string{"reembed", "docs", "3"}, "reembed_requested", 1},
		{[]string{"reembed", "docs", "nobody"}, "nothing_to_reembed", 0},
		{[]string{"tasks", "retry", "docs", "2", "nobody"}, "nothing_to_retry", 0},
		{[]string{"reembed", "docs"}, "reembed_requested", 6},
	} {
		stdout, stderr := s.run(0, append(c.args, "-o", "json")...)
		if told := strings.Contains(stderr, `knows no row with the key "nobody"`); told !=
			slices.Contains(c.args, "nobody") || strings.Contains(stderr, `key "2"`) {
			s.t.Errorf("%v: %s", c.args, stderr)
		}
		got := told(decoded[map[string][]verbs.Outcome](s.t, stdout)["pipelines"][0])
		if diff := cmp.Diff(ofDocs(c.result, c.rows), got); diff != "" {
			s.t.Errorf("%v (-want +got):\n%s", c.args, diff)
		}
		s.run(0, "wait", "--caught-up")
	}
	if n := s.embedded() - before; n != 7 {
		s.t.Errorf("%d texts were embedded anew for 1 and 6", n)
	}
}

// repairsWhatIsWrong makes verify find errors, and the running sidecar repair them.
func (s *stage) repairsWhatIsWrong() {
	s.t.Helper()
	s.db.MustExec("UPDATE docs SET embedding = (SELECT embedding FROM docs WHERE id = 1) WHERE id = 2")
	s.run(0, "wait", "--caught-up")
	s.db.MustExec("UPDATE embedsidecar.ledger SET vector_hash = '\\x0000000000000001' WHERE row_key = '4'")
	stdout, _ := s.run(0, "verify", "--repair", "-o", "json")
	if v := decoded[map[string][]verbs.Verified](s.t, stdout)["pipelines"][0]; v.OK || v.Stale != 1 || v.Repairs == nil ||
		v.Repairs.Looks != 1 || v.Repairs.Anew != 0 {
		s.t.Errorf("verify --repair: %s", stdout)
	}
	s.run(0, "wait", "--caught-up")
	stdout, _ = s.run(0, "verify", "--repair", "--deep", "10")
	s.has(stdout, " ok")
}

// TestP8_StatusTellsWhatAPipelineHasCost: the fake plugin counts words as tokens, and each text has four. A known text
// costs nothing.
func TestP8_StatusTellsWhatAPipelineHasCost(t *testing.T) {
	t.Parallel()
	s := newStage(t, 20)
	file := filepath.Join(t.TempDir(), "prices.yaml")
	if err := os.WriteFile(file, []byte("currency: EUR\nmodels: [{name: fake, plugin: fake, price: 1000000}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := []string{"--config", file, "--model", "fake"}
	s.once(0, flags...)
	if p := s.state("public.docs"); p.Tokens != 80 || p.Saved.Embedded != 20 || p.Saved.Reused != 0 {
		t.Errorf("%d tokens for 20 texts of four, saved %+v", p.Tokens, p.Saved)
	}
	s.db.MustExec("UPDATE docs SET title = 'title 1', body = 'body 1' WHERE id = 2")
	s.db.MustExec("UPDATE docs SET body = 'another text here' WHERE id = 3")
	s.db.MustExec("UPDATE docs SET title = title WHERE id = 4")
	s.once(0, flags...)
	p := s.state("public.docs")
	if p.Tokens != 85 {
		t.Errorf("%d tokens after a text of five, and one that was known", p.Tokens)
	}
	if p.Saved.Embedded != 21 || p.Saved.Reused != 1 || p.Saved.Tokens != 4 || p.Saved.Price != nil {
		t.Errorf("saved: %+v, want one text beside 21", p.Saved)
	}
	stdout, _ := s.run(0, "status", "--config", file)
	s.has(stdout, "public.docs: 21 texts embedded; 1 text had a vector already: about 4 tokens saved, worth 4.00 EUR; 85.00 EUR spent",
		"1 change touched no text")
}

// told is an outcome without the number of its audit entry and the remaining rows.
func told(o verbs.Outcome) verbs.Outcome {
	return verbs.Outcome{Pipeline: o.Pipeline, Result: o.Result, Rows: o.Rows}
}

// ofDocs is the outcome for rows of public.docs.
func ofDocs(result string, rows int64) verbs.Outcome {
	return verbs.Outcome{Pipeline: "public.docs", Result: result, Rows: rows}
}
