package main

import (
	"slices"
	"testing"
)

func TestCleanEnviron_KeepsWhatNamesPluginsAndModels(t *testing.T) {
	got := cleanEnviron([]string{
		"HOME=/h", "PGHOST=h", "EMBEDSIDECAR_SLOT=s", "EMBEDSIDECAR_MODEL_DIR=/m", "EMBEDSIDECAR_PLUGIN_THREADS=1",
	})
	want := []string{"HOME=/h", "EMBEDSIDECAR_MODEL_DIR=/m", "EMBEDSIDECAR_PLUGIN_THREADS=1"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
