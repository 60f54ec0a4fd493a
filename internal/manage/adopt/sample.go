package adopt

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/embed/chunk"
	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// SampleTexts is how many texts are embedded again before vectors are believed.
const SampleTexts = 200

// Agreeing is the likeness from which on a vector counts as that of its text: programs differ in how they round and
// batch. Of bits, some of which rounding decides, fewer have to agree.
const (
	Agreeing     = 0.999
	agreeingBits = 0.98
)

// Sample is what the model gives of some texts, beside the vectors that are there.
type Sample struct {
	Texts     int      `json:"texts"` // that were embedded again
	Agree     int      `json:"agree"`
	Median    float64  `json:"median_cosine"`
	Least     float64  `json:"least_cosine"`
	Different []string `json:"different_keys,omitempty"` // of some rows whose vector is another
}

// Line words a sample.
func (s *Sample) Line() string {
	return fmt.Sprintf("%d of %d texts of a sample have the vector that the model gives (cosine: median %.4f, least %.4f)",
		s.Agree, s.Texts, s.Median, s.Least)
}

// Draw draws a sample of the vectors. It needs nothing of ours in the database.
func Draw(ctx context.Context, tx pgx.Tx, p *pipeline.Pipeline, g *rows.Given, rowsOf int64) ([]rows.Sampled, error) {
	const wanted, large = 20 * SampleTexts, 200_000
	share := 100.0
	if rowsOf > wanted {
		share = min(share, share*wanted/float64(rowsOf))
	}
	drawn, err := g.Sample(ctx, tx, p, share, rowsOf > large, SampleTexts)
	if err == nil && len(drawn) < SampleTexts && share < 100 { // vectors are rare, or the server's estimate is old
		drawn, err = g.Sample(ctx, tx, p, 100, false, SampleTexts) //nolint:mnd // percent
	}
	return drawn, err
}

// Compare embeds the texts of a sample again.
func Compare(ctx context.Context, by *embed.Service, p *pipeline.Pipeline, drawn []rows.Sampled) (s Sample, err error) {
	const batch, examples = 32, 5
	var likeness []float64
	for some := range slices.Chunk(drawn, batch) {
		texts := lists.Map(some, func(v rows.Sampled) string { return embedded(p, v.Title, v.Text) })
		results, err := by.Anew(ctx, texts)
		if err != nil {
			return s, err
		}
		for i, r := range results {
			if r.Vector == nil {
				continue // a text without a token, or one that the model refuses: nothing to compare
			}
			like, same := alike(p, some[i].Vector, r.Vector)
			likeness = append(likeness, like)
			if same {
				s.Agree++
			} else if len(s.Different) < examples {
				s.Different = append(s.Different, some[i].Key)
			}
		}
	}
	if s.Texts = len(likeness); s.Texts > 0 {
		slices.Sort(likeness)
		s.Least, s.Median = likeness[0], likeness[len(likeness)/2]
	}
	return s, nil
}

// embedded is what is embedded of a text, or of a chunk with its context.
func embedded(p *pipeline.Pipeline, title, text string) string {
	if !p.Chunking.On() {
		return text
	}
	return chunk.Chunk{End: len(text), Context: contextOf(p, title), Between: p.Chunking.Between}.Embedded(text)
}

// contextOf is the context of each chunk of a row.
func contextOf(p *pipeline.Pipeline, title string) string {
	if p.Chunking.ByCharacters() && (p.Chunking.Strategy != pipeline.ChunkWhole || p.Chunking.Between != "") {
		return title
	}
	return strings.Join(strings.Fields(title), " ")
}

// alike compares a stored vector with what the model gives.
func alike(p *pipeline.Pipeline, stored, given []float32) (likeness float64, same bool) {
	switch p.Stored {
	case pipeline.StoredSparse:
		likeness = embed.SparseLikeness(stored, given)
	case pipeline.StoredBit:
		likeness = embed.Cosine(p.Stored.Given(stored), p.Stored.Given(p.Stored.Canonical(given)))
		return likeness, likeness >= agreeingBits
	default:
		likeness = embed.Cosine(stored, given)
	}
	return likeness, likeness >= Agreeing
}

// Judge returns *refusal.ConfigError where a sample does not prove that the model made the vectors.
func (s *Sample) Judge(p *pipeline.Pipeline, g *rows.Given) error {
	if s.Texts > 0 && s.Agree == s.Texts {
		return nil
	}
	fail := func(problem string, hint ...string) error {
		return &refusal.ConfigError{Pipeline: p.Name, Problem: problem, Hint: hint, Code: code.Taken}
	}
	trust := "or take them as they are, if you know better: --trust"
	switch few := s.Agree*10 >= s.Texts*9; { //nolint:mnd // nine of ten
	case s.Texts == 0:
		return fail(fmt.Sprintf("there is no vector in %s to adopt: none is of a row with a text, %d wide and not older than its text",
			g.Table, p.Dims))
	case s.Agree == 0:
		return fail(fmt.Sprintf("the vectors in %s are not those that model %s gives: cosine %.4f (median of %d texts), not %.3f",
			g.Table, p.Model, s.Median, s.Texts, Agreeing),
			"name the model that made them, with the same columns or text expression: --model NAME",
			"or let them be embedded: embedsidecar init, with another destination", trust)
	case few && g.Changed == "":
		return fail(fmt.Sprintf("%d of %d vectors of a sample are not those of their texts (least cosine %.4f), such as of row %s: these rows were changed since, or another model made them",
			s.Texts-s.Agree, s.Texts, s.Least, example(s)),
			"name the column that says when a row was changed: --updated-at COLUMN; vectors that are older are embedded again", trust)
	}
	return fail(fmt.Sprintf("%d of %d vectors of a sample are not those that model %s gives (cosine: median %.4f, least %.4f), such as of row %s: the vectors are of several models, or of other texts",
		s.Texts-s.Agree, s.Texts, p.Model, s.Median, s.Least, example(s)),
		"take away those of other models: rows without a vector are embedded; then adopt again", trust)
}

func example(s *Sample) string {
	if len(s.Different) == 0 {
		return "?"
	}
	return database.Quote(s.Different[0])
}
