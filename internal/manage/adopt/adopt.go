package adopt

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/embed/chunk"
	"github.com/embedsidecar/embedsidecar/internal/base/failpoint"
	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// Taken counts the rows of a pipeline by result.
type Taken struct {
	Rows    int64 `json:"rows"`
	Adopted int64 `json:"adopted"`        // rows whose vectors were adopted
	Known   int64 `json:"known"`          // rows that the ledger had an entry for already
	Stale   int64 `json:"stale"`          // rows whose text is newer than the vector
	Missing int64 `json:"without_vector"` // rows with a text but no suitable vector
	Empty   int64 `json:"without_text"`
	Refused int64 `json:"refused"` // rows that could not be read
}

// Left returns how many rows are embedded later.
func (t *Taken) Left() int64 { return t.Stale + t.Missing }

// Taker adopts vectors.
type Taker struct {
	DB       database.DB
	Pipeline *pipeline.Pipeline // set up, paused or not: the ledger prevents conflicts with workers
	Given    *rows.Given
	Log      *slog.Logger

	table *rows.Table
	pages *rows.Pages
	told  time.Time
}

// Take processes all rows. It can be repeated or resumed: it then adopts only what is left.
func (k *Taker) Take(ctx context.Context) (taken Taken, err error) {
	k.table = rows.New(k.Pipeline, k.DB, rows.Options{})
	k.pages = k.table.Pages()
	var after *string
	for {
		keys, known, err := k.pages.Rows(ctx, "", after)
		if err != nil {
			return taken, fmt.Errorf("adopt vectors of %s: %w", k.Pipeline.Source(), err)
		}
		if len(keys) == 0 {
			return taken, nil
		}
		after = &keys[len(keys)-1]
		taken.Rows += int64(len(keys))
		var fresh []string
		for i, key := range keys {
			if len(key) <= pipeline.MaxKey && !known[i] {
				fresh = append(fresh, key)
			}
		}
		taken.Known += int64(len(keys) - len(fresh))
		if err := k.page(ctx, fresh, &taken); err != nil {
			return taken, fmt.Errorf("adopt vectors of %s: %w", k.Pipeline.Source(), err)
		}
		if err := failpoint.Hit("adopt/after-page"); err != nil {
			return taken, err
		}
		if now := time.Now(); now.Sub(k.told) > 10*time.Second {
			k.told = now
			k.Log.InfoContext(ctx, "adopting vectors", "pipeline", k.Pipeline.Name, "rows", taken.Rows, "adopted", taken.Adopted)
		}
	}
}

// page adopts the vectors of a page of rows. It reads the texts before the vectors. If a row changes in between, the
// change arrives through the slot.
func (k *Taker) page(ctx context.Context, keys []string, taken *Taken) error {
	var found []rows.Row
	err := database.UntilUnlocked(ctx, func() error {
		found = found[:0]
		refused := int64(0)
		err := k.pages.Read(ctx, keys, func(page []rows.Row) { found = append(found, page...) },
			func(string, error) { refused++ })
		if err == nil {
			taken.Refused += refused
		}
		return err
	})
	if err != nil {
		return err
	}
	found = slices.DeleteFunc(found, func(r rows.Row) bool {
		return !r.Found || r.Ledger || r.Key != r.Actual || !r.Hashed
	})
	const portion = 250 // limits the vectors in memory, except those of chunks
	for some := range slices.Chunk(found, portion) {
		if err := k.portion(ctx, some, taken); err != nil {
			return err
		}
	}
	return nil
}

func (k *Taker) portion(ctx context.Context, found []rows.Row, taken *Taken) error {
	keys := lists.Map(found, func(v rows.Row) string { return v.Key })
	given, err := k.table.Given(ctx, k.Given, keys)
	if err != nil {
		return err
	}
	var writes []rows.Write
	var sources, norms [][]byte
	for i := range found {
		r := &found[i]
		switch {
		case !r.Wanted():
			taken.Empty++
		case len(given[i]) == 0:
			taken.Missing++
		case slices.ContainsFunc(given[i], func(v rows.GivenVector) bool { return v.Stale }):
			taken.Stale++
		default:
			writes = append(writes, k.write(r, given[i]))
			sources, norms = append(sources, r.Source), append(norms, r.NormOf(r.TextHash[:]))
		}
	}
	if len(writes) == 0 {
		return nil
	}
	n, err := k.store(ctx, writes, sources, norms)
	taken.Adopted += n
	taken.Known += int64(len(writes)) - n
	return err
}

// write returns what a worker would have written for a row. For a chunked pipeline it has the chunks of the other
// program; the backfill chunks the text and finds their vectors by hash.
func (k *Taker) write(r *rows.Row, given []rows.GivenVector) rows.Write {
	p := k.Pipeline
	if !p.Chunking.On() {
		return rows.Write{Key: r.Key, TextHash: r.TextHash[:], Vector: p.Stored.Given(given[0].Vector)}
	}
	none := sha256.Sum256(nil) // the hash of the whole text is set when the backfill chunks it
	w := rows.Write{Key: r.Key, TextHash: none[:]}
	for _, v := range given {
		if v.Text == "" {
			continue
		}
		c := rows.Chunk{Hash: pipeline.TextHash(embedded(p, r.Title, v.Text)), Vector: p.Stored.Given(v.Vector)}
		c.Start, c.Context = len(w.Text), contextOf(p, r.Title)
		w.Text += v.Text
		c.End = len(w.Text)
		w.Chunks = append(w.Chunks, c)
	}
	return w
}

