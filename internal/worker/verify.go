package worker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// Report is what a verification found. Rows with an open task count like any other: whether that is bad is for the
// caller to say.
type Report struct {
	Rows     int64    `json:"rows"`     // of the source table
	Wanted   int64    `json:"wanted"`   // of those: with a text, let through by the filter
	Covered  int64    `json:"covered"`  // of those: with a vector of their text as it is now
	Missing  int64    `json:"missing"`  // wanted, but without a vector
	Stale    int64    `json:"stale"`    // with a vector of another text, or one we did not write
	Orphans  int64    `json:"orphans"`  // vectors without a row, or of a row without text
	Refused  int64    `json:"refused"`  // rows whose text or filter fails: nobody can say what they want
	Sampled  int64    `json:"sampled"`  // embedded again
	Differ   int64    `json:"differ"`   // of those: not the same vector
	Examples []string `json:"examples"` // keys of the first findings, each with what is wrong
}

// OK reports whether nothing is missing, stale, orphaned, different or impossible to judge.
func (r Report) OK() bool { return r.Missing+r.Stale+r.Orphans+r.Refused+r.Differ == 0 }

const maxExamples = 10

func (r *Report) example(key, what string) {
	if len(r.Examples) < maxExamples {
		r.Examples = append(r.Examples, fmt.Sprintf("%s: %s", key, what))
	}
}

// sameVector is the likeness (embed.Description) from which on two vectors of one text count as the same: rounding
// moves the last digits.
const sameVector = 0.9999

// bitDoubt is how small a number may be, beside the length of its vector, for its bit not to count.
const bitDoubt = 1e-5

