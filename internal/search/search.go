// Package search finds rows by meaning: the rows whose vectors are nearest to that of a text or of another row,
// optionally combined with PostgreSQL's full text search. It runs read-only statements on the tables of a pipeline.
// Names come from the catalog and values are parameters, so a caller cannot inject SQL.
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

// MaxRows limits a search, so that a typing mistake does not request the whole table.
const MaxRows = 10000

// MaxReranked is the largest number of candidates to rerank. A model reads each of them together with the query.
const MaxReranked = 1000

// Request is a search request.
type Request struct {
	Vector   []float32 // the query vector, of the pipeline's width, or pairs if it stores sparse vectors
	Text     string    // the text whose words a hybrid search looks for
	Hybrid   bool      // search by vector and by words, joined by reciprocal rank fusion
	Language string    // text search configuration of a hybrid search; "": the default of the database
	Rows     int       // at most; 1 to MaxRows
	Offset   int       // rows to skip; Offset + Rows is at most MaxRows
	Filter   Filters   // conditions on columns of the source table, all of which must hold
	Columns  []string  // columns of the source table to return in addition to the key
	// vectors farther away are not returned; nil: no limit. A hybrid search still finds rows by their words
	MaxDistance *float64
	// number of candidates that a reranker sorts (Ranked); 0: no reranking
	Rerank    int
	FreshOnly bool    // only rows without a task: their vectors match their current text
	Highlight bool    // return passages of the texts in which the words of Text are marked
	Access    *Access // what the caller may see; nil: everything that the connection may see
}

// Check rejects a request that is invalid for every pipeline.
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
		return bad("columns: expected at most %d, not %d", MaxConditions, len(r.Columns))
	}
	return nil
}

// wanted returns how many rows the database must find.
func (r *Request) wanted() int { return max(r.Offset+r.Rows, r.Rerank) }

// reranked returns how many characters of each text are scored: more than most models read, while all texts together
// stay small in memory.
func (r *Request) reranked() int {
	const most, together = 16384, 4 << 20
	return min(most, together/max(r.Rerank, 1))
}

// page cuts the requested page out of the rows found.
func (r *Request) page(hits []Hit) []Hit {
	hits = hits[min(len(hits), r.Offset):]
	return hits[:min(len(hits), r.Rows)]
}

// Hit is a row found by a search.
type Hit struct {
	Pipeline string          `json:"pipeline,omitempty"` // the pipeline that found it, if several were searched
	Key      string          `json:"key"`                // in the form used for keys everywhere
	Columns  json.RawMessage `json:"columns"`            // the values of the key columns and of the requested columns
	// cosine distance (0 to 2), number of differing bits, or negative inner product; nil: not among the nearest
	Distance *float64 `json:"distance,omitempty"`
	Rerank   *float32 `json:"rerank_score,omitempty"` // score of the reranker: larger is better
	Score    *float64 `json:"score,omitempty"`        // score of the joined rankings: larger is better
	// the first characters of the text; for a chunked pipeline the whole chunk, if its text is stored
	Text string `json:"text"`
	// HTML: escaped passages of the text with the query's words in <mark>; "": not requested
	Highlight string `json:"highlight,omitempty"`
	Chunk     *Chunk `json:"chunk,omitempty"`   // the nearest chunk; nil: the text is not chunked, or no chunk is near
	Problem   string `json:"problem,omitempty"` // why there is no text: the pipeline's expression fails on this row
}

// Line returns one line for the row: its problem, or its highlighted passages, or the beginning of its text.
func (h *Hit) Line() string {
	if h.Problem != "" {
		return "! " + h.Problem
	}
	if h.Highlight != "" {
		return strings.Join(strings.Fields(html.UnescapeString(asterisks.Replace(h.Highlight))), " ")
	}
	return preview(h.Text)
}

// asterisks replaces the <mark> tags for output on a terminal.
var asterisks = strings.NewReplacer("<mark>", "*", "</mark>", "*")

// preview returns the beginning of a text on one line.
func preview(s string) string {
	text := []rune(s)
	return strings.Join(strings.Fields(string(text[:min(len(text), 80)])), " ")
}

// Value returns the value of a returned column on one line.
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
	Number  int    `json:"number"`     // counted from 0
	Start   int    `json:"start_byte"` // offset in the row's text in UTF-8
	End     int    `json:"end_byte"`
	Context string `json:"context"` // title and headings that were embedded with it; "": none
}

