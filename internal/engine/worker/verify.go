package worker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// sameVector is the minimum similarity (embed.Description) for two vectors of a text to count as equal despite
// rounding.
const sameVector = 0.9999

// bitDoubt is the absolute value, relative to the vector's length, below which a number's bit is not compared.
const bitDoubt = 1e-5

// Verify recomputes the text and its hash for every row and compares them with what is stored. With deep > 0 it also
// embeds a random sample of that many rows again. It changes nothing.
func (w *Worker) Verify(ctx context.Context, deep int) (Report, error) {
	var (
		report Report
		sample reservoir
		after  *string
	)
	sample.limit = deep
	p := w.pages()
	every := func(ctx context.Context, after *string) ([]string, []bool, error) { return p.Rows(ctx, "", after) }
	for {
		keys, _, err := verifying(ctx, every, after)
		if err != nil {
			return report, w.unverified(err)
		}
		if len(keys) == 0 {
			break
		}
		after = &keys[len(keys)-1]
		var found []rows.Row
		err = database.UntilUnlocked(ctx, func() error {
			some := report // counts of a try that meets a lock are dropped
			found = found[:0]
			err := p.Read(ctx, keys, func(page []rows.Row) { found = append(found, page...) },
				func(key string, err error) { some.Rows++; some.refuse(key, err) })
			if err == nil {
				report = some
			}
			return err
		})
		if err != nil {
			return report, w.unverified(err)
		}
		for i := range found {
			if w.verifyRow(&report, &found[i]) {
				sample.offer(found[i].Key)
			}
		}
	}
	if err := w.countOrphans(ctx, p, &report); err != nil {
		return report, w.unverified(err)
	}
	again := w.embedSample
	if w.chunks != nil {
		again = w.embedChunkSample
	}
	if err := again(ctx, &report, sample.keys); err != nil {
		return report, w.unverified(err)
	}
	return report, nil
}

// verifying reads a page, waiting for locks.
func verifying(ctx context.Context, page func(context.Context, *string) ([]string, []bool, error), after *string,
) (keys []string, answers []bool, err error) {
	err = database.UntilUnlocked(ctx, func() (err error) { keys, answers, err = page(ctx, after); return err })
	return keys, answers, err
}

func (w *Worker) unverified(err error) error {
	return fmt.Errorf("verify %s: %w", w.o.Pipeline.Source(), err)
}

// refuse counts an unreadable row. The server's message may contain row data, so only its SQLSTATE is kept.
func (r *Report) refuse(key string, err error) {
	r.Refused++
	r.example(key, "its text or filter fails: "+database.SQLState(err))
}

// found records a problem of a row, which needs processing again or, with newVector, a new vector.
func (w *Worker) found(report *Report, key, what string, newVector bool) {
	report.example(key, what)
	if w.o.Found != nil {
		w.o.Found(key, newVector)
	}
}

// verifyRow checks one row and reports whether its vector may be sampled.
func (w *Worker) verifyRow(report *Report, r *rows.Row) bool {
	if !r.Found {
		return false // removed since its key was read
	}
	report.Rows++
	tokenless := r.Wanted() && !r.Stored && r.Tokenless() && w.table.Unchanged(r)
	if r.Wanted() && w.table.Skipped(r) {
		report.Skipped++
		return false
	}
	switch {
	case !r.Wanted() || tokenless:
		if r.Stored {
			report.Orphans++
			w.found(report, r.Key, "a vector though there is no text", false)
		}
		return false
	case !r.Stored:
		report.Wanted++
		report.Missing++
		if n := len(r.Key); n > pipeline.MaxKey {
			const enough = 40
			report.example(strings.ToValidUTF8(r.Key[:enough], "")+"...",
				fmt.Sprintf("no vector: its key has %d bytes, and %d is the most", n, pipeline.MaxKey))
			return false
		}
		w.found(report, r.Key, "no vector", false)
		return false
	}
	report.Wanted++
	switch {
	case !w.table.Intact(r):
		report.Stale++
		w.found(report, r.Key, "a vector we did not write, or one of another generation", false)
	case r.Ignored():
		report.Covered++
		report.Ignored++
		return false // its vector differs from the model's for the current text
	case !r.ExactText():
		report.Stale++
		w.found(report, r.Key, "a vector of another text", false)
	default:
		report.Covered++
	}
	return true
}

// countOrphans counts rows of an embedding table whose source row is missing. A column's vector goes with its row.
func (w *Worker) countOrphans(ctx context.Context, p pages, report *Report) error {
	var after *string
	for {
		keys, gone, err := verifying(ctx, p.Vectors, after)
		if err != nil || len(keys) == 0 {
			return err
		}
		after = &keys[len(keys)-1]
		for i, key := range keys {
			if gone[i] {
				report.Orphans++
				w.found(report, key, "a vector though the row is gone", false)
			}
		}
	}
}

