package main

import (
	"fmt"
	"slices"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/setup/indexes"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestIndex_IsBuiltAsConfiguredAndMeasured: the file says what an index is built with; the check measures what it
// finds.
func TestIndex_IsBuiltAsConfiguredAndMeasured(t *testing.T) {
	t.Parallel()
	rows := testenv.FromEnvironment(t, "EMBEDSIDECAR_BIG_ROWS", 5000)
	s := newStage(t, rows)
	config := func(index string) string {
		return s.file(`version: 1
pipelines:
  - name: docs
    table: public.docs
    columns: [title, body]
    into: {table: docs_embedding}
    index: ` + index + "\n")
	}
	for index, says := range map[string]string{
		"{m: 16}":                                   "kind: hnsw",
		"{kind: hnsw, m: 40}":                       "twice m",
		"{kind: ivfflat, m: 16}":                    "of hnsw",
		"{kind: hnsw, lists: 16}":                   "of ivfflat",
		"{kind: pg_diskann}":                        "hnsw",
		"{kind: hnsw, ef_construction: 5000, m: 8}": "1000",
	} {
		_, stderr := s.run(exitUsage, "config", "validate", "--config", config(index))
		s.has(stderr, says)
	}
	_, stderr := s.run(exitNotSetUp, "index", "check", "docs")
	s.has(stderr, "init")
	s.run(0, "run", "--once", "--config", config("none"))
	_, stderr = s.run(exitUsage, "index", "check", "docs")
	s.has(stderr, "CREATE INDEX CONCURRENTLY")
	for _, c := range []struct{ index, kind, options, setting string }{
		{"{kind: hnsw, m: 4, ef_construction: 8}", "hnsw", "{m=4,ef_construction=8}", "hnsw.ef_search"},
		{"{kind: ivfflat, lists: 20}", "ivfflat", "{lists=20}", "ivfflat.probes"},
	} {
		s.run(0, "run", "--once", "--config", config(c.index))
		s.ready(c.kind, c.options)
		s.measures(c.setting)
		s.measures(c.setting, "--filter", fmt.Sprintf(`{"id": {"$lte": %d}}`, rows/20))
		_, stderr = s.run(exitUsage, "index", "check", "docs", "--filter", `{"nothing": 1}`)
		s.has(stderr, "nothing")
		s.db.MustExec("DROP INDEX \"docs_embedding_embedding_" + c.kind + "\"")
	}
	if got := testenv.Value[string](s.db, "SELECT state FROM embedsidecar.indexes"); got != "none" {
		t.Errorf("without an index its state is %q", got)
	}
}

// ready makes a sidecar build the index, and checks it.
func (s *stage) ready(kind, options string) {
	s.t.Helper()
	got := testenv.Value[string](s.db, "SELECT concat_ws(' ', kind, state, options::text) FROM embedsidecar.indexes")
	if want := kind + " ready " + options; got != want {
		s.t.Errorf("the index is %q, want %q", got, want)
	}
}

// measures checks the measurement: some value is good enough, also for newly drawn vectors once it is set.
func (s *stage) measures(setting string, filter ...string) {
	s.t.Helper()
	args := append([]string{"index", "check", "docs"}, filter...)
	stdout, _ := s.run(0, append(args, "--sample", "50", "-o", "json")...)
	r := decoded[indexes.Recall](s.t, stdout)
	if r.Setting != setting || r.Queries != 50 || len(r.Measured) == 0 || r.Enough == nil ||
		r.Enough.Recall < indexes.Enough {
		s.t.Errorf("measured %+v", r)
	}
	s.set(fmt.Sprintf("PGOPTIONS=-c %s=%d", r.Setting, r.Enough.Value))
	defer s.set("PGOPTIONS=")
	stdout, _ = s.run(0, append(args, "-o", "json")...)
	again := decoded[indexes.Recall](s.t, stdout)
	at := slices.IndexFunc(again.Measured, func(m indexes.Setting) bool { return m.Value == r.Enough.Value })
	const luck = 0.02 // of a draw
	if at < 0 || again.Now != r.Enough.Value || again.Measured[at].Recall < indexes.Enough-luck {
		s.t.Errorf("%s = %d is named, and measured again it is %+v", r.Setting, r.Enough.Value, again)
		return
	}
	s.t.Logf("%v: %s = %d has a recall of %.3f, and then of %.3f (p50 %.1f ms; without the index %.1f ms)", args, r.Setting,
		r.Enough.Value, r.Enough.Recall, again.Measured[at].Recall, again.Measured[at].P50, again.Exact.P50)
	_, stderr := s.run(0, append(args, "--sample", "20")...)
	s.has(stderr, setting, "recall of 0.95")
}
