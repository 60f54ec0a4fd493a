package testenv

import (
	"os"
	"path/filepath"
	"strings"
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
	return filepath.Join(installed(tb, "openai", client), "..", "..", "..", "..", "bin", "python3")
}

// Pgai returns the SQL that makes the schema of pgai 0.12.1, from the package that make test puts into the cache.
func Pgai(tb testing.TB) string {
	tb.Helper()
	sql, err := os.ReadFile(installed(tb, "pgai", "pgai/data/ai.sql"))
	if err != nil {
		tb.Fatal(err)
	}
	return strings.NewReplacer("@extschema:vector@", "public", "__version__", "0.12.1").Replace(string(sql))
}

// installed returns the path of what a package for Python has installed.
func installed(tb testing.TB, environment, name string) string {
	tb.Helper()
	cache := os.Getenv("XDG_CACHE_HOME")
	if cache == "" {
		cache = os.Getenv("HOME") + "/.cache" // as the Makefile has it
	}
	all := filepath.Join(cache, "embedsidecar", environment, "venv-*", "lib", "*", "site-packages", name)
	found, err := filepath.Glob(all)
	if err != nil || len(found) == 0 {
		tb.Fatalf("%s for Python is not there: make test TEST=./e2e brings it", name)
	}
	return found[len(found)-1]
}
