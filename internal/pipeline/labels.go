package pipeline

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
)

// Labels are a user's names and values for finding a pipeline: project, team, customer.
type Labels map[string]string

// The maximum number of labels of a pipeline, and the maximum length of a value in bytes.
const (
	mostLabels = 16
	longLabel  = 100
)

var labelName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,39}$`)

// Mistake returns what is wrong with the labels, or "".
func (l Labels) Mistake() string {
	if len(l) > mostLabels {
		return fmt.Sprintf("%d are too many: a pipeline has %d at most", len(l), mostLabels)
	}
	for _, name := range slices.Sorted(maps.Keys(l)) {
		value := l[name]
		switch {
		case !labelName.MatchString(name):
			return fmt.Sprintf("the name %.60q: expected a letter and up to 39 of A-Z, a-z, 0-9, _ . and -", name)
		case value == "", len(value) > longLabel, strings.TrimSpace(value) != value,
			strings.ContainsFunc(value, func(r rune) bool { return !unicode.IsPrint(r) }):
			return fmt.Sprintf("%s: expected a value of 1 to %d bytes, of printable characters and without blanks around it",
				name, longLabel)
		}
	}
	return ""
}

// String returns the labels as in a configuration; "": none.
func (l Labels) String() string {
	parts := lists.Map(slices.Sorted(maps.Keys(l)), func(name string) string { return name + ": " + l[name] })
	return strings.Join(parts, ", ")
}

// LabelPrefix begins a word for the pipelines with a label: label:project=x, or label:project for any value.
const LabelPrefix = "label:"

// Chosen reports whether a word with LabelPrefix matches these labels.
func (l Labels) Chosen(word string) bool {
	name, value, exact := strings.Cut(strings.TrimPrefix(word, LabelPrefix), "=")
	is, has := l[name]
	return has && (!exact || is == value)
}
