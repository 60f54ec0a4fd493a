// Package search finds rows by meaning: those whose vectors are nearest to that of a text or of another row, alone or
// together with PostgreSQL's full text search. It runs read-only statements over the tables of a pipeline; all names
// come from the catalogue and all values are parameters, so that the caller can say what to look for and nothing
// else.
package search

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// MaxRows keeps a slip of the finger from asking for the whole table.
const MaxRows = 10000

// MaxReranked is how many candidates may be reranked: a model reads each of them with the text.
const MaxReranked = 1000

// Request is what to look for.
type Request struct {
	Vector   []float32 // rows near this one; of the pipeline's width, or pairs where it stores sparse vectors
	Text     string    // hybrid: rows that hold its words, too
	Hybrid   bool      // both, by reciprocal rank fusion
	Language string    // text search configuration of a hybrid search; "": the database's own
	Rows     int       // at most; 1 to MaxRows
	Offset   int       // rows before them that are left out; with Rows at most MaxRows
	Filter   Filters   // conditions on columns of the source table, all of which must hold
	Columns  []string  // of the source table that are returned beside the key
	// vectors farther away are not found; nil: any distance. A hybrid search still finds rows by their words
	MaxDistance *float64
	// so many candidates are looked for, to be put in the order of a reranker (Ranked); 0: none are
	Rerank    int
	FreshOnly bool    // only rows without a task, whose vectors are of their present texts
	Highlight bool    // with passages of the texts in which the words of Text are marked
	Access    *Access // what the caller may see; nil: whatever the connection may
}

// Check refuses what makes no sense for any pipeline.
func (r *Request) Check() error {
	switch {
	case r.Rows < 1 || r.Rows > MaxRows:
		return bad("expected a number of rows from 1 to %d, not %d", MaxRows, r.Rows)
	case r.Offset < 0 || r.Offset+r.Rows > MaxRows:
		return bad("offset: expected a number from 0 to %d, since a search finds %d rows at most", MaxRows-r.Rows, MaxRows)
	case r.MaxDistance != nil && (math.IsNaN(*r.MaxDistance) || math.IsInf(*r.MaxDistance, 0)):
		return bad("max_distance: expected a number")
	case r.Rerank != 0 && (r.Rerank < r.Offset+r.Rows || r.Rerank > MaxReranked):
		return bad("rerank: expected a number of candidates from %d (the rows that are wanted) to %d, not %d", r.Offset+r.Rows,
			MaxReranked, r.Rerank)
	case len(r.Columns) > MaxConditions:
		return bad("columns: %d are possible, not %d", MaxConditions, len(r.Columns))
	}
	return nil
}

// wanted is how many rows the database is to find.
func (r *Request) wanted() int { return max(r.Offset+r.Rows, r.Rerank) }

// reranked is how many characters of each text are scored: more than most models read, and together no more than fits
// into memory many times.
func (r *Request) reranked() int {
	const most, together = 16384, 4 << 20
	return min(most, together/max(r.Rerank, 1))
}

// page returns what is shown of the rows that were found.
func (r *Request) page(hits []Hit) []Hit {
	hits = hits[min(len(hits), r.Offset):]
	return hits[:min(len(hits), r.Rows)]
}

// Hit is a row that was found.
type Hit struct {
	Pipeline string          `json:"pipeline,omitempty"` // that has found it, of several that were asked
	Key      string          `json:"key"`                // as the program writes keys everywhere
	Columns  json.RawMessage `json:"columns"`            // the key's columns with their values, and those that were asked for
	// cosine distance, 0 to 2, number of differing bits, or negative inner product; nil: not among the nearest
	Distance *float64 `json:"distance,omitempty"`
	Rerank   *float32 `json:"rerank_score,omitempty"` // of a reranker: larger is better
	Score    *float64 `json:"score,omitempty"`        // of joined rankings: larger is better
	// its first characters; of a chunked pipeline the whole chunk, if its text is stored
	Text string `json:"text"`
	// HTML: passages of the text, escaped, with the words of the question in <mark>; "": they are not wanted
	Highlight string `json:"highlight,omitempty"`
	Chunk     *Chunk `json:"chunk,omitempty"`   // the chunk that is nearest; nil: the text is not cut, or none is near
	Problem   string `json:"problem,omitempty"` // why there is no text: the pipeline's expression fails on this row
}

// Line is the beginning of the row's text on one line, or the passages with its words, or why there is no text.
func (h *Hit) Line() string {
	if h.Problem != "" {
		return "! " + h.Problem
	}
	if h.Highlight != "" {
		return strings.Join(strings.Fields(html.UnescapeString(asterisks.Replace(h.Highlight))), " ")
	}
	return preview(h.Text)
}

