package main

import (
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/manage/verbs"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestTrust_AReloadIsForTheSidecarsOfItsDatabase: sidecars of other databases in the same socket folder do not reload,
// whatever address names the database.
func TestTrust_AReloadIsForTheSidecarsOfItsDatabase(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "r") //nolint:usetesting // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	var stages [2]*stage
	for i := range stages {
		s := newStage(t, 1)
		s.set("TMPDIR=" + dir)
		d := s.start("--pipeline", "docs: title, body -> embedding")
		d.logged("pipeline started", "pipeline")
		stages[i] = s
	}
	mine, others := stages[0], stages[1]
	mine.run(0, "plugins", "reload", "fake")
	mine.at(mine.db.URL(testenv.Owner) + "&connect_timeout=300&application_name=another")
	mine.run(0, "plugins", "reload", "fake")
	reloads := func(s *stage) int64 {
		return testenv.Value[int64](s.db, `SELECT count(*) FROM embedsidecar.audit WHERE action = 'reload'`)
	}
	if mine, others := reloads(mine), reloads(others); mine != 2 || others != 0 {
		t.Errorf("%d reloads of its own sidecar, want 2; %d of another's", mine, others)
	}
	third := newStage(t, 0)
	third.set("TMPDIR=" + dir)
	_, stderr := third.run(4, "plugins", "reload")
	third.has(stderr, "none of the 2 sidecars of this user here works for that database")
}

// TestP10_AReloadIsInTheAudit: the audit has reloads from every door.
func TestP10_AReloadIsInTheAudit(t *testing.T) {
	t.Parallel()
	s := newStage(t, 5)
	s.once(0)
	// Other sidecars must not reload.
	dir, err := os.MkdirTemp("", "r") //nolint:usetesting // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s.set("TMPDIR=" + dir)
	d := s.start("--pipeline", "docs: title, body -> embedding")
	d.logged("streaming", "slot")
	d.logged("pipeline started", "pipeline")
	s.run(0, "plugins", "reload", "fake")
	if err := d.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	want := []string{verbs.Person() + " by plugins reload: fake 1.0.0 reloaded", "SIGHUP: fake 1.0.0 reloaded"}
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		got := testenv.Values[string](s.db, `SELECT said_by || ': ' || (arguments ->> 'plugin') || ' ' || (arguments ->> 'version') || ' ' || result
			FROM embedsidecar.audit WHERE action = 'reload' ORDER BY audit_id`)
		return slices.Equal(got, want), strings.Join(got, "\n")
	})
}
