package catalog

import (
	"fmt"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// maxName is how long a name may be; Postgres would cut a longer one without an error.
const maxName = 63

// Malformed returns what no database is needed to see.
func Malformed(spec pipeline.Spec) string {
	for what, name := range map[string]string{
		"schema": spec.Schema, "table": spec.Table, "destination column": spec.IntoColumn,
		"schema of the embedding table": spec.IntoSchema,
		"embedding table":               spec.IntoTable,
	} {
		if problem := BadName(name); problem != "" && name != "" {
			return fmt.Sprintf("the name of the %s %s", what, problem)
		}
	}
	for _, c := range spec.Columns {
		if problem := BadName(c); problem != "" {
			return fmt.Sprintf("the name of a column %s", problem)
		}
	}
	switch {
	case spec.Name == "":
		return "a pipeline has no name"
	case strings.ContainsRune(spec.Name, 0):
		return "the name of the pipeline contains a NUL character"
	case spec.Schema == "" || spec.Table == "":
		return "the source table has no schema or no name"
	case len(spec.Columns) == 0 && spec.Text == "":
		return "neither columns nor a text are given"
	case (spec.IntoColumn == "") == (spec.IntoTable == ""):
		return "there must be one destination: a column of the table, or an embedding table"
	}
	if problem := spec.Joins.Mistake(spec.Text); problem != "" {
		return problem
	}
	if problem := spec.IgnoreMistake(); problem != "" {
		return "ignore: " + problem
	}
	return spec.ChunkingMistake()
}

// BadName returns why a name cannot be one in the catalogue, or "".
func BadName(name string) string {
	switch {
	case name == "":
		return "is empty"
	case len(name) > maxName:
		return fmt.Sprintf("is %d bytes long; Postgres keeps %d", len(name), maxName)
	case strings.ContainsRune(name, 0):
		return "contains a NUL character"
	}
	return ""
}
