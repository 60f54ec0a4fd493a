package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/app"
	"github.com/embedsidecar/embedsidecar/internal/setup/estimate"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestBackfill_TellsWhatItTakes: a dry run estimates only the rows without a vector of their text, for a role that may
// read them. It queues nothing. The backfill then embeds as many texts as estimated.
func TestBackfill_TellsWhatItTakes(t *testing.T) {
	t.Parallel()
	testenv.InTurn(t, 1, "", func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		s := newStage(t, 6, testenv.Major(major))
		config := func(name, body string) (path string) {
			t.Helper()
			path = filepath.Join(t.TempDir(), name)
			if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
				t.Fatal(err)
			}
			return path
		}
		s.set("EMBEDSIDECAR_CONFIG=" + config("free.yaml", "models: [{name: fake, plugin: fake}]\n"))
		s.once(0, "--model", "fake")
		s.db.RunRole()
		told := func(args ...string) app.Backfilled {
			t.Helper()
			stdout, _ := s.run(0, append([]string{"backfill", "docs", "--dry-run", "-o", "json"}, args...)...)
			return decoded[map[string][]app.Backfilled](t, stdout)["pipelines"][0]
		}
		if got := told(); got.Result != "scan_would_be_requested" || got.Estimate == nil || got.Estimate.Rows != 6 ||
			got.Estimate.Texts != 0 || got.Estimate.Tokens != 0 || got.Estimate.DiskBytes != 0 {
			t.Errorf("where nothing is missing: %+v, %+v", got, got.Estimate)
		}

		s.db.MustExec("UPDATE docs SET body = 'another text of some more words' WHERE id = 2")
		s.db.MustExec("UPDATE docs SET embedding = NULL WHERE id IN (3, 4)")
		e := told().Estimate
		if e == nil || e.Rows != 6 || e.Texts != 3 || e.Sampled != 3 || e.Tokens < 3 || e.Seconds == nil || e.Price != nil ||
			e.DiskBytes < 3*8*4 {
			t.Fatalf("where three are: %+v", e)
		}
		file := config("priced.yaml", "models: [{name: fake, plugin: fake, price: 1000000}]\n")
		if paid := told("--config", file).Estimate; paid == nil || paid.Price == nil || int64(*paid.Price) != e.Tokens || paid.Seconds != nil {
			t.Errorf("with a price: %+v, and without %+v", paid, e)
		}
		stdout, _ := s.run(0, "backfill", "--dry-run")
		s.has(stdout, "TO EMBED", "public.docs", "scan_would_be_requested")

		// A role that may act but not read the table is told what would be done, and why there is no estimate.
		_, operator := s.db.SQLRoles()
		s.as(operator)
		s.set("EMBEDSIDECAR_TRUST_OWNER=" + testenv.Owner)
		stdout, stderr := s.run(0, "backfill", "docs", "--dry-run")
		s.has(stdout, "scan_would_be_requested")
		s.has(stderr, "no estimate: ", "permission denied")
		if n := testenv.Value[int](s.db, "SELECT count(*) FROM embedsidecar.audit_log WHERE action <> 'scan'"); n != 0 {
			t.Errorf("%d entries of the audit", n)
		}
		stdout, _ = s.run(0, "backfill", "docs")
		s.has(stdout, "scan_requested")

		s.as(testenv.Owner)
		before := s.embedded()
		s.run(0, "run", "--once")
		if n := s.embedded() - before; int64(n) != e.Texts {
			t.Errorf("%d rows were embedded, and told were %d", n, e.Texts)
		}
		s.run(0, "verify")

		// Reembed, and a changed text, have an estimate; an unchanged definition has none.
		stdout, _ = s.run(0, "reembed", "docs", "--dry-run", "-o", "json")
		again := decoded[map[string][]app.Backfilled](t, stdout)["pipelines"][0]
		if again.Result != "reembed_would_be_requested" || again.Estimate == nil || again.Estimate.Texts != 6 {
			t.Errorf("to embed all again: %+v, %+v", again, again.Estimate)
		}
		for columns, texts := range map[string]int64{"title,body": -1, "title": 6} {
			stdout, _ = s.run(0, "init", "--dry-run", "-o", "json", "--table", "docs", "--columns", columns,
				"--into", "embedding", "--model", "fake")
			list := decoded[struct{ Estimates []estimate.Estimate }](t, stdout).Estimates
			if texts < 0 && len(list) > 0 || texts > 0 && (len(list) != 1 || list[0].Texts != texts) {
				t.Errorf("init of %s would take %+v", columns, list)
			}
		}
	})
}