func (w *Worker) embedSample(ctx context.Context, report *Report, keys []string) error {
	size := w.o.BatchRows // of the next page; the server reads the texts of all its rows, even those that do not fit
	for len(keys) > 0 {
		n := min(len(keys), size)
		var found []rows.Row
		var vectors map[int][]float32
		err := database.UntilUnlocked(ctx, func() (err error) {
			if found, err = w.table.Read(ctx, keys[:n], largeTexts); err == nil {
				vectors, err = w.table.Vectors(ctx, keys[:n])
			}
			return err
		})
		someRow := w.table.OfSomeRow(ctx, err)
		if someRow && n > 1 { // one of them began to fail after it was drawn
			return errors.Join(w.embedSample(ctx, report, keys[:n/2]), w.embedSample(ctx, report, keys[n/2:]))
		}
		if someRow {
			report.refuse(keys[0], err)
			keys = keys[1:]
			continue
		}
		if err != nil {
			return err
		}
		// Texts are returned in key order until the limit; a single one is always returned.
		if left := slices.IndexFunc(found, func(r rows.Row) bool { return r.LeftOut() }); left > 0 {
			n, found = left, found[:left]
		}
		size = min(2*n, w.o.BatchRows)
		texts := lists.Map(found, func(v rows.Row) string { return v.Text })
		results, err := w.o.Service.Anew(ctx, texts)
		if err != nil {
			return err
		}
		for i, result := range results {
			stored, ok := vectors[i]
			if !ok || !found[i].Wanted() || found[i].Ignored() || unanswered(&result) { // edited meanwhile
				continue
			}
			report.Sampled++
			if result.Vector == nil || !w.same(stored, result.Vector) {
				report.Differ++
				w.found(report, found[i].Key, "another vector than the model gives now", true)
			}
		}
		keys = keys[n:]
	}
	return nil
}

// unanswered reports whether the embedder may answer the same text later: that says nothing about a stored vector.
func unanswered(r *embed.Result) bool {
	class, _ := embed.Classify(r.Err)
	return r.Err != nil && class != embed.Data
}

// reservoir draws a uniform sample from a stream of keys.
type reservoir struct {
	limit, seen int
	keys        []string
}

func (r *reservoir) offer(key string) {
	r.seen++
	if len(r.keys) < r.limit {
		r.keys = append(r.keys, key)
	} else if i := rand.IntN(r.seen); i < r.limit { //nolint:gosec // a sample needs no secrecy
		r.keys[i] = key
	}
}

// same reports whether a stored vector equals the model's, apart from rounding.
func (w *Worker) same(stored, given []float32) bool {
	switch w.o.Pipeline.Stored {
	case pipeline.StoredBit:
	case pipeline.StoredSparse:
		return embed.SparseLikeness(stored, given) >= sameVector
	default:
		return embed.Cosine(stored, given) >= sameVector
	}
	// For a number close to zero, rounding decides its bit.
	if len(stored) != len(given) {
		return false
	}
	var length float64
	for _, x := range given {
		length += float64(x) * float64(x)
	}
	for i, x := range given {
		if stored[i] == 1 != (x > 0) && math.Abs(float64(x)) > bitDoubt*math.Sqrt(length) {
			return false
		}
	}
	return true
}

// Due is what a scan of all rows would embed.
type Due struct {
	Report

	Texts  []string  // prefixes of a random sample of the texts
	Longer []float64 // ratio of each text's length to its prefix's
}

// FindDue compares every row as Verify does, and returns prefixes, up to bytes long, of up to most texts to embed.
func FindDue(ctx context.Context, o Options, most, bytes int) (Due, error) {
	sample := reservoir{limit: most}
	o.Found = func(key string, _ bool) { sample.offer(key) }
	w := New(o)
	var due Due
	var err error
	if due.Report, err = w.Verify(ctx, 0); err != nil {
		return due, err
	}
	for _, key := range sample.keys { // one at a time: all texts together may be large
		var found []rows.Row
		err := database.UntilUnlocked(ctx, func() (err error) {
			found, err = w.table.Read(ctx, []string{key}, maxChunked)
			return err
		})
		if w.table.OfSomeRow(ctx, err) { // began to fail after it was drawn
			continue
		}
		if err != nil {
			return due, w.unverified(err)
		}
		r := &found[0]
		if !r.Wanted() || r.LeftOut() { // only its vector is left over, or its text is too large
			continue
		}
		text := r.Text
		if len(text) > bytes {
			text = strings.ToValidUTF8(text[:bytes], "")
		}
		due.Texts = append(due.Texts, text)
		due.Longer = append(due.Longer, float64(len(r.Text))/float64(len(text)))
	}
	return due, nil
}

// Report is the result of a verification. Rows with an open task count like any other; the caller decides whether that
// matters.
type Report struct {
	Rows     int64    `json:"rows"`     // of the source table
	Wanted   int64    `json:"wanted"`   // of those: with a text, and accepted by the filter
	Covered  int64    `json:"covered"`  // of those: with a vector of their current text
	Ignored  int64    `json:"ignored"`  // of the covered: only ignored parts of the text changed
	Skipped  int64    `json:"skipped"`  // not wanted: the writer declared that the text needs no new vector
	Missing  int64    `json:"missing"`  // wanted, but without a vector
	Stale    int64    `json:"stale"`    // with a vector of another text, or one that we did not write
	Orphans  int64    `json:"orphans"`  // vectors without a row, or of a row without text
	Refused  int64    `json:"refused"`  // rows whose text or filter fails
	Sampled  int64    `json:"sampled"`  // embedded again
	Differ   int64    `json:"differ"`   // of those: with a different vector
	Examples []string `json:"examples"` // keys of the first findings, each with its problem
}

// OK reports whether nothing is missing, stale, orphaned, different or unreadable.
func (r Report) OK() bool { return r.Missing+r.Stale+r.Orphans+r.Refused+r.Differ == 0 }

const maxExamples = 10

func (r *Report) example(key, what string) {
	if len(r.Examples) < maxExamples {
		r.Examples = append(r.Examples, fmt.Sprintf("%s: %s", key, what))
	}
}
