package config

import (
	"errors"
	"strings"
	"testing"
)

// TestMissing: every missing plugin, model and tokens file is reported with its place.
func TestMissing(t *testing.T) {
	t.Parallel()
	const file = `auth: {tokens_file: /nowhere/tokens}
pipelines:
  - {table: a, columns: [b], into: {table: e}, plugin: nosuch}
  - {table: a, columns: [b], into: {table: f}, plugin: remote, model: anything}
`
	c, _, err := Load(Source{Flags: map[string][]string{"config": {write(t, file)}}})
	if err != nil {
		t.Fatal(err)
	}
	err = c.Missing(Finder{})
	mistakes, is := errors.AsType[*Error](err)
	if !is || len(mistakes.Problems) < 2 {
		t.Fatalf("%v", err)
	}
	for _, word := range []string{
		`yaml:3:`, `pipelines[0].plugin: plugin "nosuch" not found`, `auth.tokens_file:`, "token create",
	} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q is missing in:\n%v", word, err)
		}
	}
}

// TestLoad_ColumnsBesideAText: otherwise the text would silently replace the columns.
func TestLoad_ColumnsBesideAText(t *testing.T) {
	t.Parallel()
	_, _, err := Load(Source{Flags: map[string][]string{"config": {write(t, `pipelines:
  - {table: a, columns: [b], text: "b || 'c'", into: {table: e}}
`)}}})
	if err == nil || !strings.Contains(err.Error(), "pipelines[0].columns") ||
		!strings.Contains(err.Error(), "exclude each other") {
		t.Errorf("%v", err)
	}
}

// TestParseDSN_NamesTheDriverToDrop: a URL in the form of SQLAlchemy.
func TestParseDSN_NamesTheDriverToDrop(t *testing.T) {
	t.Parallel()
	for dsn, want := range map[string]string{
		"postgresql+psycopg://u:pw@h/d":  "drop +psycopg",
		"postgres+asyncpg://u:pw@h/d":    "drop +asyncpg",
		"postgresql+PW!://u@h/d":         "neither a URL",
		"mysql+pymysql://user:pw@h/name": "neither a URL",
	} {
		_, err := ParseDSN(dsn)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "pw") ||
			strings.Contains(err.Error(), "PW") {
			t.Errorf("%s: %v", dsn, err)
		}
	}
}
