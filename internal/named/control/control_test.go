package control_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/named/control"
	"github.com/embedsidecar/embedsidecar/testenv/leak"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// folder returns a short name of a folder that does not exist yet.
func folder(t *testing.T) string {
	t.Helper()
	parent := os.TempDir() //nolint:usetesting // see below
	if len(parent) > 40 {  //nolint:mnd // on some systems even that is too long: the path of a socket may have 103 bytes
		parent = "/tmp"
	}
	dir, err := os.MkdirTemp(parent, "ct") //nolint:usetesting // t.TempDir has names too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "control")
}

func listen(t *testing.T, dir string) {
	t.Helper()
	server, err := control.Listen(t.Context(), control.Options{
		Dir: dir, Log: slog.New(slog.DiscardHandler),
		State: func() control.State {
			return control.State{Instance: "one", Pid: os.Getpid(), Plugins: []control.Plugin{{Plugin: "toy"}}}
		},
		Reload: func(_ context.Context, plugins []string) []control.Reloaded {
			return []control.Reloaded{{Plugin: strings.Join(plugins, "+"), Result: "reloaded"}}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(dir, fmt.Sprint(os.Getpid(), ".sock"))); !os.IsNotExist(err) {
			t.Errorf("the socket is still there: %v", err)
		}
	})
}

func TestFind_AsksThoseThatRun(t *testing.T) {
	dir := folder(t)
	if found, err := control.Find(t.Context(), dir); err != nil || len(found) != 0 {
		t.Fatalf("no folder: %v, %v", found, err)
	}
	listen(t, dir)
	// The socket of a killed sidecar does not count.
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "1.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	if err := stale.Close(); err != nil {
		t.Fatal(err)
	}
	found, err := control.Find(t.Context(), dir)
	if err != nil || len(found) != 1 || found[0].State.Instance != "one" || len(found[0].State.Plugins) != 1 {
		t.Fatalf("found %+v, %v", found, err)
	}
	for want, names := range map[string][]string{"": nil, "a+b": {"a", "b"}} {
		results, err := found[0].Reload(t.Context(), names)
		if err != nil || len(results) != 1 || results[0].Plugin != want {
			t.Errorf("reload %q: %+v, %v", names, results, err)
		}
	}
}

func TestListen_WantsAFolderOfItsOwn(t *testing.T) {
	dir := folder(t)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := control.Listen(t.Context(), control.Options{Dir: dir}); err == nil || !strings.Contains(err.Error(),
		"chmod 700") {
		t.Errorf("a folder for everybody: %v", err)
	}
	if _, err := control.Find(t.Context(), dir); err == nil {
		t.Error("sidecars are looked for where anybody may pretend to be one")
	}
}
