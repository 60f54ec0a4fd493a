package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/testenv"
	"github.com/embedsidecar/embedsidecar/testenv/canary"
	programs "github.com/embedsidecar/embedsidecar/testenv/program"
)

// TestTrust_APluginReadsNoSecretsOfTheSidecar: a plugin runs as the same non-root user, who may inspect its other
// processes.
func TestTrust_APluginReadsNoSecretsOfTheSidecar(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "es") //nolint:usetesting // t.TempDir is root's alone
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	spy := `#!/bin/sh
{
	/bin/sleep 30 &
	while kill -0 $! && ! /bin/grep -qa EMBEDSIDECAR_PLUGIN_OUT= /proc/$!/environ; do :; done # it may be a shell yet
	/bin/cat /proc/$!/environ /proc/$PPID/environ
	kill $!
	/bin/ls -l /proc/$PPID/fd
	/usr/bin/head -c 1 /proc/$PPID/mem
	/bin/cat /proc/$PPID/limits
} >"$EMBEDSIDECAR_PLUGIN_OUT/seen" 2>&1 # standard output stays open: its end is taken for that of the plugin
`
	for name, content := range map[string][]byte{"embedsidecar": code, "embedsidecar-spy": []byte(spy)} {
		path := filepath.Join(dir, name)
		if err := errors.Join(programs.Write(path, content), os.Chmod(path, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	if err := testenv.GiveAway(dir); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), filepath.Join(dir, "embedsidecar"), "plugins", "info", "spy", "--plugin-dir",
		dir)
	c.Dir, c.SysProcAttr = dir, testenv.Unprivileged()
	c.Env = []string{
		"HOME=" + dir, "TMPDIR=" + dir, "GOCOVERDIR=" + dir, "EMBEDSIDECAR_PLUGIN_OUT=" + dir,
		"PGPASSWORD=" + canary.Secret, "EMBEDSIDECAR_DATABASE_URL=postgres://app:" + canary.Secret + "@127.0.0.1/none",
	}
	out, _ := c.CombinedOutput() // the spy is no plugin
	seen, err := os.ReadFile(filepath.Join(dir, "seen"))
	if err != nil {
		t.Fatalf("the spy did not run: %v\n%s", err, out)
	}
	if !bytes.Contains(seen, []byte("EMBEDSIDECAR_PLUGIN_OUT=")) {
		t.Errorf("the spy cannot look into processes of its user at all:\n%q", seen)
	}
	if bytes.Contains(seen, []byte(canary.Secret)) {
		t.Errorf("the spy has the password:\n%q", seen)
	}
	if n := strings.Count(string(seen), "Permission denied"); n != 3 {
		t.Errorf("the spy was kept from %d things, want environ, fd and mem:\n%q", n, seen)
	}
	if core := regexp.MustCompile(`Max core file size +0 +0 `); !core.Match(seen) {
		t.Errorf("the sidecar may dump its memory:\n%q", seen)
	}
}
