package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
	"github.com/embedsidecar/embedsidecar/plugins/host"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
	"github.com/embedsidecar/embedsidecar/testenv"
)

var docsFlags = []string{"--table", "docs", "--columns", "title,body", "--into", "embedding"}

// vectors identifies a state of the vectors.
func (s *stage) vectors() string {
	s.t.Helper()
	return testenv.Value[string](s.db, "SELECT md5(string_agg(embedding::text, ',' ORDER BY id)) FROM docs")
}

// Settings that users made at run time are not in the configuration. An upgrade keeps them in each case: a paused
// pipeline stays paused.
func TestP8_AnUpgradeLeavesAPausedPipelinePaused(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"init", "init --adopt", "run", "run --once", "--no-init beside init"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, 10)
			s.once(0)
			s.run(0, "pause", "public.docs")
			s.run(0, "tasks", "prioritise", "public.docs", "urgent")
			s.db.MustExec("UPDATE docs SET title = 'changed'")
			before := s.vectors()
			s.db.TakeBack()
			switch words := strings.Fields(by); words[0] {
			case "init":
				_, stderr := s.run(0, append(words, docsFlags...)...)
				s.has(stderr, fmt.Sprintf("made schema embedsidecar, version %d", sqlfiles.Version))
				if strings.Contains(stderr, "changes of pipeline") {
					t.Error(stderr)
				}
			case "run":
				if len(words) > 1 {
					_, stderr := s.once(exitFailed)
					s.has(stderr, "inactive: public.docs")
				}
			}
			var d *daemon
			if by == "--no-init beside init" {
				d = s.start(append([]string{"--no-init"}, docsFlags...)...)
				d.logged("waiting for the schema to be upgraded", "reason")
				s.run(0, append([]string{"init"}, docsFlags...)...)
			} else {
				d = s.start(docsFlags...)
			}
			d.logged("streaming", "slot")
			s.run(exitFailed, "wait", "--caught-up", "--timeout", waitTimeout.String())
			s.becomes("public.docs", health.Paused)
			d.end(syscall.SIGTERM, 0)
			if got := testenv.Value[string](s.db, "SELECT concat_ws(' ', enabled, lane) FROM embedsidecar.pipeline"); got != "f 3" {
				t.Errorf("enabled and priority are %q, want those that were set", got)
			}
			if n := testenv.Value[int](s.db, "SELECT count(*) FROM embedsidecar.task WHERE state = 'todo'"); n != 10 {
				t.Errorf("%d tasks wait, want 10", n)
			}
			if s.vectors() != before {
				t.Error("something was embedded")
			}
			s.run(0, "resume", "public.docs")
			s.once(0)
			s.run(0, "verify", "--deep", "10")
		})
	}
}

// A sidecar without configured pipelines works on the stored ones, which it can read only after the upgrade.
func TestP1_ARunWithoutPipelinesUpgrades(t *testing.T) {
	t.Parallel()
	s := newStage(t, 10)
	s.once(0)
	s.db.MustExec("UPDATE docs SET title = 'changed'")
	s.db.TakeBack()
	s.run(0, "run", "--once")
	s.run(0, "verify", "--deep", "10")
}

