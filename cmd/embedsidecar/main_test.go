package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/embedsidecar/embedsidecar/testenv"
)

func TestMain(m *testing.M) {
	testscript.Main(leakChecked{m}, map[string]func(){"embedsidecar": main, "loader": loader})
}

// leakChecked stops the servers of the tests at their end and looks for goroutines that outlive them.
type leakChecked struct{ m *testing.M }

// Run implements testscript.TestingM.
func (l leakChecked) Run() int {
	status := testenv.Main(l.m)
	if dir, err := plugins(); err == nil {
		_ = os.RemoveAll(dir)
	}
	return status
}

// plugins builds the fake plugin once and returns its folder.
var plugins = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "embedsidecar-cli")
	if err != nil {
		return "", err
	}
	build := exec.CommandContext(context.Background(), "go", "build", "-o", filepath.Join(dir, "embedsidecar-fake"),
		"./plugins/fake")
	build.Dir = filepath.Join("..", "..") // a test begins in the folder of its package
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return dir, err
	}
	// Another model: its vectors are wider.
	return dir, os.Link(filepath.Join(dir, "embedsidecar-fake"), filepath.Join(dir, "embedsidecar-fake-dims12"))
})

func TestStories(t *testing.T) {
	dir, err := plugins()
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("PLUGINS", dir)
			env.Setenv("GOCOVERDIR", coverDir(env.WorkDir))
			env.Setenv("TMPDIR", filepath.Dir(dir)) // names of sockets are short; the story's own folder is too deep
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits": exits,
		},
	})
}

// coverDir is where the processes of a test write what they covered: the folder that `make COVER=1` reads, or else one
// that goes away with the test. Binaries built with -cover complain without one.
func coverDir(otherwise string) string {
	return cmp.Or(os.Getenv("EMBEDSIDECAR_TEST_COVER"), otherwise)
}

// exits STATUS COMMAND ARG...: runs a command, which must end with that status.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits STATUS COMMAND ARG...")
	}
	status := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		status = exit.ExitCode()
	}
	if strconv.Itoa(status) != args[0] {
		ts.Fatalf("status %d, want %s", status, args[0])
	}
}
