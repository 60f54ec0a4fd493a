package pipeline

import (
	"encoding/hex"
	"regexp"
	"slices"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
)

// TextExpression returns the SQL that makes the text of the row r: an expression of type text, NULL or empty if there
// is nothing to embed. A user's text names columns without r, so other items in the same FROM must have column names
// that no user's table has.
func (p *Pipeline) TextExpression() string {
	if p.Text != "" {
		text := "(" + Enclose(p.Text) + ")::text"
		if len(p.Joins) > 0 { // OFFSET 0: a join's text that is named twice is evaluated once
			text = "(SELECT " + text + " FROM (SELECT " + p.Joins.columns("r") + " OFFSET 0) AS " + beside + ")"
		}
		return text
	}
	texts := lists.Map(p.Columns, func(c string) string { return p.ColumnText("r."+quote(c), c) })
	parts := lists.Map(append(texts, p.JoinedTexts()...), func(text string) string { return "nullif(" + text + ", '')" })
	return `pg_catalog.concat_ws(E'\n\n', ` + strings.Join(parts, ", ") + ")"
}

// ColumnText returns the SQL that converts a column's value to text.
func (p *Pipeline) ColumnText(value, column string) string {
	if slices.Contains(p.ByOutput, column) {
		return "pg_catalog.format('%s', " + value + ")"
	}
	return value + "::text"
}

// FilterExpression returns the SQL that reports whether the row r has a text: a boolean that is never NULL. The note on
// names at TextExpression applies here, too.
func (p *Pipeline) FilterExpression() string {
	if p.Filter == "" {
		return "true"
	}
	return "(" + Enclose(p.Filter) + " IS TRUE)"
}

// IgnoreMistake returns what is wrong with the ignore expression as written, or "".
func (s Spec) IgnoreMistake() string {
	switch {
	case s.Ignore == "":
		return ""
	case likeness.MatchString(s.Ignore):
		return "similarity is not supported: many small edits in a row would never count. " + ignoreHint
	case !namesText.MatchString(s.Ignore):
		return "it does not name the column text, so that no edit would ever count. " + ignoreHint
	case s.Chunking.NoText:
		return "chunks without a stored text (store_text: false) are found by their place in the row's text, which any " +
			"edit moves: store the text of chunks"
	}
	return ""
}

const ignoreHint = "Give an SQL expression over text, such as lower(text): an edit that does not change its value keeps " +
	"the vector"

var (
	likeness  = regexp.MustCompile(`(?i)^\s*similarity\s*[<>=]`)
	namesText = regexp.MustCompile(`(?i)\btext\b`)
)

// Normalised returns the SQL of what counts of a text, given as an SQL expression: the value of Ignore, with a prefix
// that identifies the expression, so that hashes of different expressions never match. It is NULL if Ignore returns
// NULL, or a row has no text.
func (p *Pipeline) Normalised(text string) string {
	if p.Ignore == "" {
		return "NULL::text"
	}
	const enough = 8
	rule := TextHash(p.Ignore)
	return "('" + hex.EncodeToString(rule[:enough]) + " ' || (SELECT (" + Enclose(p.Ignore) + ")::text FROM (SELECT " +
		text + " AS text) AS r))"
}

// LaneExpression returns the SQL of the row r's lane, as a number; NULL for an unknown name. The note on names at
// TextExpression applies here, too.
func (p *Pipeline) LaneExpression() string {
	if p.PriorityBy == "" {
		return "NULL::int"
	}
	return "array_position('{low,normal,high,urgent}'::text[], (" + Enclose(p.PriorityBy) + ")::text) - 1"
}

// Enclose puts a user's expression into parentheses. The line breaks end a one-line comment.
func Enclose(expression string) string { return "(\n" + expression + "\n)" }
