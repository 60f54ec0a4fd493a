package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/testenv"
	programs "github.com/embedsidecar/embedsidecar/testenv/program"
)

// builtPlugin builds a plugin that other tests do not need.
func builtPlugin(t *testing.T, folder, name string) {
	t.Helper()
	build := exec.Command("go", "build", "-o", filepath.Join(folder, "embedsidecar-"+name), "../../plugins/"+name)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the plugin: %s\n%s", err, out)
	}
}

// TestStatic_FromPublishedFilesToASearch: a static model is imported; a pipeline without a plugin uses the plugin for
// that model, which status shows; and its rows are found.
func TestStatic_FromPublishedFilesToASearch(t *testing.T) {
	t.Parallel()
	s := newStage(t, 0)
	s.db.MustExec(`INSERT INTO docs VALUES (1, 'a house', 'by the river'), (2, 'the sea', 'and the sea'), (3, '', '')`)
	work := t.TempDir()
	builtPlugin(t, work, "static")
	if err := programs.Write(filepath.Join(work, "embedsidecar-onnx"), []byte("#!/bin/false\n")); err != nil {
		t.Fatal(err)
	}
	s.set("EMBEDSIDECAR_PLUGIN=onnx")
	s.set("EMBEDSIDECAR_PLUGIN_DIR=" + work)
	home := filepath.Join(work, "models")
	s.set("EMBEDSIDECAR_MODEL_DIR=" + home)
	_, stderr := s.run(0, "models", "import", "../../plugins/static/testdata/layouts/model2vec", "--name", "small")
	s.has(stderr, `pooling: "mean"`, `max_tokens: "512" (config.json)`)
	pipeline := strings.Fields("--model small --table docs --columns title,body --into-table docs_embedding")
	s.run(0, append([]string{"init"}, pipeline...)...)
	s.run(0, append([]string{"run", "--once"}, pipeline...)...)
	if n := testenv.Value[int](s.db, "SELECT count(*) FROM docs_embedding"); n != 2 {
		t.Errorf("%d vectors, want 2", n)
	}
	stdout, _ := s.run(0, "status", "-o", "json")
	s.has(stdout, `"plugin": "static"`)
	stdout, _ = s.run(0, "search", "public.docs", "the sea", "-k", "1", "-o", "json")
	s.has(stdout, `"2"`)
	// Repeating it changes nothing, also with the plugin named.
	for _, plugin := range [][]string{nil, {"--plugin", "onnx"}, {"--plugin", "static"}} {
		_, stderr := s.run(0, append(append([]string{"run", "--once"}, pipeline...), plugin...)...)
		if strings.Contains(stderr, "embeds all rows again") {
			t.Errorf("%v: %s", plugin, stderr)
		}
	}
	s.run(0, "verify", "public.docs", "--deep", "2")
	// A model change does not need the plugin's name either.
	s.run(0, "models", "import", "../../plugins/static/testdata/layouts/static", "--name", "other")
	s.run(0, append([]string{"model", "change", "public.docs", "--to", "other"}, pipeline...)...)
	if got := testenv.Value[string](s.db, "SELECT plugin FROM embedsidecar.generations WHERE role = 'next'"); got != "static" {
		t.Errorf("the next generation is for plugin %q", got)
	}
}
