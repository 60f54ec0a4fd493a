package main

import (
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/node/actions"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP10_AReloadIsInTheAudit: like every action, whoever asked for it.
func TestP10_AReloadIsInTheAudit(t *testing.T) {
	t.Parallel()
	s := newStage(t, 5)
	s.once(0)
	// Sidecars of others are not to be reloaded.
	dir, err := os.MkdirTemp("", "r") //nolint:usetesting // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s.set("TMPDIR=" + dir)
	d := s.start("--pipeline", "docs: title, body -> embedding")
	d.logged("streaming", "slot")
	d.logged("pipeline at work", "pipeline")
	s.run(0, "plugins", "reload", "fake")
	if err := d.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	want := []string{actions.Person() + " by plugins reload: fake 1.0.0 reloaded", "SIGHUP: fake 1.0.0 reloaded"}
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		got := testenv.Values[string](s.db, `SELECT said_by || ': ' || (arguments ->> 'plugin') || ' ' || (arguments ->> 'version') || ' ' || result
			FROM embedsidecar.audit WHERE action = 'reload' ORDER BY audit_id`)
		return slices.Equal(got, want), strings.Join(got, "\n")
	})
}