// Verify recomputes the text and its hash for every row and compares them with what is stored; with deep > 0 it also
// embeds that many rows, drawn at random, again. It changes nothing.
func (w *Worker) Verify(ctx context.Context, deep int) (Report, error) {
	var (
		report Report
		sample reservoir
		after  *string
	)
	sample.limit = deep
	p := newPages(w)
	for {
		keys, _, err := verifying(ctx, p, w.sql.rows, after)
		if err != nil {
			return report, w.unverified(err)
		}
		if len(keys) == 0 {
			break
		}
		after = &keys[len(keys)-1]
		var found []row
		err = database.UntilUnlocked(ctx, func() error {
			some := report // what is counted before a lock is met is counted again
			found = found[:0]
			err := p.read(ctx, keys, func(rows []row) { found = append(found, rows...) },
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
				sample.offer(found[i].key)
			}
		}
	}
	if err := w.countOrphans(ctx, p, &report); err != nil {
		return report, w.unverified(err)
	}
	embedSample := w.embedSample
	if w.o.Pipeline.Chunked {
		embedSample = w.embedChunkSample
	}
	if err := embedSample(ctx, &report, sample.keys); err != nil {
		return report, w.unverified(err)
	}
	return report, nil
}

// verifying is pages.keys for somebody who waits for locks.
func verifying(ctx context.Context, p *pages, s pageStatements, after *string) (keys []string, answers []bool,
	err error,
) {
	err = database.UntilUnlocked(ctx, func() (err error) { keys, answers, err = p.keys(ctx, s, after); return err })
	return keys, answers, err
}

func (w *Worker) unverified(err error) error {
	return fmt.Errorf("verify %s: %w", w.o.Pipeline.Source(), err)
}

// refuse counts a row that cannot be read. What the server says of it may hold its values.
func (r *Report) refuse(key string, err error) {
	r.Refused++
	r.example(key, "its text or filter fails: "+sqlState(err))
}

// found notes what another look at a row would mend.
func (w *Worker) found(report *Report, key, what string) {
	report.example(key, what)
	if w.o.Found != nil {
		w.o.Found(key, false)
	}
}

// differs notes what only another vector would mend.
func (w *Worker) differs(report *Report, key, what string) {
	report.example(key, what)
	if w.o.Found != nil {
		w.o.Found(key, true)
	}
}

// verifyRow judges one row and reports whether it has a vector that may be sampled.
func (w *Worker) verifyRow(report *Report, r *row) bool {
	p := w.o.Pipeline
	if !r.found {
		return false // gone since its key was read
	}
	report.Rows++
	tokenless := r.wanted() && !r.stored && r.ledger && r.ledgerText == nil && r.ledgerGeneration == p.Generation &&
		r.unchanged(p)
	switch {
	case !r.wanted() || tokenless:
		if r.stored {
			report.Orphans++
			w.found(report, r.key, "a vector though there is no text")
		}
		return false
	case !r.stored:
		report.Wanted++
		report.Missing++
		if n := len(r.key); n > pipeline.MaxKey {
			const enough = 40
			report.example(strings.ToValidUTF8(r.key[:enough], "")+"...",
				fmt.Sprintf("no vector: its key has %d bytes, and %d is the most", n, pipeline.MaxKey))
			return false
		}
		w.found(report, r.key, "no vector")
		return false
	}
	report.Wanted++
	switch {
	case !r.intact(p):
		report.Stale++
		w.found(report, r.key, "a vector we did not write, or one of another generation")
	case string(r.ledgerText) != string(r.textHash[:]):
		report.Stale++
		w.found(report, r.key, "a vector of another text")
	default:
		report.Covered++
	}
	return true
}

// countOrphans finds rows of an embedding table whose source row is gone. A column's vector goes with its row.
func (w *Worker) countOrphans(ctx context.Context, p *pages, report *Report) error {
	if w.sql.vectors.first == "" {
		return nil
	}
	var after *string
	for {
		keys, gone, err := verifying(ctx, p, w.sql.vectors, after)
		if err != nil || len(keys) == 0 {
			return err
		}
		after = &keys[len(keys)-1]
		for i, key := range keys {
			if gone[i] {
				report.Orphans++
				w.found(report, key, "a vector though the row is gone")
			}
		}
	}
}

func (w *Worker) embedSample(ctx context.Context, report *Report, keys []string) error {
	for len(keys) > 0 {
		n := min(len(keys), w.o.BatchRows)
		var rows []row
		var vectors map[int][]float32
		err := database.UntilUnlocked(ctx, func() (err error) {
			if rows, err = w.read(ctx, w.o.DB, keys[:n], largeTexts); err == nil {
				vectors, err = w.storedVectors(ctx, w.o.Pipeline, w.sql.reuse, keys[:n])
			}
			return err
		})
		someRow := w.ofSomeRow(ctx, err)
		if someRow && n > 1 { // one of them fails since it was drawn
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
		// Texts come in the order of their keys until there is no more room; one alone always has it.
		if left := slices.IndexFunc(rows, func(r row) bool { return r.leftOut() }); left > 0 {
			n, rows = left, rows[:left]
		}
		texts := make([]string, len(rows))
		for i := range rows {
			texts[i] = rows[i].text
		}
		results, err := w.o.Service.Anew(ctx, texts)
		if err != nil {
			return err
		}
		for i, result := range results {
			stored, ok := vectors[i]
			if !ok || !rows[i].wanted() {
				continue
			}
			report.Sampled++
			if result.Vector == nil || !w.same(stored, result.Vector) {
				report.Differ++
				w.differs(report, rows[i].key, "another vector than the model gives now")
			}
		}
		keys = keys[n:]
	}
	return nil
}

// reservoir draws a sample of a stream of keys, each with the same chance.
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

// storedVectors returns the vectors that rows of a pipeline have now, by the place of their key. The statement is its
// reuse.
func (w *Worker) storedVectors(ctx context.Context, p *pipeline.Pipeline, sql string, keys []string) (map[int][]float32,
	error,
) {
	args, err := keyArrays(p, keys)
	if err != nil {
		return nil, err
	}
	formats := pgx.QueryResultFormats{pgx.TextFormatCode, pgx.BinaryFormatCode}
	rows, err := w.o.DB.Query(ctx, sql, append([]any{formats}, args...)...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	vectors := map[int][]float32{}
	for rows.Next() {
		raw := rows.RawValues()
		place, err := strconv.Atoi(string(raw[0]))
		if err != nil || place < 1 || place > len(keys) {
			return nil, fmt.Errorf("place %q of %d", raw[0], len(keys))
		}
		if raw[1] == nil {
			continue
		}
		if vectors[place-1], err = p.Stored.ParseBinary(raw[1]); err != nil {
			return nil, err
		}
	}
	return vectors, rows.Err()
}

// same reports whether a stored vector is what the model gives, but for rounding.
func (w *Worker) same(stored, given []float32) bool {
	switch w.o.Pipeline.Stored {
	case pipeline.StoredBit:
	case pipeline.StoredSparse:
		return embed.SparseLikeness(stored, given) >= sameVector
	default:
		return embed.Cosine(stored, given) >= sameVector
	}
	// Where a number is next to nothing, rounding decides about its bit.
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