// store writes ledger entries and vectors in one transaction, for rows without a ledger entry.
func (k *Taker) store(ctx context.Context, writes []rows.Write, sources, norms [][]byte) (written int64, err error) {
	p := k.Pipeline
	generation := p.Generation
	if p.Chunking.On() {
		generation = 0 // so the backfill processes every row
	}
	keys, texts, vectors := make([]string, len(writes)), make([][]byte, len(writes)), make([][]byte, len(writes))
	for i := range writes {
		hash := k.table.VectorHash(&writes[i])
		keys[i], texts[i], vectors[i] = writes[i].Key, writes[i].TextHash, hash[:]
	}
	err = database.Transact(ctx, k.DB, func(tx pgx.Tx) error {
		written = 0
		batch := &pgx.Batch{}
		if err := k.table.QueueGuard(batch, nil); err != nil {
			return err
		}
		passed := map[string]bool{}
		batch.Queue(sqlfiles.Query("adopt_ledger"), pgx.StrictNamedArgs{
			"pipeline_id": p.ID, "generation": generation, "row_keys": keys, "source_hashes": sources, "text_hashes": texts,
			"vector_hashes": vectors, "norm_hashes": norms,
		}).Query(func(r pgx.Rows) error {
			var key string
			_, err := pgx.ForEachRow(r, []any{&key}, func() error { passed[key] = true; return nil })
			return err
		})
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return err
		}
		written = int64(len(passed))
		if p.InSource() {
			return nil // the vectors are already in place
		}
		ours := slices.DeleteFunc(slices.Clone(writes), func(w rows.Write) bool { return !passed[w.Key] })
		if len(ours) == 0 {
			return nil
		}
		return k.table.Write(ctx, tx, &rows.Change{Write: ours}, nil)
	})
	return written, err
}

// SampleTexts is how many texts are embedded again to verify the vectors.
const SampleTexts = 200

// Agreeing is the minimum similarity of a vector and its re-embedded text, since programs round and batch differently.
// agreeingBits is lower, because rounding decides some bits.
const (
	Agreeing     = 0.999
	agreeingBits = 0.98
)

// Sample compares the model's vectors of some texts with the stored ones.
type Sample struct {
	Texts     int      `json:"texts"` // texts that were embedded again
	Agree     int      `json:"agree"`
	Median    float64  `json:"median_cosine"`
	Least     float64  `json:"least_cosine"`
	Different []string `json:"different_keys,omitempty"` // examples of rows with another vector
}

// Line summarizes a sample.
func (s *Sample) Line() string {
	return fmt.Sprintf("%d of %d texts of a sample have the vector that the model gives (cosine: median %.4f, least %.4f)",
		s.Agree, s.Texts, s.Median, s.Least)
}

// Draw draws a sample of the vectors. It needs no tables of this program.
func Draw(ctx context.Context, tx pgx.Tx, p *pipeline.Pipeline, g *rows.Given, rowsOf int64) ([]rows.Sampled, error) {
	const wanted, large = 20 * SampleTexts, 200_000
	share := 100.0
	if rowsOf > wanted {
		share = min(share, share*wanted/float64(rowsOf))
	}
	drawn, err := g.Sample(ctx, tx, p, share, rowsOf > large, SampleTexts)
	if err == nil && len(drawn) < SampleTexts && share < 100 { // vectors are rare, or the server's estimate is outdated
		drawn, err = g.Sample(ctx, tx, p, 100, false, SampleTexts)
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
				continue // the text has no token, or the model rejects it
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

// embedded returns the text to embed: of a row, or of a chunk with its context.
func embedded(p *pipeline.Pipeline, title, text string) string {
	if !p.Chunking.On() {
		return text
	}
	return chunk.Chunk{End: len(text), Context: contextOf(p, title), Between: p.Chunking.Between}.Embedded(text)
}

// contextOf returns the context of each chunk of a row.
func contextOf(p *pipeline.Pipeline, title string) string {
	if p.Chunking.ByCharacters() && (p.Chunking.Strategy != pipeline.ChunkWhole || p.Chunking.Between != "") {
		return title
	}
	return strings.Join(strings.Fields(title), " ")
}

// alike compares a stored vector with the model's.
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

// Judge returns *refusal.ConfigError if a sample does not prove that the model made the vectors.
func (s *Sample) Judge(p *pipeline.Pipeline, g *rows.Given) error {
	if s.Texts > 0 && s.Agree == s.Texts {
		return nil
	}
	fail := func(problem string, hint ...string) error {
		return &refusal.ConfigError{Pipeline: p.Name, Problem: problem, Hint: hint, Code: code.Taken}
	}
	trust := "or adopt them unchecked: --trust"
	switch few := s.Agree*10 >= s.Texts*9; { // nine of ten
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
			"name the column with the time of the last change: --updated-at COLUMN; rows with older vectors are embedded again", trust)
	}
	return fail(fmt.Sprintf("%d of %d vectors of a sample are not those that model %s gives (cosine: median %.4f, least %.4f), such as of row %s: the vectors are of several models, or of other texts",
		s.Texts-s.Agree, s.Texts, p.Model, s.Median, s.Least, example(s)),
		"remove the vectors of other models (their rows will be embedded), then adopt again", trust)
}

func example(s *Sample) string {
	if len(s.Different) == 0 {
		return "?"
	}
	return database.Quote(s.Different[0])
}
