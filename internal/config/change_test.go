package config_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/config"
)

const changeable = `version: 1
slot: {name: one}
threads: 2
models:
  - {name: small, path: /models/small}
pipelines:
  - name: docs
    table: public.docs
    columns: [title, body]
    model: small
    into: {table: docs_embedding}
    active: "mon-fri 22:00-06:00 Europe/Berlin"
    search: {filterable: [status]}
`

// read loads a configuration from a text.
func read(t *testing.T, text string) *config.Config {
	t.Helper()
	file := filepath.Join(t.TempDir(), "embedsidecar.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, _, err := config.Load(config.Source{Flags: map[string][]string{"config": {file}}, Hostname: "host", PID: 1})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Changes separates the settings that can be applied while the program runs from those that need a restart.
func TestChanges(t *testing.T) {
	t.Parallel()
	before := read(t, changeable)
	for change, want := range map[string]struct{ live, restart []string }{
		"":                               {nil, nil},
		"threads: 2 -> threads: 3":       {[]string{"threads"}, nil},
		"name: one -> name: two":         {nil, []string{"slot.name"}},
		"/models/small -> /models/other": {[]string{"models"}, nil},
		"[title, body] -> [title]":       {[]string{"pipelines"}, nil},
		"[status] -> [state]":            {[]string{"pipelines"}, nil},
		"22:00 -> 23:00":                 {[]string{"pipelines"}, nil},
		"version: 1 -> log: {level: debug}\nversion: 1": {nil, []string{"log.level"}},
	} {
		old, now, _ := strings.Cut(change, " -> ")
		after := read(t, strings.Replace(changeable, old, now, 1))
		before.Show(true) // must change nothing
		live, restart := before.Changes(after)
		if !slices.Equal(live, want.live) || !slices.Equal(restart, want.restart) {
			t.Errorf("%q: %q and %q, want %q and %q", change, live, restart, want.live, want.restart)
		}
		kept := after.Keeping(before)
		if _, restart := before.Changes(kept); len(restart) > 0 || kept.Slot.Name != "one" {
			t.Errorf("%q: %q would still take a start", change, restart)
		}
	}
	plain := strings.Replace(changeable, "    search: {filterable: [status]}\n", "", 1)
	shown := read(t, plain)
	shown.Show(true)
	if live, _ := shown.Changes(read(t, plain)); len(live) > 0 {
		t.Errorf("what was shown differs from itself: %q", live)
	}
	if !config.OnlyPipelines([]string{"pipelines", "http.admin.read_only"}) || config.OnlyPipelines([]string{"threads"}) {
		t.Error("what a sidecar is started with is not told from pipelines")
	}
	if !config.AtStart("slot.name") || config.AtStart("threads") || config.AtStart("nothing") {
		t.Error("settings that take effect at a start are not known")
	}
}
