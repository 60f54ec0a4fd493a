package config

import (
	_ "embed"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

//go:embed starter.yaml
var starter string

// Starter returns an initial file: these pipelines, or an example, with other settings as comments.
func Starter(specs []pipeline.Spec) string {
	if specs = slices.Clone(specs); len(specs) == 0 {
		specs = []pipeline.Spec{{
			Schema: "public", Table: "docs", Columns: []string{"title", "body"}, IntoTable: "docs_embedding",
		}}
	}
	for i, p := range specs {
		specs[i] = newSpec() // the rest has defaults, or comes from the flags of the next call
		specs[i].Schema, specs[i].Table, specs[i].Columns, specs[i].Chunking = p.Schema, p.Table, p.Columns, p.Chunking
		specs[i].IntoColumn, specs[i].IntoSchema, specs[i].IntoTable = p.IntoColumn, p.IntoSchema, p.IntoTable
	}
	return strings.Replace(starter, "  # PIPELINES\n", Written(specs...), 1)
}

// Written returns a list of pipelines in YAML, without joins, labels, schemas and searches.
func Written(specs ...pipeline.Spec) string {
	var b strings.Builder
	for _, p := range specs {
		b.WriteString(elementText("pipelines", reflect.ValueOf(p), reflect.ValueOf(newSpec())))
	}
	return b.String()
}

// elementText returns a list element in YAML: the settings that differ from those of fresh.
func elementText(list string, owner, fresh reflect.Value) string {
	var keys []string
	values, below := map[string]string{}, map[string][]string{}
	for _, s := range partsOf(list) {
		key, part, nested := strings.Cut(strings.TrimPrefix(s.Path, list+"[]."), ".")
		if slices.Contains([]string{"schemas", "search", "joins", "labels"}, key) || s.text(owner) == s.text(fresh) {
			continue
		}
		if values[key] = s.written(owner); nested {
			outer, inner, deeper := strings.Cut(part, ".")
			if values[key] = outer + ": " + values[key]; deeper {
				values[key] = outer + ": {" + inner + ": " + s.written(owner) + "}"
			}
			below[key] = append(below[key], values[key])
			values[key] = "{" + strings.Join(below[key], ", ") + "}"
		}
		keys = lists.Add(keys, key)
	}
	lines := lists.Map(keys, func(key string) string { return key + ": " + values[key] + "\n" })
	return "  - " + strings.Join(lines, "    ")
}

// written returns the value in YAML.
func (s *Setting) written(owner reflect.Value) string {
	switch v := s.fields(owner)[0].Interface().(type) {
	case []string:
		if s.Type == "columns" || s.Type == "idents" {
			v = lists.Map(v, quoteIdent)
		}
		return "[" + strings.Join(lists.Map(v, Quoted), ", ") + "]"
	case string:
		if s.Type == "texts" { // it is JSON already
			return strings.ReplaceAll(v, "$", "$$")
		}
	}
	return Quoted(s.text(owner))
}

// Quoted quotes a text for YAML.
func Quoted(s string) string {
	plain := strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_.") == ""
	if plain && !slices.Contains([]string{"", "null", "true", "false"}, s) {
		return s
	}
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // cannot happen for a text
	}
	return strings.ReplaceAll(string(b), "$", "$$") // a $ could begin a variable
}
