package models

import (
	"context"
	"fmt"
	"strings"

	"github.com/embedsidecar/embedsidecar/embed"
)

// Likeness says how similar vectors are to others of the same texts, by the measure of searches: 1 is equal.
type Likeness struct {
	Measure embed.Measure `json:"measure"`
	Mean    float64       `json:"mean"`
	Least   float64       `json:"least"`
	Texts   int           `json:"texts"`
}

// String describes the likeness.
func (l Likeness) String() string {
	return fmt.Sprintf("%s %.4f on average, %.4f at least, of %d texts", l.Measure, l.Mean, l.Least, l.Texts)
}

// Compare compares vectors of a model pairwise. It leaves out texts without a vector on either side.
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

// Samples returns distinct sample texts, always the same: of one to about twenty sentences, mostly short, like texts in
// tables.
func Samples(count int) []string {
	texts := make([]string, count)
	for i := range texts {
		long := 1 + i*7%5
		if i%8 == 3 {
			long = 6 + i%15
		}
		var parts []string
		for k := range long {
			parts = append(parts, sentences[(i*11+k*5+i/len(sentences))%len(sentences)])
		}
		texts[i] = fmt.Sprintf("%s Case %d.", strings.Join(parts, " "), i)
	}
	return texts
}

var sentences = []string{
	"The invoice of March was paid twice, so the customer wants one of the payments back.",
	"How do I reset my password?",
	"Restart the service after the certificate has been renewed.",
	"A red bicycle leans against the wall of the old bakery.",
	"The query is slow because the planner takes the wrong index.",
	"Shipping to islands takes three more days.",
	"Error 0x80070057: the parameter is incorrect.",
	"Der Zug nach Bern hat zwölf Minuten Verspätung.",
	"Turn left at the second crossing, then follow the river.",
	"Replication lag grows while the batch job is running.",
	"She reads the same poem every winter.",
	"func Sum(values []int) int { total := 0; for _, v := range values { total += v }; return total }",
	"The warranty does not cover damage by water.",
	"Les résultats de l'analyse seront disponibles vendredi.",
	"Whales sleep with one half of their brain at a time.",
	"SELECT name, count(*) FROM orders GROUP BY name ORDER BY 2 DESC;",
	"Two eggs, a cup of flour, half a cup of milk, and a pinch of salt.",
	"The meeting moves from Tuesday to Thursday, same room.",
	"Interest rates were left where they are for the fourth time.",
	"No refunds after thirty days.",
	"A vector index finds neighbours that are near, not always those that are nearest.",
	"The patient reports headaches in the morning and none at night.",
	"Version 2.4.1 mends the crash on start-up with an empty configuration.",
}

// Vectors embeds sample texts.
func Vectors(ctx context.Context, e embed.Embedder, about embed.Description, count int) (vectors [][]float32,
	err error,
) {
	results, err := embed.All(ctx, e, about, embed.Document, Samples(count))
	if err != nil {
		return nil, err
	}
	for i, r := range results {
		if r.Err != nil {
			return nil, fmt.Errorf("sample text %d: %w", i, r.Err)
		}
		vectors = append(vectors, r.Vector)
	}
	return vectors, nil
}
