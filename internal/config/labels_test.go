package config

import (
	"strings"
	"testing"
)

// Labels have limits of number, length and characters, and mistakes are reported with their place.
func TestLoad_Labels(t *testing.T) {
	t.Parallel()
	load := func(labels string) (*Config, error) {
		return loadFile(t, "pipelines:\n  - {table: public.docs, columns: [a], into: {column: v}, labels: "+labels+"}\n")
	}
	cfg, err := load(`{project: x, year: 2026, on: true, "a.b-c_d": "übung 1"}`)
	if err != nil {
		t.Fatal(err)
	}
	if got := cfg.Pipelines[0].Labels.String(); got != "a.b-c_d: übung 1, on: true, project: x, year: 2026" {
		t.Error(got)
	}
	many := ""
	for _, r := range "abcdefghijklmnopq" {
		many += string(r) + ": x, "
	}
	for labels, want := range map[string]string{
		`x`: "expected keys and values", `[x]`: "expected keys and values", `{a: [x]}`: "expected a text",
		`{a: {b: c}}`: "expected a text", `{a: null}`: "expected a text", `{1a: x}`: "the name \"1a\"", `{"": x}`: "the name",
		`{a b: x}`: "the name", `{a: ""}`: "1 to 100 bytes", `{a: " x"}`: "blanks", `{a: "x\ny"}`: "printable",
		`{a: ` + strings.Repeat("x", 101) + `}`: "1 to 100 bytes", `{` + strings.Repeat("a", 41) + `: x}`: "the name",
		`{` + many + `}`: "17 are too many",
	} {
		_, err := load(labels)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "labels") {
			t.Errorf("%s: %v, want %q", labels, err, want)
		}
	}
}