// DB is the part of a database that a search uses.
type DB interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// BadRequestError rejects a request that cannot be answered as it is. Its text is shown to the caller.
type BadRequestError struct {
	Problem string
	Hint    []string
}

func (e *BadRequestError) Error() string { return e.Problem }

// Hints implements the hints of an error.
func (e *BadRequestError) Hints() []string { return e.Hint }

// UnavailableError says why something that exists cannot be used now. Its text is shown to the caller.
type UnavailableError struct{ Problem string }

func (e *UnavailableError) Error() string { return e.Problem }

// Limit is the default time limit of a search in the database.
const Limit = 10 * time.Second

// tries is how often a search is tried if a lock timeout ends it or if a table that it reads was just dropped. A switch
// of the model causes both. It holds its locks for less than the lock timeout on a calm machine, and for longer on a
// busy one.
const tries = 4

// Within runs a search with a time limit and retries, so a database that hangs does not block the caller.
func Within[T any](ctx context.Context, limit time.Duration, look func(ctx context.Context) (T, error)) (T, error) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	found, err := look(limited)
	for i := 1; i < tries && (database.HasCode(err, pgerrcode.LockNotAvailable) || database.Vanished(err)); i++ {
		found, err = look(limited)
	}
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		err = &UnavailableError{Problem: fmt.Sprintf("the database did not answer the search within %s: retry later; "+
			"if searches often take that long, create an index", limit)}
	}
	return found, err
}

func bad(format string, args ...any) error {
	return &BadRequestError{Problem: fmt.Sprintf(format, args...)}
}

// ErrNoRow means that the row to compare with does not exist or has no vector.
var ErrNoRow = errors.New("there is no such row, or it has no vector")

// Find returns the best rows, best first. If they are to be reranked, it returns all candidates for Ranked. It returns
// *BadRequestError for a request that is invalid for the pipeline, and *RowSecurityError.
//
// A row cannot break the searches of others (P5). If the pipeline's text fails on a row, the row is returned without
// its text. If the filter fails on it, the row is left out.
func Find(ctx context.Context, db DB, p *pipeline.Pipeline, r Request) ([]Hit, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	return orCarefully(ctx, db, p, &r, func(tx pgx.Tx, careful bool) ([]Hit, error) {
		hits, err := find(ctx, tx, p, r, r.wanted(), careful)
		if r.Rerank > 0 {
			return hits, err
		}
		return r.page(hits), err
	})
}

// Similar returns the rows most similar to the row with the given key, without that row itself. It returns ErrNoRow if
// the row does not exist or has no vector, and otherwise the same errors as Find.
func Similar(ctx context.Context, db DB, p *pipeline.Pipeline, key string, r Request) ([]Hit, error) {
	values, err := pipeline.SplitKey(key, len(p.Key))
	if err != nil {
		return nil, bad("%q is not a key of %s, which has %d key columns", key, p.Source(), len(p.Key))
	}
	if r.Hybrid {
		return nil, bad("hybrid: similar rows are found by their vectors only")
	}
	if r.Rerank != 0 {
		return nil, bad("rerank: a reranker needs a text, and none is given")
	}
	if err := r.Check(); err != nil {
		return nil, err
	}
	return orCarefully(ctx, db, p, &r, func(tx pgx.Tx, careful bool) ([]Hit, error) {
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

// Visible returns ErrNoRow if the access is limited to some rows and the row with the key is not among them. It returns
// *BadRequestError if the key is invalid, and *RowSecurityError.
func Visible(ctx context.Context, db DB, p *pipeline.Pipeline, key string, access *Access) error {
	values, err := pipeline.SplitKey(key, len(p.Key))
	if err != nil {
		return bad("%q is not a key of %s, which has %d key columns", key, p.Source(), len(p.Key))
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
			return fmt.Errorf("look up a row: %w", err)
		}
		if !there {
			return ErrNoRow
		}
		return nil
	})
}

// keyOf adds the values of a key as parameters.
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
	// A row that the caller may not see cannot be used for a comparison.
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

// Explanation describes how a search is executed.
type Explanation struct {
	Statement string   `json:"statement"`
	Plan      []string `json:"plan"` // EXPLAIN output of the server
	// statement that creates an index for the words of a hybrid search
	Index string `json:"index,omitempty"`
}

// Explain returns the statements that find the rows of a search, and the server's plans for them.
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

// longVector matches the query vector in a plan: hundreds of numbers without interest to a reader.
var longVector = regexp.MustCompile(`'[\[{]?[-+0-9.e:,]{100,}[\]}]?(/\d+)?'`)
