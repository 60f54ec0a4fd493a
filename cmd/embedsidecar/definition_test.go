package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP8_ReplicasOfDifferentAgesDoNotUndoEachOther: replicas are replaced one by one; an old one starts again, the
// change is rolled back by hand, and a new one starts again. Each change is paid for once.
func TestP8_ReplicasOfDifferentAgesDoNotUndoEachOther(t *testing.T) {
	t.Parallel()
	s := newStage(t, 20)
	as := func(columns string) []string {
		return []string{"--table", "docs", "--columns", columns, "--into-table", "docs_emb"}
	}
	before, after := as("title"), as("title,body")
	columns := func() string {
		return testenv.Value[string](s.db, "SELECT array_to_string(source_columns, ',') FROM embedsidecar.pipeline")
	}
	is := func(want string) {
		t.Helper()
		s.run(0, "wait", "--caught-up")
		if got := columns(); got != want {
			t.Fatalf("the text is of %s, want %s", got, want)
		}
		s.run(0, "verify", "--deep", "20")
	}
	s.run(0, append([]string{"init"}, before...)...)
	old := s.start(before...)
	is("title")
	young := s.start(after...)
	s.becomes("public.docs", health.UpToDate)
	testenv.Eventually(t, waitTimeout, func() (bool, string) { return columns() == "title,body", columns() })
	is("title,body")
	stdout, _ := s.run(0, "status", "-o", "json") // on one host, each with its own name
	if both := decoded[report.Status](t, stdout).Sidecars; len(both) != 2 || both[0].Instance == both[1].Instance {
		t.Errorf("two sidecars: %+v", both)
	}

	old.end(syscall.SIGTERM, 0)
	old = s.start(before...)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		return strings.Contains(old.text(),
			"is configured here as in version 1 of its definition, and is set up as in version 2, which is newer"), old.text()
	})
	stdout, _ = s.run(0, append([]string{"check"}, before...)...)
	s.has(stdout, `warn   pipeline "public.docs": it is configured here as in version 1 of its definition, and is set up as in version 2, which is newer: run leaves it as it is set up: columns (it was: title, body)`,
		"deploy the newer configuration")
	// A second sidecar with the newer configuration stays. When none has it for a while, the older one applies.
	third := s.start(append([]string{"--role", "work"}, after...)...)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		states := testenv.Value[string](s.db,
			"SELECT string_agg(state, ' ' ORDER BY state) FROM embedsidecar.configuration WHERE subject = 'pipeline'")
		return states == "configured_otherwise in_force in_force", states
	})
	young.end(syscall.SIGTERM, 0) // now the older one streams
	is("title,body")

	_, said := s.run(0, append([]string{"init"}, before...)...)
	s.has(said, "goes back to version 1 of its definition, as version 3")
	is("title")
	young = s.start(after...)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		return strings.Contains(young.text(),
			"is configured here as in version 2 of its definition, and is set up as in version 3"), young.text()
	})
	is("title")
	if n := testenv.Value[int](s.db,
		"SELECT count(*)::int FROM embedsidecar.pipeline WHERE definition_version = 3"); n != 1 {
		t.Error("the definition has another version than 3")
	}
	for _, d := range []*daemon{old, young, third} {
		d.end(syscall.SIGTERM, 0)
	}
}
