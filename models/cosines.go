package models

import "fmt"

// Cosines tell how near vectors come to others of the same texts: 1 is the same direction.
type Cosines struct {
	Mean  float64 `json:"mean"`
	Least float64 `json:"least"`
	Texts int     `json:"texts"`
}

// String is the form for people.
func (c Cosines) String() string {
	return fmt.Sprintf("cosine %.4f on average, %.4f at least, of %d texts", c.Mean, c.Least, c.Texts)
}

// Compare compares vectors one by one. Texts without one on either side are left out.
func Compare(a, b [][]float32, cosineOf func(a, b []float32) float64) Cosines {
	found := Cosines{Least: 1}
	for i := range min(len(a), len(b)) {
		if len(a[i]) == 0 || len(b[i]) == 0 {
			continue
		}
		cosine := cosineOf(a[i], b[i])
		found.Mean += cosine
		found.Least = min(found.Least, cosine)
		found.Texts++
	}
	found.Mean /= float64(max(found.Texts, 1))
	return found
}
