package registry_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/named/embedders"
	"github.com/embedsidecar/embedsidecar/internal/named/registry"
	"github.com/embedsidecar/embedsidecar/testenv/leak"
	programs "github.com/embedsidecar/embedsidecar/testenv/program"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// inFolder returns the plugins of a folder, whose programs are not real plugins.
func inFolder(t *testing.T, names ...string) (registry.Registry, string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		if err := programs.Write(filepath.Join(dir, "embedsidecar-"+name), []byte("#!/bin/sh\nexit 1\n")); err != nil {
			t.Fatal(err)
		}
	}
	c := config.Default()
	c.Plugins.Dir, c.Plugins.Default, c.ControlDir = dir, "a", filepath.Join(dir, "control")
	return registry.Of(embedders.Source{
		Config: c, Log: slog.New(slog.DiscardHandler), Redact: func(s string) string { return s },
	}), dir
}

func register(t *testing.T, c registry.Registry, r registry.Registration) registry.Registered {
	t.Helper()
	done, err := c.Register(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

func limit(memory string) []registry.Said {
	return []registry.Said{{As: "--memory-limit", Key: "memory_limit", Values: []string{memory}}}
}

// TestRegistry_TellsWhatBecameOfAPin: a file that replaced the pinned one is reported and not started.
func TestRegistry_TellsWhatBecameOfAPin(t *testing.T) {
	t.Parallel()
	c, dir := inFolder(t, "a", "b")
	pinned := filepath.Join(dir, "embedsidecar-b")
	if done := register(t, c, registry.Registration{File: pinned, DryRun: true}); done.Result != "would_be_registered" {
		t.Errorf("a dry run: %+v", done)
	}
	done := register(t, c, registry.Registration{File: pinned, Said: limit("1GiB")})
	if done.Result != "registered" || done.Plugin != "b" ||
		!strings.Contains(done.NotNoted, "does not start without arguments") {
		t.Errorf("%+v", done)
	}
	if done := register(t, c, registry.Registration{File: pinned}); done.Result != "already_registered" {
		t.Errorf("again: %+v", done)
	}
	if err := programs.Write(pinned, []byte("#!/bin/sh\nexit 2\n")); err != nil {
		t.Fatal(err)
	}
	list, err := c.List(t.Context())
	if err != nil || len(list) != 2 || list[0].Pinned != "no" || list[0].State != "ok" ||
		list[1].Pinned != "catalogue" || list[1].State != "changed" || list[1].MemoryLimit != 1<<30 {
		t.Errorf("%+v, %v", list, err)
	}
	verdicts, err := c.Verify(t.Context(), nil)
	if problem.Of(err) != problem.Failed || len(verdicts) != 1 || verdicts[0].Result != "wrong" ||
		!slices.Equal(problem.Hints(err), verdicts[0].Hints) || len(verdicts[0].Hints) == 0 {
		t.Errorf("%+v, %v", verdicts, err)
	}
	if _, err := c.Register(t.Context(), registry.Registration{File: pinned, Said: limit("much")}); problem.Of(err) !=
		problem.Usage {
		t.Errorf("a limit that is none: %v", err)
	}
}

// TestRegistry_RemovesWhatThereIs: a missing name is an error in addition to the results of the others.
func TestRegistry_RemovesWhatThereIs(t *testing.T) {
	t.Parallel()
	c, dir := inFolder(t, "a")
	if list, err := c.Remove([]string{"a"}, false); problem.Of(err) != problem.NoMatch || len(list) != 1 {
		t.Errorf("without a catalogue: %+v, %v", list, err)
	}
	register(t, c, registry.Registration{File: filepath.Join(dir, "embedsidecar-a"), Name: "one"})
	for _, step := range []struct {
		dry  bool
		want string
	}{{true, "would_be_removed"}, {false, "removed"}, {false, "not_registered"}} {
		list, err := c.Remove([]string{"one", "two"}, step.dry)
		if problem.Of(err) != problem.NoMatch || len(list) != 2 || list[0].Result != step.want ||
			list[1].Result != "not_registered" {
			t.Errorf("%+v, %v, want %s", list, err, step.want)
		}
	}
}
