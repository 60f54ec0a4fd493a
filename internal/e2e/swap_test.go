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

// TestSwap replaces the plugin's program under a running sidecar, with writers at work: by other builds, which it
// moves to without a failed task, and by another embedder, which it refuses.
func TestSwap(t *testing.T) {
	t.Parallel()
	r, shapes := newShapes(t, 0, "integers", "texts")
	r.leisurely()
	short, err := os.MkdirTemp(programs, "s") //nolint:usetesting // t.TempDir has names too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(short) })
	fake, err := os.ReadFile(filepath.Join(programs, "embedsidecar-fake"))
	if err != nil {
		t.Fatal(err)
	}
	plugin := filepath.Join(short, "embedsidecar-fake")
	install := func(content string) {
		t.Helper()
		if err := program.Write(plugin, []byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	environ := []string{
		"EMBEDSIDECAR_PLUGIN_DIR=" + short, "EMBEDSIDECAR_CONTROL_DIR=" + filepath.Join(short, "c"),
		"EMBEDSIDECAR_PLUGIN_FAULTS=cost=5ms/call",
	}
	command := func(status int, args ...string) string {
		t.Helper()
		c := r.start(environ, args...)
		if s := c.wait(patience); s.ExitStatus() != status {
			t.Fatalf("embedsidecar %s ended with %v, want status %d:\n%s", strings.Join(args, " "), c.cmd.ProcessState, status,
				c.tail())
		}
		return c.tail()
	}
	install(string(fake) + "first build")
	command(0, "plugins", "register", plugin, "--processes", "2", "--memory-limit", "1GiB")
	c := r.run(environ...)
	r.streaming(c)
	run, err := workload.Start(t.Context(), r.db.URL(testenv.Owner), shapes, workload.Options{
		Seed: 8, Writers: 2,
		Pause: 5 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	works := func() { // texts go on being embedded
		t.Helper()
		from := r.sent()
		testenv.Eventually(t, patience, func() (bool, string) {
			c.mustLive()
			return r.sent() > from+20, fmt.Sprintf("%d texts since: %s", r.sent()-from, c.tail())
		})
	}
	works()
	for build := range 3 {
		install(string(fake) + fmt.Sprint("build ", build))
		command(0, "plugins", "register", plugin)
		if said := command(0, "plugins", "reload", "fake"); !strings.Contains(said, "reloaded") {
			t.Errorf("reload said: %s", said)
		}
		works()
	}
	// SIGHUP does the same.
	install(string(fake) + "a build for SIGHUP")
	command(0, "plugins", "register", plugin)
	before := c.times(`msg="plugin reloaded"`)
	c.signal(syscall.SIGHUP)
	testenv.Eventually(t, patience, func() (bool, string) {
		c.mustLive()
		return c.times(`msg="plugin reloaded"`) > before, c.tail()
	})
	works()

	// Another embedder is refused, and what runs goes on; a file that nobody has registered, too.
	install("#!/bin/sh\nEMBEDSIDECAR_PLUGIN_DIMS=9 exec " + filepath.Join(programs, "embedsidecar-fake") + "\n")
	if said := command(4, "plugins", "reload"); !strings.Contains(said, "expected") {
		t.Errorf("a file with another checksum: %s", said)
	}
	command(0, "plugins", "register", plugin)
	if said := command(4, "plugins", "reload"); !strings.Contains(said, "vectors of both must not mix") ||
		!strings.Contains(said, "another pipeline") {
		t.Errorf("another embedder: %s", said)
	}
	works()
	install(string(fake) + "the last build")
	command(0, "plugins", "register", plugin)
	command(0, "plugins", "reload")
	works()
	if said := command(0, "plugins", "list", "-o", "csv"); !strings.Contains(said, "closed") {
		t.Errorf("plugins list: %s", said)
	}
	if said := command(0, "cache", "stats", "-o", "csv"); !strings.Contains(said, ",fake,") {
		t.Errorf("cache stats: %s", said)
	}

	if _, err := run.Stop(); err != nil {
		t.Fatal(err)
	}
	if n := r.failures(c); n > 0 {
		t.Errorf("%d failures in the log:\n%s", n, c.tail())
	}
	if failed := testenv.Values[string](r.db,
		`SELECT concat_ws(' ', row_key, state, error_class, error_code, error_message) FROM embedsidecar.task
		WHERE attempt > 0 OR losses > 0 OR lost_leases > 0 OR error_class = 'configuration'`); len(failed) > 0 {
		t.Errorf("%d tasks have failed: %q", len(failed), failed[:min(len(failed), 5)])
	}
	t.Log(r.prove(c, shapes))
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
