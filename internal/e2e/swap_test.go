//go:build linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/testenv"
	"github.com/embedsidecar/embedsidecar/testenv/program"
	"github.com/embedsidecar/embedsidecar/testenv/workload"
)

// swap is a sidecar with a plugin whose program is replaced.
type swap struct {
	*rig
	c       *child
	plugin  string // path
	program string // the fake embedder's
}

// newSwap registers the plugin and starts the sidecar.
func newSwap(t *testing.T) (*swap, []workload.Shape) {
	t.Helper()
	r, shapes := newShapes(t, 0, "integers", "texts")
	r.leisurely()
	fake, err := os.ReadFile(filepath.Join(programs, "embedsidecar-fake"))
	if err != nil {
		t.Fatal(err)
	}
	folder := shortFolder(t)
	s := &swap{rig: r, plugin: filepath.Join(folder, "embedsidecar-fake"), program: string(fake)}
	r.also = append(r.also, "EMBEDSIDECAR_PLUGIN_DIR="+folder, "EMBEDSIDECAR_CONTROL_DIR="+filepath.Join(folder, "c"),
		"EMBEDSIDECAR_PLUGIN_FAULTS=cost=5ms/call")
	s.install(s.program + "first build")
	r.do(0, "plugins", "register", s.plugin, "--processes", "2", "--memory-limit", "1GiB")
	s.c = r.run()
	r.streaming(s.c)
	return s, shapes
}

// shortFolder is a folder for sockets: t.TempDir has names too long for them.
func shortFolder(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp(programs, "s") //nolint:usetesting // the name would be too long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return folder
}

func (s *swap) install(content string) {
	s.t.Helper()
	if err := program.Write(s.plugin, []byte(content)); err != nil {
		s.t.Fatal(err)
	}
}

// register installs a program and registers it.
func (s *swap) register(content string) {
	s.t.Helper()
	s.install(content)
	s.do(0, "plugins", "register", s.plugin)
}

// works waits until texts go on being embedded.
func (s *swap) works() {
	s.t.Helper()
	from := s.sent()
	testenv.Eventually(s.t, waitTimeout, func() (bool, string) {
		s.c.mustLive()
		return s.sent() > from+20, fmt.Sprintf("%d texts since: %s", s.sent()-from, s.c.tail())
	})
}

// movesToBuilds: asked by a command, the sidecar moves to another build of the plugin, and asked by SIGHUP, too.
func (s *swap) movesToBuilds() {
	s.t.Helper()
	for build := range 3 {
		s.register(s.program + fmt.Sprint("build ", build))
		if said := s.do(0, "plugins", "reload", "fake"); !strings.Contains(said, "reloaded") {
			s.t.Errorf("reload said: %s", said)
		}
		s.works()
	}
	s.register(s.program + "a build for SIGHUP")
	before := s.c.times(`msg="plugin reloaded"`)
	s.c.signal(syscall.SIGHUP)
	testenv.Eventually(s.t, waitTimeout, func() (bool, string) {
		s.c.mustLive()
		return s.c.times(`msg="plugin reloaded"`) > before, s.c.tail()
	})
	s.works()
}

// refusesAnotherEmbedder: what runs goes on. A file that nobody has registered is refused, too.
func (s *swap) refusesAnotherEmbedder() {
	s.t.Helper()
	s.install("#!/bin/sh\nEMBEDSIDECAR_PLUGIN_DIMS=9 exec " + filepath.Join(programs, "embedsidecar-fake") + "\n")
	if said := s.do(4, "plugins", "reload"); !strings.Contains(said, "expected") {
		s.t.Errorf("a file with another checksum: %s", said)
	}
	s.do(0, "plugins", "register", s.plugin)
	if said := s.do(4, "plugins", "reload"); !strings.Contains(said, "vectors of both must not mix") ||
		!strings.Contains(said, "a pipeline with a new name") {
		s.t.Errorf("another embedder: %s", said)
	}
	s.works()
	s.register(s.program + "the last build")
	s.do(0, "plugins", "reload")
	s.works()
}

// TestSwap replaces the plugin's program under a running sidecar, with writers at work: by other builds, which it
// moves to without a failed task, and by another embedder, which it refuses.
func TestSwap(t *testing.T) {
	t.Parallel()
	s, shapes := newSwap(t)
	run, err := workload.Start(t.Context(), s.db.URL(testenv.Owner), shapes, workload.Options{
		Seed: 8, Writers: 2, Pause: 5 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.works()
	s.movesToBuilds()
	s.refusesAnotherEmbedder()
	if said := s.do(0, "plugins", "list", "-o", "csv"); !strings.Contains(said, "closed") {
		t.Errorf("plugins list: %s", said)
	}
	if _, err := run.Stop(); err != nil {
		t.Fatal(err)
	}
	s.noneHasFailed(s.c)
	t.Log(s.prove(s.c, shapes))
}

// noneHasFailed looks for failures in a sidecar's log, and for tasks that were tried in vain.
func (r *rig) noneHasFailed(c *child) {
	r.t.Helper()
	if n := r.failures(c); n > 0 {
		r.t.Errorf("%d failures in the log:\n%s", n, c.tail())
	}
	if failed := testenv.Values[string](r.db,
		`SELECT concat_ws(' ', row_key, state, error_class, error_code, error_message) FROM embedsidecar.task
		WHERE attempt > 0 OR losses > 0 OR lost_leases > 0 OR error_class = 'configuration'`); len(failed) > 0 {
		r.t.Errorf("%d tasks have failed: %q", len(failed), failed[:min(len(failed), 5)])
	}
}

// failures counts what a sidecar's log says of a plugin that fails. A batch that the database did not take is another
// matter: writers lock what they work on.
func (r *rig) failures(c *child) (n int) {
	r.t.Helper()
	log, err := os.ReadFile(c.log)
	if err != nil {
		r.t.Fatal(err)
	}
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, "embedder failed") || strings.Contains(line, "batch not finished") &&
			!strings.Contains(line, "SQLSTATE") ||
			strings.Contains(line, `msg="plugin ended"`) && !strings.Contains(line, "level=INFO") {
			n++
		}
	}
	return n
}
