// Package compare asks two generations of a pipeline the same questions, and tells how their answers differ. It changes
// nothing.
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

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/search"
)

// Question is what both are asked.
type Question struct {
	Text string   `json:"text"`
	Keys []string `json:"keys,omitempty"` // of rows that should be found; none: nobody has said
}

// Side is what one of them has answered.
type Side struct {
	Model string   `json:"model"`
	Role  string   `json:"role"` // serves, next or previous
	P50   float64  `json:"p50_ms"`
	P99   float64  `json:"p99_ms"`
	Bytes *int64   `json:"bytes"`     // of its embedding table with its indexes; null: a column
	Found *float64 `json:"recall_10"` // of the rows that should be found; null: nobody has said which
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
	Correlation float64 `json:"rank_correlation"` // of the ranks of all rows that either has found, by Spearman
	Sides       [2]Side `json:"generations"`      // the one that serves first
	Pairs       []Pair  `json:"pairs"`            // those that differ most
}

const (
	first = 10 // rows that are compared
	pairs = 5  // questions that are shown
	shown = 3  // rows of each
)

// Run asks all questions of both generations, for somebody who may see what access says.
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

// Overlap is the share of rows that both have found, of as many as either has; 1 where neither has any.
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

// Correlation is that of the ranks, by Spearman, over all rows that either has found: what one lacks comes behind its
// last. It is 1 for the same order, and below 0 where one turns the other round.
func Correlation(a, b []string) float64 {
	union := slices.Clone(a)
	for _, key := range b {
		if !slices.Contains(union, key) {
			union = append(union, key)
		}
	}
	rank := func(list []string, key string) float64 {
		if at := slices.Index(list, key); at >= 0 {
			return float64(at)
		}
		return float64(len(list)+len(union)-1) / 2 // they share the places behind the last
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

// Recall is the share of wanted rows among the first ten, of as many as can be there.
func Recall(found, wanted []string) float64 {
	hit := 0
	for _, key := range found[:min(len(found), first)] {
		if slices.Contains(wanted, key) {
			hit++
		}
	}
	return float64(hit) / float64(min(len(wanted), first))
}

// NDCG is how early the wanted rows come among the first ten, beside the best order; 1: first of all.
func NDCG(found, wanted []string) float64 {
	var got, best float64
	for i := range first {
		gain := 1 / math.Log2(float64(i+2)) //nolint:mnd // by definition
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
	return sorted[min(len(sorted)-1, len(sorted)*percent/100)] //nolint:mnd // a hundred
}

// MostQuestions is how many are asked at most.
const MostQuestions = 1000

// ReadQuestions reads a file of questions: each line is a text, with keys of rows that should be found behind tabs, or
// a JSON object with text and keys.
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

// OfTexts makes questions of rows' own texts: the beginning of each.
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
