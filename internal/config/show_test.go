package config

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// loadText loads a file with this content.
func loadText(t *testing.T, content string, src Source) (*Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "embedsidecar.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if src.Flags == nil {
		src.Flags = map[string][]string{}
	}
	src.Flags["config"] = []string{path}
	c, warnings, err := Load(src)
	if len(warnings) > 0 {
		t.Errorf("%s\n%s", warnings, content)
	}
	return c, err
}

func TestStarter_IsAConfiguration(t *testing.T) {
	t.Parallel()
	odd := pipeline.Spec{Schema: `a"b`, Table: "${X} #", Columns: []string{"null", "é: x", "c"}, IntoColumn: "{v}"}
	for _, specs := range [][]pipeline.Spec{nil, {odd}} {
		text := Starter(specs)
		c, err := loadText(t, text, Source{})
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		want := "public.docs: title, body -> table docs_embedding"
		if specs != nil {
			want = FormatPipeline(odd)
		}
		if len(c.Pipelines) != 1 || FormatPipeline(c.Pipelines[0]) != want {
			t.Errorf("%+v\n%s", c.Pipelines, text)
		}
	}
}

// Everything in the starter's comments is valid when uncommented, except for settings that exclude each other.
func TestStarter_CommentsAreRight(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for line := range strings.Lines(Starter(nil)) {
		bare := strings.Replace(line, "# ", "", 1)
		if rest, ok := strings.CutPrefix(line, "# "); ok && !strings.Contains(rest, ":") ||
			strings.HasPrefix(line, "# Conf") || strings.Contains(line, "url_file") || strings.Contains(line, "text:") ||
			strings.Contains(line, "yaml-lang") {
			continue
		}
		b.WriteString(bare)
	}
	c, err := loadText(t, b.String(), Source{})
	if err != nil || c.Pipelines[0].Filter == "" || c.Ops.Listen == "" || len(c.Models) != 1 {
		t.Errorf("%v\n%s", err, b.String())
	}
}

func TestShow_TellsWhereAndMasks(t *testing.T) {
	t.Parallel()
	c, err := loadText(t, `
database: {url: "postgres://app:hunter2@h/d"}
slot: {name: docs}
models: [{name: m, plugin: onnx}]
pipelines:
  - {table: public.docs, columns: [title, body], into: {table: e}, where: "id > 1"}
  - "public.other: a -> v"
  - {table: rows, columns: [a], into: {table: f}, priority: "case x when 1 then 'low' end"}
`, Source{
		Flags: map[string][]string{"workers": {"7"}}, Environ: []string{"EMBEDSIDECAR_LEASE=1m"},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, s := range c.Show(false) {
		got[s.Path] = s.Value + " <- " + filepath.Base(s.Origin)
	}
	want := map[string]string{
		"database.url": "postgres://app:xxxxx@h/d <- embedsidecar.yaml:2:17", "slot.name": "docs <- embedsidecar.yaml:3:14",
		"workers.count": "7 <- --workers", "lease": "1m <- EMBEDSIDECAR_LEASE",
		"models[0].name":           "m <- embedsidecar.yaml:4:17",
		"models[0].plugin":         "onnx <- embedsidecar.yaml:4:28",
		"pipelines[0].table":       "public.docs <- embedsidecar.yaml:6:13",
		"pipelines[0].columns":     "title, body <- embedsidecar.yaml:6:35",
		"pipelines[0].into.table":  "e <- embedsidecar.yaml:6:64",
		"pipelines[0].where":       "id > 1 <- embedsidecar.yaml:6:75",
		"pipelines[1].table":       "public.other <- embedsidecar.yaml:7:5",
		"pipelines[1].columns":     "a <- embedsidecar.yaml:7:5",
		"pipelines[1].into.column": "v <- embedsidecar.yaml:7:5",
		"pipelines[2].table":       "public.rows <- embedsidecar.yaml:8:13",
		"pipelines[2].columns":     "a <- embedsidecar.yaml:8:28",
		"pipelines[2].into.table":  "f <- embedsidecar.yaml:8:47",
		"pipelines[2].priority":    "case x when 1 then 'low' end <- embedsidecar.yaml:8:61",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	all := c.Show(true)
	for _, want := range []Shown{
		{"retry.max_attempts", "8", "default"},
		{"pipelines[0].name", "public.docs", "default"},
		{"workers.count", "7", "--workers"},
	} {
		if !slices.Contains(all, want) {
			t.Errorf("%+v is missing", want)
		}
	}
}

// The schema accepts every configuration that the program accepts, and refuses what an editor should underline.
func TestJSONSchema(t *testing.T) {
	t.Parallel()
	body, err := json.Marshal(JSONSchema())
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	valid := func(text string) error {
		var value any
		if err := yaml.Unmarshal([]byte(text), &value); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		data, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		return schema.Validate(instance)
	}
	papers, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	files := []string{Starter(nil)}
	for _, path := range append(papers, "../../README.md", "../../deploy/embedsidecar.yaml") {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(path, ".yaml") {
			files = append(files, string(content))
			continue
		}
		for _, block := range strings.Split(string(content), "```yaml\n")[1:] {
			text, _, _ := strings.Cut(block, "```")
			if strings.Contains(text, "models:") || strings.Contains(text, "pipelines:") {
				files = append(files, text)
			}
		}
	}
	if len(files) < 8 {
		t.Fatalf("only %d files", len(files))
	}
	for _, text := range files {
		if err := valid(text); err != nil {
			t.Errorf("%v\n%s", err, text)
		}
	}
	for _, wrong := range []string{
		"slott: {name: x}", "slot: {nam: x}", "slot: docs", "version: 2", "enabled: perhaps", "slot: {on_lost: never}",
		"pipelines: {table: x}", "pipelines: [{tabel: x}]", "workers: {count: [1]}",
	} {
		if valid(wrong) == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
	for _, priority := range []string{"low", "(severity)", "case x when 1 then 'low' end", "${P}"} {
		if err := valid("pipelines: [{table: x, priority: \"" + priority + "\"}]"); err != nil {
			t.Errorf("priority %s: %v", priority, err)
		}
	}
	if valid("pipelines: [{table: x, priority: soon}]") == nil {
		t.Error("a priority that is none is taken")
	}
	if err := valid("enabled: ${ON}\nslot: {on_lost: \"${X:-stop}\"}"); err != nil {
		t.Errorf("a variable: %v", err)
	}
}
