package pipeline

import (
	"slices"
	"strings"
)

// TextExpression returns the SQL that makes the text of the row called r: an expression of type text, NULL or empty
// when there is nothing to embed. A text of the user's names columns without r, so whatever else is in the same FROM
// must have column names that no table of a user has.
func (p *Pipeline) TextExpression() string {
	if p.Text != "" {
		return "(" + enclose(p.Text) + ")::text"
	}
	parts := make([]string, len(p.Columns))
	for i, c := range p.Columns {
		parts[i] = "nullif(" + p.ColumnText("r."+quote(c), c) + ", '')"
	}
	return `pg_catalog.concat_ws(E'\n\n', ` + strings.Join(parts, ", ") + ")"
}

// ColumnText returns the SQL that makes a text of a column's value.
func (p *Pipeline) ColumnText(value, column string) string {
	if slices.Contains(p.ByOutput, column) {
		return "pg_catalog.format('%s', " + value + ")"
	}
	return value + "::text"
}

// FilterExpression returns the SQL that reports whether the row called r has a text at all: a boolean that is never
// NULL. What TextExpression says of other names in scope holds here too.
func (p *Pipeline) FilterExpression() string {
	if p.Filter == "" {
		return "true"
	}
	return "(" + enclose(p.Filter) + " IS TRUE)"
}

// LaneExpression returns the SQL of the lane that the row called r says it is in, as its number; NULL for what is no
// name of a lane. What TextExpression says of other names in scope holds here too.
func (p *Pipeline) LaneExpression() string {
	if p.PriorityBy == "" {
		return "NULL::int"
	}
	return "array_position('{low,normal,high,urgent}'::text[], (" + enclose(p.PriorityBy) + ")::text) - 1"
}

// enclose puts an expression of the user's into parentheses. The line breaks end a comment of one line.
func enclose(expression string) string { return "(\n" + expression + "\n)" }
