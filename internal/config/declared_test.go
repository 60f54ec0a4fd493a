package config

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// declaring loads a configuration with a file of these pipelines.
func declaring(t *testing.T, text string) *Config {
	t.Helper()
	cfg, _, err := Load(Source{
		Flags:   map[string][]string{"config": {write(t, text)}},
		Environ: []string{"SECRET=hush", "EMBEDSIDECAR_DATABASE_URL=postgres:///x"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

const declaredFile = `
version: 1
models: [{name: small, plugin: fake, path: /models/small}]
pipelines:
  - {name: docs, table: docs, columns: [title], into: {table: docs_embedding}}
`

// Declared pipelines come after those of the file, are checked in the same way, and report all their mistakes at once.
func TestDeclaring(t *testing.T) {
	t.Parallel()
	base := declaring(t, declaredFile)
	next, failed := base.Declaring([]Declared{
		{"a", `{"name": "a", "table": "public.notes", "text": "'${SECRET}' || body || '$$'", "model": "small", "into": {"table": "a_embedding"}, "enabled": false, "search": {"filterable": ["id"]}}`, 1},
		{"b", `{"name": "b", "tabel": "notes", "columns": "title", "model": "/etc/model", "plugin": "/bin/sh", "into": {"column": "v", "table": "x"}, "index": {"m": 1}, "schemas": {"match": "t_*"}}`, 1},
		{"c", `{"name": "c", "table": "notes", "columns": ["body"], "into": {"table": "c_embedding"}}`, 1},
		{"docs", `{"name": "docs", "table": "notes", "columns": ["body"], "into": {"table": "d_embedding"}}`, 1},
		{"e", `{"name": "e", "table": "docs", "columns": ["body"], "into": {"table": "docs_embedding"}}`, 1},
		{"f", `{"name": "f"}`, 1},
		{"g", `["name"]`, 1},
		{"h", `{`, 1},
		{"i", ``, 1},
	})
	names := []string{}
	for _, p := range next.Pipelines {
		names = append(names, p.Name)
	}
	if got := strings.Join(names, " "); got != "docs a c" {
		t.Errorf("pipelines %s", got)
	}
	if a := next.Pipelines[1]; a.Text != "'${SECRET}' || body || '$$'" || a.Plugin != "fake" || a.Enabled {
		t.Errorf("the definition of a is %+v", a)
	}
	if next.Base() != base || !next.IsDeclared("a") || next.IsDeclared("docs") ||
		next.SearchOf("a").Filterable[0] != "id" {
		t.Error("what is declared is not told from the rest")
	}
	for name, words := range map[string][]string{
		"b":    {`unknown key "tabel"`, "/etc/model", "/bin/sh", "index.m", "schemas"},
		"docs": {`the name "docs" is that of pipelines[0]`}, "e": {"same destination"}, "f": {"table"}, "g": {""}, "h": {""},
		"i": {"keys and values"},
	} {
		err := failed[name]
		if err == nil {
			t.Errorf("%s has no mistake", name)
			continue
		}
		for _, word := range words {
			if !strings.Contains(err.Error(), word) || strings.Contains(err.Error(), "hush") {
				t.Errorf("%s: %v does not tell of %s", name, err, word)
			}
		}
	}
	if len(failed) != 7 {
		t.Errorf("%d have mistakes: %v", len(failed), failed)
	}
	if live, restart := base.Changes(next); len(restart) > 0 || len(live) != 1 || live[0] != "pipelines" {
		t.Errorf("changes %v %v", live, restart)
	}
	if again, _ := next.Declaring(nil); again != base {
		t.Error("without any it is another configuration")
	}
}

// TestP9_AConfigurationIsNoBomb: deep nesting and aliases of aliases are refused before they exhaust the memory.
func TestP9_AConfigurationIsNoBomb(t *testing.T) {
	base := declaring(t, declaredFile)
	lists := strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)
	bomb := "x-0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
	for i := range 9 {
		bomb += fmt.Sprintf("x-%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i), 10), ", "))
	}
	for what, load := range map[string]func() error{
		"lists in lists": func() error {
			_, _, err := Load(Source{Flags: map[string][]string{"config": {write(t, "pipelines: "+lists)}}})
			return err
		},
		"aliases of aliases": func() error {
			_, _, err := Load(Source{Flags: map[string][]string{
				"config": {write(t, bomb+"models: [{name: small, plugin: remote, document_fields: {a: *a9}}]")},
			}})
			return err
		},
		"a definition": func() error {
			_, failed := base.Declaring([]Declared{{"a", `{"name": "a", "table": ` + lists + `}`, 1}})
			return failed["a"]
		},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := load()
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("%s is taken", what)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 300<<20 {
			t.Errorf("%s takes %d MiB", what, took>>20)
		}
	}
}

// Brackets in texts and comments do not count as lists.
func TestLoad_BracketsOfTextsNestNothing(t *testing.T) {
	t.Parallel()
	many := strings.Repeat("[{", 400)
	content := "# " + many + strings.Replace(declaredFile, "columns: [title]", "text: \"title || '"+many+"'\"", 1) +
		"\n  - name: second\n    table: second\n    into: {table: second_embedding}\n    text: |\n      title || '" + many + "'\n"
	loaded, _, err := Load(Source{Flags: map[string][]string{"config": {write(t, content)}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range loaded.Pipelines {
		if !strings.Contains(p.Text, many) {
			t.Errorf("the text of %s is %q", p.Name, p.Text)
		}
	}
}
