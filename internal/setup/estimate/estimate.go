// Package estimate estimates a backfill from a sample of the rows: rows, tokens, time, price and disk space. It changes
// nothing. It embeds a few rows if that costs nothing.
package estimate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/embed/chunk"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
)

// Estimate is the expected cost of a backfill. Values from a sample are approximate.
type Estimate struct {
	Pipeline string `json:"pipeline"`
	Rows     int64  `json:"rows"`    // of the table
	Texts    int64  `json:"texts"`   // rows to embed: of a new pipeline, those that pass the filter and have a text
	Sampled  int    `json:"sampled"` // rows that were sampled
	Tokens   int64  `json:"tokens" doc:"By the model's own tokenizer"`
	// texts that exceed the model's limit, so that their rest is not embedded; chunking embeds all of it
	Cut       int64 `json:"texts_cut"`
	MaxTokens int   `json:"max_tokens"` // the model's limit per text; 0: unknown
	// the plugin cannot count tokens: four bytes were taken as one token
	TokensGuessed bool     `json:"tokens_guessed"`
	Seconds       *float64 `json:"seconds" doc:"Of embedding and writing; null: no text was embedded to measure it"`
	Price         *float64 `json:"price" doc:"null: the model has none in the configuration"`
	Currency      string   `json:"currency,omitempty" doc:"Of the price, as the configuration names it"`
	DiskBytes     int64    `json:"disk_bytes"`
}

// Line returns the estimate as one line.
func (e *Estimate) Line() string {
	return e.Pipeline + ": " + e.Takes()
}

// Takes returns the estimate without the pipeline's name.
func (e *Estimate) Takes() string {
	line := fmt.Sprintf("about %s, %s to embed, %s", wording.Count(rounded(e.Rows), "row"),
		wording.Count(rounded(e.Texts), "text"), wording.Count(rounded(e.Tokens), "token"))
	if e.TokensGuessed {
		line += " (guessed by their bytes)"
	}
	if e.Cut > 0 {
		line += fmt.Sprintf(", %d of the texts cut at %d tokens (chunking: {strategy: tokens} embeds all of each)", e.Cut,
			e.MaxTokens)
	}
	return line + e.costs(" on this machine")
}

// CutOf describes how many of the texts are truncated: as a percentage if they were sampled.
func (e *Estimate) CutOf() string {
	if e.Texts > int64(e.Sampled) {
		return fmt.Sprintf("about %.0f %% of the texts", 100*float64(e.Cut)/float64(e.Texts)) //nolint:mnd // percent
	}
	return fmt.Sprintf("%d of %s", e.Cut, wording.Count(e.Texts, "text"))
}

// Brief is a short form of Takes.
func (e *Estimate) Brief() string {
	line := wording.Count(rounded(e.Rows), "row")
	if e.Texts != e.Rows {
		line += ", " + wording.Count(rounded(e.Texts), "text") + " to embed"
	}
	return line + e.costs("")
}

// costs describes time, price and disk space.
func (e *Estimate) costs(where string) (line string) {
	if e.Seconds != nil {
		line += ", about " + wording.Age(coarse(*e.Seconds)) + where
	}
	if e.Price != nil {
		line += ", price " + wording.Money(*e.Price, e.Currency)
	}
	return line + ", " + wording.Size(e.DiskBytes) + " on disk"
}

// coarse rounds a time to its precision: whole minutes from ten on, ten minutes from an hour, whole hours from ten.
func coarse(seconds float64) float64 {
	const minute, hour, few = 60, 3600, 10
	unit := 1.
	switch {
	case seconds >= few*hour:
		unit = hour
	case seconds >= hour:
		unit = few * minute
	case seconds >= few*minute:
		unit = minute
	}
	return max(1, math.Round(seconds/unit)*unit)
}

