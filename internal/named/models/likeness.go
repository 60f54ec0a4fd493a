package models

import (
	"fmt"

	"github.com/embedsidecar/embedsidecar/embed"
)

// Likeness tells how near vectors come to others of the same texts, as a search sees it: 1 is the same.
type Likeness struct {
	Measure embed.Measure `json:"measure"`
	Mean    float64       `json:"mean"`
	Least   float64       `json:"least"`
	Texts   int           `json:"texts"`
}

// String is the form for people.
func (l Likeness) String() string {
	return fmt.Sprintf("%s %.4f on average, %.4f at least, of %d texts", l.Measure, l.Mean, l.Least, l.Texts)
}

// Compare compares vectors of a model one by one. Texts without one on either side are left out.
func Compare(about embed.Description, a, b [][]float32) Likeness {
	found := Likeness{Measure: about.Measure(), Least: 1}
	for i := range min(len(a), len(b)) {
		if len(a[i]) == 0 || len(b[i]) == 0 {
			continue
		}
		like := about.Likeness(a[i], b[i])
		found.Mean += like
		found.Least = min(found.Least, like)
		found.Texts++
	}
	found.Mean /= float64(max(found.Texts, 1))
	return found
}
