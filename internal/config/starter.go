package config

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

//go:embed starter.yaml
var starter string

// Starter is a file to begin with: these pipelines, or an example, and in comments what else there is.
func Starter(specs []pipeline.Spec) string {
	if len(specs) == 0 {
		specs = []pipeline.Spec{{
			Schema: "public", Table: "docs", Columns: []string{"title", "body"}, IntoTable: "docs_embedding",
		}}
	}
	var b strings.Builder
	for _, p := range specs {
		into := "column: " + quoted(quoteIdent(p.IntoColumn))
		if !p.InSource() {
			into = "table: " + quoted(tableName(p.IntoSchema, p.IntoTable))
		}
		columns := lists.Map(p.Columns, func(c string) string { return quoted(quoteIdent(c)) })
		fmt.Fprintf(&b, "  - table: %s\n    columns: [%s]\n    into: {%s}\n", quoted(tableName(p.Schema, p.Table)),
			strings.Join(columns, ", "), into)
		if p.Chunking.On() {
			fmt.Fprintf(&b, "    chunking: {strategy: %s, tokens: %d}\n", p.Chunking.Strategy, p.Chunking.Tokens)
		}
	}
	return strings.Replace(starter, "  # PIPELINES\n", b.String(), 1)
}

// quoted writes a text so that YAML takes none of its signs for one of its own.
func quoted(s string) string {
	if strings.Trim(s, "abcdefghijklmnopqrstuvwxyz_.") == "" && s != "null" && s != "true" && s != "false" {
		return s
	}
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a text
	}
	return strings.ReplaceAll(string(b), "$", "$$") // of a variable it would be the beginning
}
