package testenv

import (
	"os"
	"path/filepath"
	"testing"
)

// OpenAI returns a Python that has OpenAI's client, as make test puts it into the cache.
func OpenAI(tb testing.TB) string {
	tb.Helper()
	return Python(tb, "openai")
}

// Python returns a Python that has a client, as make test puts it into the cache.
func Python(tb testing.TB, client string) string {
	tb.Helper()
	cache := os.Getenv("XDG_CACHE_HOME")
	if cache == "" {
		cache = os.Getenv("HOME") + "/.cache" // as the Makefile has it
	}
	all := filepath.Join(cache, "embedsidecar", "openai", "venv-*", "lib", "*", "site-packages", client)
	found, err := filepath.Glob(all)
	if err != nil || len(found) == 0 {
		tb.Fatalf("the client %s for Python is not there: make test TEST=./e2e brings it", client)
	}
	return filepath.Join(found[len(found)-1], "..", "..", "..", "..", "bin", "python3")
}