// asterisks mark words for people at a terminal.
var asterisks = strings.NewReplacer("<mark>", "*", "</mark>", "*")

// preview is the beginning of a text on one line.
func preview(s string) string {
	const most = 80
	text := []rune(s)
	return strings.Join(strings.Fields(string(text[:min(len(text), most)])), " ")
}

// Value returns the value of a column that was asked for, on one line.
func (h *Hit) Value(column string) string {
	var values map[string]json.RawMessage
	if json.Unmarshal(h.Columns, &values) != nil {
		return ""
	}
	value := string(values[column])
	var text string
	switch {
	case value == "null":
		return ""
	case json.Unmarshal(values[column], &text) == nil:
		value = text
	}
	return preview(value)
}

// Chunk is a piece of a row's text.
type Chunk struct {
	Number  int    `json:"number"`     // from 0
	Start   int    `json:"start_byte"` // of the row's text in UTF-8
	End     int    `json:"end_byte"`
	Context string `json:"context"` // title and headings that were embedded with it; "": none
}

// DB is what a search needs of a database.
type DB interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// BadRequestError is a request that cannot be answered as it is. Its text is for the one who made it.
type BadRequestError struct {
	Problem string
	Hint    []string // ways out
}

func (e *BadRequestError) Error() string { return e.Problem }

// Hints returns the ways out.
func (e *BadRequestError) Hints() []string { return e.Hint }

// UnavailableError says why something that exists cannot be used now. Its text is for the caller.
type UnavailableError struct{ Problem string }

func (e *UnavailableError) Error() string { return e.Problem }

// Limit is how long the database may work on a search, unless something else is configured.
const Limit = 10 * time.Second

// tries is how often a search begins again that found what it reads locked for as long as a session waits, or met what
// was just dropped: a switch of the model holds its tables for less than that on a calm machine, and for more on a busy
// one.
const tries = 4

// Within gives a search a time limit: a database that hangs holds nobody who asks.
func Within[T any](ctx context.Context, limit time.Duration, look func(ctx context.Context) (T, error)) (T, error) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	found, err := look(limited)
	for i := 1; i < tries && (database.HasCode(err, pgerrcode.LockNotAvailable) || database.Vanished(err)); i++ {
		found, err = look(limited)
	}
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		err = &UnavailableError{Problem: fmt.Sprintf("the database did not answer the search within %s: retry later; "+
			"if searches take that long there, an index makes them faster", limit)}
	}
	return found, err
}

func bad(format string, args ...any) error {
	return &BadRequestError{Problem: fmt.Sprintf(format, args...)}
}

// ErrNoRow means that the row to compare with does not exist or has no vector.
var ErrNoRow = errors.New("there is no such row, or it has no vector")

// Find returns the rows that fit best, best first; where they are to be reranked all candidates, for Ranked. It returns
// *BadRequestError for a request that makes no sense for the pipeline, and *RowSecurityError.
//
// No row can break the search of others (P5): where the pipeline's text or filter fails on a row, the row is shown
// without its text, or is left out if it is the filter that fails.
func Find(ctx context.Context, db DB, p *pipeline.Pipeline, r Request) ([]Hit, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	return looking(ctx, db, p, &r, func(tx pgx.Tx, careful bool) ([]Hit, error) {
		hits, err := find(ctx, tx, p, r, r.wanted(), careful)
		if r.Rerank > 0 {
			return hits, err
		}
		return r.page(hits), err
	})
}

// Similar returns the rows most similar to the one of a key, without that row itself. It returns ErrNoRow if there is
// no such row or it has no vector, and otherwise what Find does.
func Similar(ctx context.Context, db DB, p *pipeline.Pipeline, key string, r Request) ([]Hit, error) {
	values, err := pipeline.SplitKey(key, len(p.Key))
	if err != nil {
		return nil, bad("%q is no key of %s: it has %d columns", key, p.Source(), len(p.Key))
	}
	if r.Hybrid {
		return nil, bad("similar rows are found by their vectors alone")
	}
	if r.Rerank != 0 {
		return nil, bad("rerank: a reranker compares rows with a text, and none is given here")
	}
	if err := r.Check(); err != nil {
		return nil, err
	}
	return looking(ctx, db, p, &r, func(tx pgx.Tx, careful bool) ([]Hit, error) {
		if err := fitsKey(ctx, tx, p, values); err != nil {
			return nil, err
		}
		actual, stored, err := storedVector(ctx, tx, p, values, r.Access)
		if err != nil {
			return nil, err
		}
		near := r
		near.Vector = p.Stored.Given(stored)
		hits, err := find(ctx, tx, p, near, r.Offset+r.Rows+1, careful) // the row itself is nearest
		if err != nil {
			return nil, err
		}
		return r.page(slices.DeleteFunc(hits, func(h Hit) bool { return h.Key == actual })), nil
	})
}