// A sidecar that may not upgrade, or is told not to, says what it waits for, and continues after the upgrade.
func TestP10_ASidecarWaitsForTheOwnersUpgrade(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{
		"told not to": {"--no-init"}, "streams only": {"--role", "stream"}, "may not": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, 10)
			s.once(0)
			all, err := lookup.All(t.Context(), s.db.Pool)
			if err != nil {
				t.Fatal(err)
			}
			owner := s.environ
			s.as(s.db.RunRole(all...))
			s.set("EMBEDSIDECAR_STREAM_URL=" + s.db.URL(s.db.StreamRole()))
			s.db.TakeBack()
			wanted := fmt.Sprintf("the schema embedsidecar has version %d, and this program needs version %d",
				sqlfiles.FirstVersion, sqlfiles.Version)
			way := fmt.Sprintf("run embedsidecar init as the owner of the schema, role %q", testenv.Owner)

			d := s.start(append(flags, "--ops-listen", "127.0.0.1:0")...)
			ready := "http://" + d.logged("probes and metrics listen", "address") + "/readyz?verbose"
			s.has(d.logged("waiting for the schema to be upgraded", "reason"), wanted)
			s.has(d.logged("waiting for the schema to be upgraded", "hints"), way)
			testenv.Eventually(t, waitTimeout, func() (bool, string) {
				status, body := get(t, ready)
				return status == http.StatusServiceUnavailable && strings.Contains(body, wanted) &&
					strings.Contains(body, way), body
			})
			_, stderr := s.run(exitNotSetUp, "status")
			s.has(stderr, wanted, way)
			if name != "streams only" { // --once does not wait
				_, stderr = s.run(exitNotSetUp, append([]string{"run", "--once"}, flags...)...)
				s.has(stderr, wanted, way)
			}

			worker := s.environ
			s.environ = owner
			s.run(0, append([]string{"init"}, docsFlags...)...)
			d.logged("streaming", "slot")
			testenv.Eventually(t, waitTimeout, func() (bool, string) {
				status, body := get(t, ready)
				return status == http.StatusOK, body
			})
			s.db.MustExec("UPDATE docs SET title = 'changed'")
			if name == "streams only" {
				s.environ = worker
				s.start("--role", "work", "--no-init")
				s.environ = owner
			}
			s.run(0, "wait", "--caught-up", "--timeout", waitTimeout.String())
			s.run(0, "verify", "--deep", "10")
		})
	}
}

// A program works with the schema of the next version.
func TestP1_AnOlderProgramWorksWithANewerSchema(t *testing.T) {
	t.Parallel()
	s := newStage(t, 10)
	s.once(0)
	s.db.MustExec("UPDATE embedsidecar.schema_version SET version = version + 1")
	s.db.MustExec("UPDATE docs SET title = 'changed'")
	_, stderr := s.once(0)
	s.has(stderr, "newer than this program's")
	s.run(0, "run", "--once", "--no-init")
	s.run(0, "verify", "--deep", "10")
}

// A schema from before the first release is replaced as its error says. Texts whose vectors are in an embedding table
// are not embedded again.
func TestP8_UninstallAndInitAdoptEmbedNothingAgain(t *testing.T) {
	t.Parallel()
	for name, more := range map[string]string{
		"plain": "", "chunked": "    chunking: {strategy: tokens, tokens: 16}\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, 20)
			calls := filepath.Join(t.TempDir(), "calls")
			s.set("EMBEDSIDECAR_PLUGIN_CALLS=" + calls)
			file := filepath.Join(t.TempDir(), "embedsidecar.yaml")
			if err := os.WriteFile(file, []byte("pipelines:\n  - table: docs\n    columns: [title, body]\n    into: {table: docs_embedding}\n"+more), 0o600); err != nil {
				t.Fatal(err)
			}
			s.run(0, "run", "--once", "--config", file)
			s.db.MustExec("UPDATE embedsidecar.schema_version SET version = $1", sqlfiles.FirstVersion-1)
			_, stderr := s.run(exitUsage, "status")
			s.has(stderr, "a program before the first release", "`embedsidecar uninstall --yes`", "`embedsidecar init --adopt`")
			s.run(0, "uninstall", "--yes")
			s.db.MustExec("UPDATE docs SET title = 'changed' WHERE id = 1; DELETE FROM docs WHERE id = 2")
			before := embedded(t, calls)

			_, stderr = s.run(0, "init", "--adopt", "--config", file)
			s.has(stderr, "its vectors are kept")
			s.run(0, "run", "--once", "--config", file)
			if n := embedded(t, calls) - before; n != 1 {
				t.Errorf("%d texts were embedded again, want the one that has changed", n)
			}
			s.run(0, "verify", "--deep", "100")
			if n := testenv.Value[int](s.db, "SELECT count(DISTINCT id) FROM docs_embedding"); n != 19 {
				t.Errorf("%d rows have vectors, want 19", n)
			}
		})
	}
}

// embedded returns how many texts a plugin got, without those that its host sends by itself.
func embedded(t *testing.T, calls string) int {
	t.Helper()
	n, err := vector.Sent(calls, host.CanaryTexts())
	if err != nil {
		t.Fatal(err)
	}
	return n
}
