package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestReadTexts_ReadsTheFileOfThisRepository(t *testing.T) {
	texts, err := readTexts(filepath.Join("..", "debian-packages.csv"))
	if err != nil {
		t.Fatal(err)
	}
	if len(texts) < 8000 {
		t.Errorf("%d texts, want 8000 or more", len(texts))
	}
	ids := map[int32]bool{}
	for _, p := range texts {
		if p.name == "" || p.summary == "" || ids[p.id] {
			t.Errorf("%+v is empty or there twice", p)
		}
		ids[p.id] = true
	}
}

func TestReadTexts_NamesTheLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "texts.csv")
	if err := os.WriteFile(path, []byte("id,name,section,summary\nx,a,b,c\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readTexts(path); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("got %v", err)
	}
}

func TestCleanEnviron_KeepsWhatNamesPluginsAndModels(t *testing.T) {
	got := cleanEnviron([]string{
		"HOME=/h", "PGHOST=h", "EMBEDSIDECAR_SLOT=s", "EMBEDSIDECAR_MODEL_DIR=/m", "EMBEDSIDECAR_PLUGIN_THREADS=1",
	})
	want := []string{"HOME=/h", "EMBEDSIDECAR_MODEL_DIR=/m", "EMBEDSIDECAR_PLUGIN_THREADS=1"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