// Visible returns ErrNoRow if an access is for some rows only and the one of a key is not among them, *BadRequestError
// if it is no key, and *RowSecurityError.
func Visible(ctx context.Context, db DB, p *pipeline.Pipeline, key string, access *Access) error {
	values, err := pipeline.SplitKey(key, len(p.Key))
	if err != nil {
		return bad("%q is no key of %s: it has %d columns", key, p.Source(), len(p.Key))
	}
	return reading(ctx, db, p, access, func(tx pgx.Tx) error {
		if err := fitsKey(ctx, tx, p, values); err != nil || access == nil || len(access.Fixed) == 0 && access.Role == "" {
			return err
		}
		s := &statement{}
		params := s.keyOf(p, values)
		conditions, err := s.conditionsOf(ctx, tx, p, nil, access)
		if err != nil {
			return err
		}
		var there bool
		err = tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM "+source(p, "s")+" WHERE "+p.MatchKey("s", params)+
			and("s", conditions)+")", s.args...).Scan(&there)
		if err != nil {
			return fmt.Errorf("look for a row: %w", err)
		}
		if !there {
			return ErrNoRow
		}
		return nil
	})
}

// keyOf makes the values of a key parameters.
func (s *statement) keyOf(p *pipeline.Pipeline, values []string) (params []string) {
	for i, v := range values {
		s.args = append(s.args, v)
		params = append(params, p.Key[i].Typed(fmt.Sprintf("$%d", i+1)))
	}
	return params
}

// storedVector returns the vector of one row, and its key as the row prints it.
func storedVector(ctx context.Context, tx pgx.Tx, p *pipeline.Pipeline, values []string, access *Access) (key string,
	vector []float32, err error,
) {
	s := &statement{}
	params := s.keyOf(p, values)
	// What may not be seen may not be compared with.
	conditions, err := s.conditionsOf(ctx, tx, p, nil, access)
	if err != nil {
		return "", nil, err
	}
	formats := pgx.QueryResultFormats{pgx.TextFormatCode, pgx.BinaryFormatCode}
	rows, _ := tx.Query(ctx, vectorOf(p, params, conditions), append([]any{formats}, s.args...)...)
	vector, err = pgx.CollectOneRow(rows, func(row pgx.CollectableRow) ([]float32, error) {
		raw := row.RawValues()
		if raw[1] == nil {
			return nil, pgx.ErrNoRows
		}
		key = string(raw[0])
		return p.Stored.ParseBinary(raw[1])
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil, ErrNoRow
	}
	return key, vector, wrap.Errorf(err, "read the vector of a row")
}

// Explanation is how a search is done.
type Explanation struct {
	Statement string   `json:"statement"`
	Plan      []string `json:"plan"` // the server's
	// the statement that makes the index which the words of a hybrid search can use
	Index string `json:"index,omitempty"`
}

// Explain returns the statements that find the rows of a search and the plans that the server has for them.
func Explain(ctx context.Context, db DB, p *pipeline.Pipeline, r Request) (e Explanation, err error) {
	if err := r.Check(); err != nil {
		return e, err
	}
	err = reading(ctx, db, p, r.Access, func(tx pgx.Tx) error {
		s, err := prepare(ctx, tx, p, r, r.wanted())
		if err != nil {
			return err
		}
		e.Index = s.index
		statements := []string{s.near(false)}
		if r.Hybrid && s.lexemes != "" {
			statements = append(statements, s.wording(everywhere))
		}
		e.Statement = strings.Join(statements, ";\n\n")
		for i, sql := range statements {
			rows, _ := tx.Query(ctx, "EXPLAIN "+sql, s.argsOf(i > 0)...)
			plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				return fmt.Errorf("explain the search: %w", err)
			}
			for _, line := range plan {
				e.Plan = append(e.Plan, longVector.ReplaceAllString(line, "'...'"))
			}
		}
		return nil
	})
	return e, err
}

// longVector is the vector of the question in a plan: hundreds of numbers that nobody wants to read.
var longVector = regexp.MustCompile(`'[\[{]?[-+0-9.e:,]{100,}[\]}]?(/\d+)?'`)

func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