// rounded rounds a large number to its first three digits.
func rounded(n int64) int64 {
	const exact = 10_000
	if n < exact {
		return n
	}
	unit := int64(1)
	for n/unit >= 1000 { //nolint:mnd // three digits
		unit *= 10
	}
	return (n + unit/2) / unit * unit
}

// Embedder counts tokens, and embeds to measure the time.
type Embedder interface {
	embed.Embedder
	embed.Tokenizer
}

// Options are the inputs of an estimate.
type Options struct {
	DB    database.Beginner
	Spec  pipeline.Spec
	About embed.Description
	By    Embedder
	Price pipeline.Price // with a price, nothing is embedded
}

// The size of the sample: rows, and bytes of each text. The rest of a text is extrapolated from its length.
const (
	SampleRows  = 300
	SampleBytes = 20000
)

const (
	timedTexts  = 16
	countedRows = 100_000 // larger tables are counted by a sample of pages
	writtenRows = 4000    // per second: about what a local server stores of finished vectors
)

// Make estimates the backfill of one pipeline.
func Make(ctx context.Context, o Options) (Estimate, error) {
	e := Estimate{Pipeline: o.Spec.Name}
	var texts []string
	var longer []float64 // total length of each text divided by the part that was read
	var stored pipeline.Stored
	err := database.RetryReadOnly(ctx, o.DB, func(tx pgx.Tx) error {
		f, err := resolve.Inspect(ctx, tx, o.Spec, catalog.Vectors{
			Dims: o.About.Dims, Sparse: o.About.Sparse, Promised: "public", // a set-up installs a missing pgvector
		}, nil)
		if err != nil {
			return err
		}
		p := &f.Pipeline
		stored = p.Stored
		if e.Rows, err = countRows(ctx, tx, p); err != nil {
			return err
		}
		texts, longer, err = e.sample(ctx, tx, p)
		return err
	})
	if err == nil {
		err = e.reckon(ctx, o, stored, texts, longer)
	}
	return e, wrap.Errorf(err, "estimate pipeline %q", o.Spec.Name)
}

// pagesOf returns the number of pages of a table.
func pagesOf(ctx context.Context, tx pgx.Tx, oid uint32) (pages int64, err error) {
	err = tx.QueryRow(ctx, "SELECT coalesce(sum(pg_relation_size(relid)), 0) / current_setting('block_size')::int8 "+
		"FROM (SELECT relid FROM pg_partition_tree($1::oid) UNION SELECT $1::oid) AS r", oid).Scan(&pages)
	return pages, err
}

// Texts returns the first part of the texts of some rows, spread over the table.
func Texts(ctx context.Context, db database.Beginner, p *pipeline.Pipeline) (texts []string, err error) {
	err = database.RetryReadOnly(ctx, db, func(tx pgx.Tx) (err error) {
		e := Estimate{Pipeline: p.Name}
		if e.Rows, err = countRows(ctx, tx, p); err != nil {
			return err
		}
		texts, _, err = e.sample(ctx, tx, p)
		return err
	})
	return texts, wrap.Errorf(err, "read texts of pipeline %q", p.Name)
}

// Due is what remains to embed of a stored pipeline.
type Due struct {
	Rows, Texts int64     // of the table, and the texts among them to embed
	Sample      []string  // the first part of some texts
	Longer      []float64 // their total length divided by that part
	Stored      pipeline.Stored
}

// Rest estimates the remaining work of a pipeline.
func Rest(ctx context.Context, o Options, due Due) (Estimate, error) {
	e := Estimate{Pipeline: o.Spec.Name, Rows: due.Rows, Texts: due.Texts, Sampled: len(due.Sample)}
	err := e.reckon(ctx, o, due.Stored, due.Sample, due.Longer)
	return e, wrap.Errorf(err, "estimate pipeline %q", o.Spec.Name)
}

