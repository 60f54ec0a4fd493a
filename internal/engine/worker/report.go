package worker

import "fmt"

// Report is what a verification found. Rows with an open task count like any other: whether that is bad is for the
// caller to say.
type Report struct {
	Rows     int64    `json:"rows"`     // of the source table
	Wanted   int64    `json:"wanted"`   // of those: with a text, let through by the filter
	Covered  int64    `json:"covered"`  // of those: with a vector of their text as it is now
	Skipped  int64    `json:"skipped"`  // not wanted: who wrote their text says that it needs no new vector
	Missing  int64    `json:"missing"`  // wanted, but without a vector
	Stale    int64    `json:"stale"`    // with a vector of another text, or one we did not write
	Orphans  int64    `json:"orphans"`  // vectors without a row, or of a row without text
	Refused  int64    `json:"refused"`  // rows whose text or filter fails: nobody can say what they want
	Sampled  int64    `json:"sampled"`  // embedded again
	Differ   int64    `json:"differ"`   // of those: not the same vector
	Examples []string `json:"examples"` // keys of the first findings, each with what is wrong
}

// OK reports whether nothing is missing, stale, orphaned, different or impossible to judge.
func (r Report) OK() bool { return r.Missing+r.Stale+r.Orphans+r.Refused+r.Differ == 0 }

const maxExamples = 10

func (r *Report) example(key, what string) {
	if len(r.Examples) < maxExamples {
		r.Examples = append(r.Examples, fmt.Sprintf("%s: %s", key, what))
	}
}
