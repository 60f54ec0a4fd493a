// Package compare asks two generations of a pipeline the same questions and compares their answers. It changes nothing.
package compare

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/search"
)

// Question is asked of both generations.
type Question struct {
	Text string   `json:"text"`
	Keys []string `json:"keys,omitempty"` // of rows that should be found; empty: unknown
}

// Side holds the results of one generation.
type Side struct {
	Model string   `json:"model"`
	Role  string   `json:"role"` // serves, next or previous
	P50   float64  `json:"p50_ms"`
	P99   float64  `json:"p99_ms"`
	Bytes *int64   `json:"bytes"`     // size of its embedding table with indexes; null: the vectors are in a column
	Found *float64 `json:"recall_10"` // share of the rows that should be found; null: unknown which
	NDCG  *float64 `json:"ndcg_10"`
}

// Pair is one question with both answers.
type Pair struct {
	Question string     `json:"question"`
	Overlap  float64    `json:"overlap_10"`
	Rows     [2][]Shown `json:"rows"`
}

// Shown is a row of an answer.
type Shown struct {
	Key      string   `json:"key"`
	Distance *float64 `json:"distance"`
	Text     string   `json:"text"`
}

// Result is a comparison.
type Result struct {
	Pipeline    string  `json:"pipeline"`
	Questions   int     `json:"questions"`
	Labelled    int     `json:"labelled"`
	Overlap     float64 `json:"overlap_10"`       // of the first ten rows, on average
	Correlation float64 `json:"rank_correlation"` // Spearman's, over all rows that either has found
	Sides       [2]Side `json:"generations"`      // the serving one first
	Pairs       []Pair  `json:"pairs"`            // the questions that differ most
}

const (
	first = 10 // rows that are compared
	pairs = 5  // questions that are shown
	shown = 3  // rows that are shown of each answer
)

// Run asks all questions of both generations, with the rights of access.
func Run(ctx context.Context, db search.DB, generations [2]*pipeline.Pipeline, embed search.Embedder,
	questions []Question, access *search.Access,
) (r Result, err error) {
	r.Questions = len(questions)
	var took [2][]float64
	var recall, gain [2]float64
	searcher := search.Searcher{DB: db, Embed: embed}
	for _, q := range questions {
		pair, keys := Pair{Question: q.Text}, [2][]string{}
		for i, p := range generations {
			began := time.Now()
			found, err := searcher.Near(ctx, p, search.Request{Text: q.Text, Rows: first, Access: access})
			if err != nil {
				return r, fmt.Errorf("ask model %q: %w", p.Model, err)
			}
			took[i] = append(took[i], float64(time.Since(began).Microseconds())/1000)
			for n := range found.Hits {
				hit := &found.Hits[n]
				keys[i] = append(keys[i], hit.Key)
				if n < shown {
					pair.Rows[i] = append(pair.Rows[i], Shown{hit.Key, hit.Distance, hit.Line()})
				}
			}
			if len(q.Keys) > 0 {
				recall[i] += Recall(keys[i], q.Keys)
				gain[i] += NDCG(keys[i], q.Keys)
			}
		}
		if len(q.Keys) > 0 {
			r.Labelled++
		}
		pair.Overlap = Overlap(keys[0], keys[1])
		r.Overlap += pair.Overlap / float64(len(questions))
		r.Correlation += Correlation(keys[0], keys[1]) / float64(len(questions))
		r.Pairs = append(r.Pairs, pair)
	}
	for i := range r.Sides {
		r.Sides[i].Model = generations[i].Model
		r.Sides[i].P50, r.Sides[i].P99 = percentile(took[i], 50), percentile(took[i], 99)
		if r.Labelled > 0 {
			found, ndcg := recall[i]/float64(r.Labelled), gain[i]/float64(r.Labelled)
			r.Sides[i].Found, r.Sides[i].NDCG = &found, &ndcg
		}
	}
	slices.SortStableFunc(r.Pairs, func(a, b Pair) int { return int(math.Copysign(1, a.Overlap-b.Overlap)) })
	r.Pairs = r.Pairs[:min(len(r.Pairs), pairs)]
	return r, nil
}