// reckon computes tokens, price or time, and disk space from a sample of texts. longer has the total length of each
// divided by the part in texts.
func (e *Estimate) reckon(ctx context.Context, o Options, stored pipeline.Stored, texts []string, longer []float64,
) error {
	e.MaxTokens = o.About.MaxTokens
	c, err := e.count(ctx, o, texts, longer)
	if err != nil {
		return err
	}
	n := float64(len(texts))
	if n > 0 {
		e.Cut = int64(float64(c.cut) / n * float64(e.Texts))
		e.Tokens = int64(c.tokens / n * float64(e.Texts))
	}
	e.Price, e.Currency = o.Spec.Batch.PriceOf(o.Price, e.Texts).Of(e.Tokens), o.Price.Currency
	if e.Price == nil && n > 0 {
		if err := e.measure(ctx, o.By, texts, c.called); err != nil {
			return err
		}
	}
	vectors, text := 1.0, 0.0 // vectors per text, and stored bytes of text per vector
	if c.chunks > 0 {
		vectors, text = c.chunks/n, c.bytes/c.chunks
	}
	e.DiskBytes = int64(float64(e.Texts) * (ledgerBytes + vectors*diskBytes(o.Spec, vectorBytes(stored, o.About), text)))
	return nil
}

// countRows counts small tables completely, and extrapolates large ones from some pages.
func countRows(ctx context.Context, tx pgx.Tx, p *pipeline.Pipeline) (rows int64, err error) {
	err = tx.QueryRow(ctx, "SELECT count(*) FROM (SELECT FROM "+p.Rows()+" LIMIT $1) AS r", countedRows).Scan(&rows)
	if err != nil || rows < countedRows {
		return rows, err
	}
	drawn, _, err := Drawn(ctx, tx, p.Rows(), p.OID)
	return max(rows, drawn), err
}

// Drawn counts the rows of some pages of a table, always the same ones. It returns the extrapolated number of rows, and
// the percentage of pages that it read. The server's statistics may be stale or missing, and without them its estimate
// assumes rows of a default width.
func Drawn(ctx context.Context, tx pgx.Tx, table string, oid uint32) (rows int64, share float64, err error) {
	const whole, most = 100, 1000 // percent, pages
	pages, err := pagesOf(ctx, tx, oid)
	if err != nil || pages == 0 {
		return 0, whole, err
	}
	share = min(whole, whole*most/float64(pages))
	err = tx.QueryRow(ctx, "SELECT count(*) FROM "+table+" AS r TABLESAMPLE SYSTEM ($1) REPEATABLE (1)", share).Scan(&rows)
	return int64(float64(rows) * whole / share), share, err
}

// sample reads some rows, spread over the table. It returns the first part of their texts, and their total length
// divided by that part.
func (e *Estimate) sample(ctx context.Context, tx pgx.Tx, p *pipeline.Pipeline) (texts []string,
	longer []float64, err error,
) {
	for _, more := range []float64{1, 8} { // the drawn pages may have no rows
		if texts, longer, err = e.draw(ctx, tx, p, more*SampleRows); err != nil || e.Sampled > 0 || e.Rows == 0 {
			return texts, longer, err
		}
	}
	return texts, longer, nil
}

