//go:build linux

// Package e2e tests the programs as users run them: the built binary and its plugin as real processes, started,
// killed, stopped and restarted while others write, as the least-privileged role. What the tables hold afterwards is
// judged by the oracle of package workload.
//
// The environment makes the tests longer: EMBEDSIDECAR_KILLS is the number of kills (default 8; where it is set, each
// server has all of the long tests, otherwise they take turns), EMBEDSIDECAR_SEED chooses another history (default 1),
// EMBEDSIDECAR_BIG_ROWS is the number of rows of the large transaction (default 100,000).
package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/embedsidecar/embedsidecar/testenv"
)

// programs is the folder with the built programs: embedsidecar and its plugins.
var programs string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "e2e") // names of sockets are short, so this one must be
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for _, p := range []struct{ name, source, cgo string }{
		{"embedsidecar", "./cmd/embedsidecar", "0"},
		{"embedsidecar-fake", "./plugins/fake", "0"},
		{"embedsidecar-onnx", "./plugins/onnx", "1"},
		{"embedsidecar-remote", "./plugins/remote", "0"},
	} {
		build := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(dir, p.name), p.source)
		build.Dir = "../.."
		build.Env = append(os.Environ(), "CGO_ENABLED="+p.cgo)
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "e2e: build %s: %v\n%s", p.source, err, out)
			return 1
		}
	}
	// Another model: its vectors are wider.
	fake := filepath.Join(dir, "embedsidecar-fake")
	if err := os.Link(fake, fake+"-dims12"); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	programs = dir
	return testenv.Main(m)
}

// usualKills is how many there are where nobody asks for more.
const usualKills = 8

// fromEnvironment reads a number that makes a test longer or shorter.
func fromEnvironment(t *testing.T, name string, usual int) int {
	t.Helper()
	return testenv.FromEnvironment(t, name, usual)
}