// Overlap is the number of rows that both have found, divided by the length of the longer list; 1 if both are empty.
func Overlap(a, b []string) float64 {
	most := max(len(a), len(b))
	if most == 0 {
		return 1
	}
	same := 0
	for _, key := range a {
		if slices.Contains(b, key) {
			same++
		}
	}
	return float64(same) / float64(most)
}

// Correlation is Spearman's rank correlation over all rows that either has found. Rows that a list lacks share the
// ranks after its last. It is 1 for equal order and negative for reversed order.
func Correlation(a, b []string) float64 {
	union := lists.Add(slices.Clone(a), b...)
	rank := func(list []string, key string) float64 {
		if at := slices.Index(list, key); at >= 0 {
			return float64(at)
		}
		return float64(len(list)+len(union)-1) / 2 // they share the ranks after the last
	}
	var x, y, xx, yy, xy float64
	for _, key := range union {
		p, q := rank(a, key), rank(b, key)
		x, y, xx, yy, xy = x+p, y+q, xx+p*p, yy+q*q, xy+p*q
	}
	n := float64(len(union))
	spread := math.Sqrt((n*xx - x*x) * (n*yy - y*y))
	if spread == 0 { // one row, or none
		return Overlap(a, b)
	}
	return (n*xy - x*y) / spread
}

// Recall is the share of wanted rows among the first ten, relative to the largest possible number.
func Recall(found, wanted []string) float64 {
	hit := 0
	for _, key := range found[:min(len(found), first)] {
		if slices.Contains(wanted, key) {
			hit++
		}
	}
	return float64(hit) / float64(min(len(wanted), first))
}

// NDCG measures how early the wanted rows come among the first ten, relative to the best order; 1: all come first.
func NDCG(found, wanted []string) float64 {
	var got, best float64
	for i := range first {
		gain := 1 / math.Log2(float64(i+2))
		if i < len(wanted) {
			best += gain
		}
		if i < len(found) && slices.Contains(wanted, found[i]) {
			got += gain
		}
	}
	return got / best
}

func percentile(list []float64, percent int) float64 {
	if len(list) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(list))
	return sorted[min(len(sorted)-1, len(sorted)*percent/100)]
}

// MostQuestions is the largest number of questions.
const MostQuestions = 1000

// ReadQuestions reads a file of questions. Each line is a text, followed by the tab-separated keys of rows that should
// be found, or a JSON object with text and keys.
func ReadQuestions(from io.Reader) ([]Question, error) {
	const widest = 1 << 20
	var list []Question
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, widest)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" {
			continue
		}
		q := Question{}
		if strings.HasPrefix(line, "{") {
			strict := json.NewDecoder(strings.NewReader(line))
			strict.DisallowUnknownFields()
			if err := strict.Decode(&q); err != nil {
				return nil, fmt.Errorf("line %d: %w", n, err)
			}
		} else {
			parts := strings.Split(line, "\t")
			q.Text, q.Keys = parts[0], parts[1:]
		}
		if strings.TrimSpace(q.Text) == "" {
			return nil, fmt.Errorf("line %d has no text", n)
		}
		if list = append(list, q); len(list) > MostQuestions {
			return nil, fmt.Errorf("more than %d questions", MostQuestions)
		}
	}
	return list, lines.Err()
}

// OfTexts makes questions of the beginnings of rows' own texts.
func OfTexts(texts []string, most int) []Question {
	const characters = 120
	var list []Question
	for _, text := range texts[:min(len(texts), most)] {
		words := strings.Join(strings.Fields(text), " ")
		if r := []rune(words); len(r) > characters {
			words = string(r[:characters])
		}
		list = append(list, Question{Text: words})
	}
	return list
}
