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
		cache = filepath.Join(os.Getenv("HOME"), ".cache")
	}
	found, err := filepath.Glob(filepath.Join(cache, "embedsidecar", "openai", "venv-*", "bin", "python3"))
	if err != nil || len(found) == 0 {
		tb.Fatal("OpenAI's client is not there: make test TEST=./e2e brings it")
	}
	return found[len(found)-1]
}
