package worker

import "fmt"

// Report is the result of a verification. Rows with an open task count like any other; the caller decides whether that
// matters.
type Report struct {
	Rows     int64    `json:"rows"`     // of the source table
	Wanted   int64    `json:"wanted"`   // of those: with a text, and accepted by the filter
	Covered  int64    `json:"covered"`  // of those: with a vector of their current text
	Ignored  int64    `json:"ignored"`  // of the covered: only ignored parts of the text changed
	Skipped  int64    `json:"skipped"`  // not wanted: the writer declared that the text needs no new vector
	Missing  int64    `json:"missing"`  // wanted, but without a vector
	Stale    int64    `json:"stale"`    // with a vector of another text, or one that we did not write
	Orphans  int64    `json:"orphans"`  // vectors without a row, or of a row without text
	Refused  int64    `json:"refused"`  // rows whose text or filter fails
	Sampled  int64    `json:"sampled"`  // embedded again
	Differ   int64    `json:"differ"`   // of those: with a different vector
	Examples []string `json:"examples"` // keys of the first findings, each with its problem
}

// OK reports whether nothing is missing, stale, orphaned, different or unreadable.
func (r Report) OK() bool { return r.Missing+r.Stale+r.Orphans+r.Refused+r.Differ == 0 }

const maxExamples = 10

func (r *Report) example(key, what string) {
	if len(r.Examples) < maxExamples {
		r.Examples = append(r.Examples, fmt.Sprintf("%s: %s", key, what))
	}
}
