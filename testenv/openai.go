package testenv

import (
	"os"
	"path/filepath"
	"testing"
)

// OpenAI returns a Python that has OpenAI's client, as make test puts it into the cache.
func OpenAI(tb testing.TB) string {
	tb.Helper()
	cache := os.Getenv("XDG_CACHE_HOME")
	if cache == "" {
		cache = os.Getenv("HOME") + "/.cache" // as the Makefile has it
	}
	found, err := filepath.Glob(filepath.Join(cache, "embedsidecar", "openai", "venv-*", ".complete"))
	if err != nil || len(found) == 0 {
		tb.Fatal("OpenAI's client is not there: make test TEST=./e2e brings it")
	}
	return filepath.Join(filepath.Dir(found[len(found)-1]), "bin", "python3")
}
