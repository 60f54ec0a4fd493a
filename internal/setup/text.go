package setup

import (
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// TextExpression returns the SQL that makes the text of the row called r: an expression of type text, NULL or empty
// when there is nothing to embed. A text of the user's names columns without r, so whatever else is in scope of the
// query must have column names that no table of a user has, such as embedsidecar_key.
func TextExpression(p *pipeline.Pipeline) string {
	if p.Text != "" {
		return "(" + enclose(p.Text) + ")::text"
	}
	parts := make([]string, len(p.Columns))
	for i, c := range p.Columns {
		parts[i] = "nullif(r." + database.Quote(c) + "::text, '')"
	}
	return `pg_catalog.concat_ws(E'\n\n', ` + strings.Join(parts, ", ") + ")"
}

// FilterExpression returns the SQL that reports whether the row called r has a text at all: a boolean that is never
// NULL. What TextExpression says of other names in scope holds here too.
func FilterExpression(p *pipeline.Pipeline) string {
	if p.Filter == "" {
		return "true"
	}
	return "(" + enclose(p.Filter) + " IS TRUE)"
}

// enclose puts an expression of the user's into parentheses. The line breaks end a comment of one line.
func enclose(expression string) string { return "(\n" + expression + "\n)" }
