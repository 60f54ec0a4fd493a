package host_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/host"
	"github.com/embedsidecar/embedsidecar/testenv/leak"
	"github.com/embedsidecar/embedsidecar/testenv/program"
)

// fake is the path of the fake plugin, built once for all tests.
var fake string

// hostKey makes the test binary a host of the named plugin, which prints the plugin's process id and waits to be
// killed.
const hostKey = "HOST_TEST_RUN_HOST"

func TestMain(m *testing.M) {
	if path := os.Getenv(hostKey); path != "" {
		os.Exit(beHost(path))
	}
	if how := os.Getenv(hostileKey); how != "" {
		os.Exit(beHostile(how))
	}
	// A plugin must not inherit either.
	_ = os.Setenv("PGPASSWORD", "canary-password")
	_ = os.Setenv("EMBEDSIDECAR_DATABASE_URL", "canary-url")
	os.Exit(program.Build("../fake", "embedsidecar-fake", func(path string) int { fake = path; return leak.Main(m) }))
}

// beHost runs a host until it is killed.
func beHost(path string) int {
	h, err := host.New(host.Options{Path: path, TempDir: os.Getenv("HOST_TEST_TEMP"), Env: map[string]string{
		"EMBEDSIDECAR_PLUGIN_FAULTS": os.Getenv("HOST_TEST_FAULTS"),
	}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if _, err := h.Embed(context.Background(), embed.Document, []string{"text"}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(h.Pid())
	_, err = h.Embed(context.Background(), embed.Document, []string{"second text"})
	fmt.Fprintln(os.Stderr, err)
	select {}
}

// options are the defaults of these tests. Their time limits are generous, for slow machines; tests of timeouts set
// their own.
func options(env map[string]string) host.Options {
	return host.Options{
		Path: fake, Env: env, RestartDelay: 10 * time.Millisecond, RestartDelayMax: 100 * time.Millisecond,
		StartTimeout: time.Hour, CallTimeout: func(int, int) time.Duration { return time.Hour },
	}
}

// open returns a host that is closed with the test.
func open(t *testing.T, o host.Options) *host.Host {
	t.Helper()
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	h, err := host.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		pid := h.Pid()
		if err := h.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if pid != 0 && running(pid) {
			t.Errorf("plugin %d is still there after Close", pid)
		}
	})
	return h
}

// faulty returns a host of the fake plugin with faults.
func faulty(t *testing.T, faults string) *host.Host {
	t.Helper()
	return open(t, options(map[string]string{"EMBEDSIDECAR_PLUGIN_FAULTS": faults}))
}

// mustEmbed embeds, and waits for restarts.
func mustEmbed(t *testing.T, h *host.Host, texts ...string) []embed.Result {
	t.Helper()
	var results []embed.Result
	eventually(t, "the plugin answers", func() error {
		var err error
		results, err = h.Embed(t.Context(), embed.Document, texts)
		return err
	})
	return results
}

// wantError checks class and code of an error.
func wantError(t *testing.T, err error, class embed.Class, code string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %s %s", class, code)
	}
	if gotClass, gotCode := embed.Classify(err); gotClass != class || gotCode != code {
		t.Fatalf("got %s %q, want %s %q: %v", gotClass, gotCode, class, code, err)
	}
}

// eventually polls until f returns nil.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	deadline := time.NewTimer(5 * time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-deadline.C:
			t.Fatalf("waited in vain until %s: %v", what, err)
		case <-tick.C:
		}
	}
}

// eventuallyFails embeds a text until the plugin that runs then refuses it, and checks class and code of that error.
func eventuallyFails(t *testing.T, h *host.Host, what string, texts []string, class embed.Class, code string) {
	t.Helper()
	eventually(t, what, func() error {
		_, err := h.Embed(t.Context(), embed.Document, texts)
		if got, _ := embed.Classify(err); got == embed.Transient || got == embed.Crash && class != embed.Crash {
			return err
		}
		wantError(t, err, class, code)
		return nil
	})
}

// eventuallyIn waits until the circuit of a plugin has a state.
func eventuallyIn(t *testing.T, h *host.Host, state host.Circuit) {
	t.Helper()
	eventually(t, "the circuit is "+string(state), func() error {
		if s := h.Stats(); s.Circuit != state {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

// running reports whether a process exists and is not a zombie.
func running(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return !errors.Is(err, os.ErrNotExist) && syscall.Kill(pid, 0) == nil
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// waitGone waits until a process has ended.
func waitGone(t *testing.T, pid int) {
	t.Helper()
	eventually(t, fmt.Sprintf("process %d has ended", pid), func() error {
		if running(pid) {
			return errors.New("it is there")
		}
		return nil
	})
}

// script writes an executable shell script.
func script(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "embedsidecar-script")
	if err := program.Write(path, []byte("#!/bin/sh\n"+body)); err != nil {
		t.Fatal(err)
	}
	return path
}
