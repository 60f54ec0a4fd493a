package folders_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/named/embedders"
	"github.com/embedsidecar/embedsidecar/internal/named/folders"
	"github.com/embedsidecar/embedsidecar/internal/named/models"
	"github.com/embedsidecar/embedsidecar/testenv/program"
)

// TestDownload_ComesWithAPin: the sums of downloads come from the user, or from the first pull.
func TestDownload_ComesWithAPin(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	c := config.Default()
	c.ModelDir = home
	f := folders.Of(embedders.Source{Config: c})
	sum, other := strings.Repeat("0", 64), strings.Repeat("1", 64)
	list := filepath.Join(home, "sums")
	if err := os.WriteFile(list, []byte(sum+"  config.json\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	source := folders.Source{PullOptions: models.PullOptions{Hub: "https://hub.example", Name: "author/model"}}
	for name, change := range map[string]func(*folders.Source){
		"nothing":             func(*folders.Source) {},
		"two":                 func(s *folders.Source) { s.SHA256, s.Sums = sum, list },
		"a list that is none": func(s *folders.Source) { s.Sums = home },
		"a sum that is none":  func(s *folders.Source) { s.SHA256 = "12" },
		"a name that is none": func(s *folders.Source) { s.Name, s.Unpinned = "a/b/c", true },
	} {
		wrong := source
		change(&wrong)
		if _, err := f.Download(wrong); problem.Of(err) != problem.Usage {
			t.Errorf("%s: %v", name, err)
		}
	}
	pins := func(change func(*folders.Source)) (models.Sums, bool) {
		t.Helper()
		asked := source
		change(&asked)
		d, err := f.Download(asked)
		if err != nil {
			t.Fatal(err)
		}
		return d.Pins, d.Only
	}
	if got, only := pins(func(s *folders.Source) { s.Unpinned = true }); len(got) > 0 || only {
		t.Errorf("unpinned: %v, %v", got, only)
	}
	if got, only := pins(func(s *folders.Source) { s.Sums = list }); got["config.json"] != sum || !only {
		t.Errorf("a list: %v, %v", got, only)
	}
	weights := models.WeightFiles[0]
	if got, only := pins(func(s *folders.Source) { s.SHA256 = sum }); got[weights] != sum || only {
		t.Errorf("weights: %v, %v", got, only)
	}
	if err := models.Record(home, source.Name, "main", models.Sums{"config.json": other, weights: other}); err != nil {
		t.Fatal(err)
	}
	if got, only := pins(func(*folders.Source) {}); got["config.json"] != other || got[weights] != other || !only {
		t.Errorf("of the first pull: %v, %v", got, only)
	}
	if got, only := pins(func(s *folders.Source) { s.SHA256 = sum }); got["config.json"] != other || got[weights] != sum ||
		!only {
		t.Errorf("of the first pull, and weights: %v, %v", got, only)
	}
}

// TestImport_FailsInAWayOfItsOwn: Python's exit status does not become that of this program.
func TestImport_FailsInAWayOfItsOwn(t *testing.T) {
	t.Parallel()
	from, python := t.TempDir(), filepath.Join(t.TempDir(), "python")
	for _, name := range []string{"config.json", "tokenizer.json", "model.safetensors"} {
		if err := os.WriteFile(filepath.Join(from, name), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := program.Write(python, []byte("#!/bin/sh\nexit 9\n")); err != nil {
		t.Fatal(err)
	}
	c := config.Default()
	c.ModelDir = t.TempDir()
	_, err := folders.Of(embedders.Source{Config: c}).Import(t.Context(), from, folders.New{
		ImportOptions: models.ImportOptions{Name: "new", Python: python},
	})
	if problem.Of(err) != problem.Failed || !strings.Contains(err.Error(), "exit status 9") {
		t.Errorf("%v: %v", problem.Of(err), err)
	}
}