// draw is one try of sample, for an expected number of rows. The limit is far more than chance gives: if it were
// reached, the end of the table would be left out.
func (e *Estimate) draw(ctx context.Context, tx pgx.Tx, p *pipeline.Pipeline, want float64) (texts []string,
	longer []float64, err error,
) {
	share, method, skipped := 100.0, "BERNOULLI", 0
	if e.Rows >= countedRows { // by pages, so that only these are read; of each page only some rows
		pages, err := pagesOf(ctx, tx, p.OID)
		if err != nil {
			return nil, nil, err
		}
		const most = 32
		for method = "SYSTEM"; 2*(skipped+1) <= most && int64(2*(skipped+1))*pages <= e.Rows; {
			skipped = 2*skipped + 1
		}
	}
	if want *= float64(skipped + 1); float64(e.Rows) > want {
		share = 100 * want / float64(e.Rows)
	}
	rows, err := tx.Query(ctx, "SELECT t.wanted, octet_length(t.content), left(t.content, $1) FROM (SELECT "+
		p.FilterExpression()+" AS wanted, "+p.TextExpression()+" AS content FROM "+p.Rows()+" AS r TABLESAMPLE "+method+
		" ($2::real) WHERE hashtid(r.ctid) & $4::integer = 0 LIMIT $3) AS t", SampleBytes, share, 2*SampleRows, skipped)
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var wanted bool
		var size *int64
		var text *string
		if err := rows.Scan(&wanted, &size, &text); err != nil {
			return nil, nil, err
		}
		e.Sampled++
		if wanted && text != nil && strings.TrimSpace(*text) != "" {
			texts = append(texts, *text)
			longer = append(longer, float64(*size)/float64(len(*text)))
		}
	}
	if e.Sampled > 0 {
		e.Texts = int64(float64(len(texts)) / float64(e.Sampled) * float64(e.Rows))
	}
	return texts, longer, rows.Err()
}

// counted is the result of count.
type counted struct {
	tokens float64   // that will be embedded
	called []float64 // tokens per text that the model sees when measure sends it
	cut    int       // texts that exceed the model's limit
	// with chunking: their number, and the bytes of text stored with them
	chunks, bytes float64
}

// count counts tokens and chunks of a sample.
func (e *Estimate) count(ctx context.Context, o Options, texts []string, longer []float64) (c counted, err error) {
	const bytesPerToken = 4
	if len(texts) == 0 {
		return c, nil
	}
	found, err := o.By.Tokenize(ctx, texts)
	if errors.Is(err, embed.ErrNoTokens) {
		e.TokensGuessed = true
	} else if err != nil {
		return c, err
	}
	cutting := o.Spec.Chunking.Settings().Within(o.About.MaxTokens, found.Around)
	for i, text := range texts {
		n := float64(len(text)/bytesPerToken + 1)
		if !e.TokensGuessed {
			n = float64(len(found.Ends[i]))
		}
		seen := n + float64(found.Around)
		n = n*longer[i] + float64(found.Around)
		if most := float64(o.About.MaxTokens); most > 0 {
			seen = min(seen, most)
			if n > most && !o.Spec.Chunking.On() { // the rest is not embedded, and costs nothing
				c.cut, n = c.cut+1, most
			}
		}
		c.tokens, c.called = c.tokens+n, append(c.called, seen)
		if !o.Spec.Chunking.On() {
			continue
		}
		whole := chunk.Text{Text: text}
		if e.TokensGuessed {
			whole.Ends = chunk.Estimate(text)
		} else {
			whole.Ends = found.Ends[i]
		}
		pieces, _ := chunk.Try(cutting, whole, chunk.Text{}) // texts that cannot be chunked get no vector later, either
		for _, piece := range pieces {
			if c.chunks += longer[i]; !o.Spec.Chunking.NoText {
				c.bytes += longer[i] * float64(len(piece.Of(text)))
			}
		}
	}
	return c, nil
}

// measure embeds a few texts, after one to warm up, and derives the time per token.
func (e *Estimate) measure(ctx context.Context, by embed.Embedder, texts []string, called []float64) error {
	texts = texts[:min(len(texts), timedTexts)]
	if _, err := by.Embed(ctx, embed.Document, texts[:1]); err != nil {
		return err
	}
	began := time.Now()
	if _, err := by.Embed(ctx, embed.Document, texts); err != nil {
		return err
	}
	took, tokens := time.Since(began).Seconds(), 0.0
	for _, n := range called[:len(texts)] {
		tokens += n
	}
	seconds := took/max(1, tokens)*float64(e.Tokens) + float64(e.Texts)/writtenRows
	e.Seconds = &seconds
	return nil
}
