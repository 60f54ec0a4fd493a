// Package search finds rows by meaning: those whose vectors are nearest to that of a text or of another row, alone or together with
// PostgreSQL's full text search. It runs read-only statements over the tables of a pipeline; all names come from the catalogue and all
// values are parameters, so that whoever asks can say what to look for and nothing else.
package search

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/pipeline"
)

// MaxRows keeps a slip of the finger from asking for the whole table.
const MaxRows = 10000

// Request is what to look for.
type Request struct {
	Vector   []float32         // rows near this one; of the pipeline's width, or pairs where it stores sparse vectors
	Text     string            // hybrid: rows that hold its words, too
	Hybrid   bool              // both, by reciprocal rank fusion
	Language string            // text search configuration of a hybrid search; "": the database's own
	Rows     int               // at most; 1 to MaxRows
	Filter   map[string]Filter // conditions on columns of the source table, all of which must hold
}

// Hit is a row that was found.
type Hit struct {
	Key      string          `json:"key"`                // as the program writes keys everywhere
	Columns  json.RawMessage `json:"columns"`            // the key's columns with their values
	Distance *float64        `json:"distance,omitempty"` // cosine distance, 0 to 2, number of differing bits, or negative inner product; nil: not among the nearest
	Score    *float64        `json:"score,omitempty"`    // of a hybrid search: larger is better, at most 2/61
	Text     string          `json:"text"`               // its first characters; of a chunked pipeline the whole chunk, if its text is stored
	Chunk    *Chunk          `json:"chunk,omitempty"`    // the chunk that is nearest; nil: the text is not cut, or none is near
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

// BadRequestError is a request that cannot be answered as it is. Its text is for whoever made it.
type BadRequestError struct {
	Problem string
	Hint    []string // ways out
}

func (e *BadRequestError) Error() string { return e.Problem }

// Hints returns the ways out.
func (e *BadRequestError) Hints() []string { return e.Hint }

func bad(format string, args ...any) error {
	return &BadRequestError{Problem: fmt.Sprintf(format, args...)}
}

// ErrNoRow means that the row to compare with does not exist or has no vector.
var ErrNoRow = errors.New("there is no such row, or it has no vector")

// Find returns the rows that fit best, best first. It returns *BadRequestError for a request that makes no sense for the pipeline.
func Find(ctx context.Context, db DB, p *pipeline.Pipeline, r Request) ([]Hit, error) {
	var hits []Hit
	err := reading(ctx, db, func(tx pgx.Tx) (err error) {
		hits, err = find(ctx, tx, p, r)
		return err
	})
	return hits, err
}

// Similar returns the rows most similar to the one of a key, without that row itself. It returns ErrNoRow if there is no such row or
// it has no vector.
func Similar(ctx context.Context, db DB, p *pipeline.Pipeline, key string, r Request) ([]Hit, error) {
	values, err := pipeline.SplitKey(key, len(p.Key))
	if err != nil {
		return nil, bad("%q is no key of %s: it has %d columns", key, p.Source(), len(p.Key))
	}
	if r.Hybrid {
		return nil, bad("similar rows are found by their vectors alone")
	}
	var hits []Hit
	err = reading(ctx, db, func(tx pgx.Tx) error {
		params, args := make([]string, len(values)), make([]any, len(values))
		for i, v := range values {
			params[i], args[i] = fmt.Sprintf("$%d::text", i+1), v
		}
		actual, stored, err := storedVector(ctx, tx, p, params, args)
		if err != nil {
			return err
		}
		r.Vector = p.Stored.Given(stored)
		r.Rows++ // the row itself is nearest
		if hits, err = find(ctx, tx, p, r); err != nil {
			return err
		}
		for i := range hits {
			if hits[i].Key == actual {
				hits = append(hits[:i], hits[i+1:]...)
				break
			}
		}
		hits = hits[:min(len(hits), r.Rows-1)]
		return nil
	})
	return hits, err
}

// storedVector returns the vector of one row, and its key as the row prints it.
func storedVector(ctx context.Context, tx pgx.Tx, p *pipeline.Pipeline, params []string, args []any) (key string, vector []float32, err error) {
	formats := pgx.QueryResultFormats{pgx.TextFormatCode, pgx.BinaryFormatCode}
	rows, err := tx.Query(ctx, vectorOf(p, params), append([]any{formats}, args...)...)
	if err != nil {
		return "", nil, rephrase(err)
	}
	defer rows.Close()
	if !rows.Next() {
		if err := rows.Err(); err != nil {
			return "", nil, rephrase(err)
		}
		return "", nil, ErrNoRow
	}
	raw := rows.RawValues()
	if raw[1] == nil {
		return "", nil, ErrNoRow
	}
	vector, err = p.Stored.ParseBinary(raw[1])
	return string(raw[0]), vector, err
}

// Explanation is how a search is done.
type Explanation struct {
	Statement string   `json:"statement"`
	Plan      []string `json:"plan"`            // the server's
	Index     string   `json:"index,omitempty"` // the statement that makes the index which the words of a hybrid search can use
}

// Explain returns the statement of a search and the plan that the server has for it.
func Explain(ctx context.Context, db DB, p *pipeline.Pipeline, r Request) (e Explanation, err error) {
	err = reading(ctx, db, func(tx pgx.Tx) error {
		s, err := prepare(ctx, tx, p, r)
		if err != nil {
			return err
		}
		e.Statement, e.Index = s.sql, s.index
		rows, err := tx.Query(ctx, "EXPLAIN "+s.sql, s.args...)
		if err != nil {
			return rephrase(err)
		}
		e.Plan, err = pgx.CollectRows(rows, pgx.RowTo[string])
		for i, line := range e.Plan {
			e.Plan[i] = longVector.ReplaceAllString(line, "'...'")
		}
		return err
	})
	return e, err
}

// longVector is the vector of the question in a plan: hundreds of numbers that nobody wants to read.
var longVector = regexp.MustCompile(`'[\[{]?[-+0-9.e:,]{100,}[\]}]?(/\d+)?'`)

// endLimit is how long the end of a transaction may take.
const endLimit = time.Second

// reading runs f in a read-only transaction.
func reading(ctx context.Context, db DB, f func(tx pgx.Tx) error) error {
	tx, err := db.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly})
	if err != nil {
		return fmt.Errorf("begin transaction: %w", err)
	}
	defer func() { // it only reads; a connection over which this cannot be said is given up
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
		defer cancel()
		_ = tx.Rollback(ending)
	}()
	return f(tx)
}

func find(ctx context.Context, tx pgx.Tx, p *pipeline.Pipeline, r Request) ([]Hit, error) {
	s, err := prepare(ctx, tx, p, r)
	if err != nil {
		return nil, err
	}
	for {
		hits, chunks, err := s.run(ctx, tx)
		if err == nil && chunks < s.candidates && s.indexed {
			// An index gives up when few of the nearest fit a filter, or are gone by now.
			s.indexed, s.sql = false, s.build(true)
			continue
		}
		// Several chunks of one row may have taken the places of other rows.
		if err != nil || len(hits) >= r.Rows || chunks < s.candidates || s.candidates >= MaxRows {
			return hits[:min(len(hits), r.Rows)], err
		}
		if err := s.widen(ctx, tx); err != nil {
			return nil, err
		}
	}
}

// statement is a search, ready to run.
type statement struct {
	sql        string
	index      string // what could make a hybrid search faster
	args       []any
	candidates int  // vectors looked at: $2
	indexed    bool // an index may find the nearest, or some of them
	build      func(exact bool) string
}

func prepare(ctx context.Context, tx pgx.Tx, p *pipeline.Pipeline, r Request) (*statement, error) {
	switch {
	case r.Rows < 1 || r.Rows > MaxRows+1:
		return nil, bad("expected a number of rows from 1 to %d, not %d", MaxRows, r.Rows)
	case p.Stored == pipeline.StoredSparse:
		if err := embed.CheckPairs(r.Vector, p.Dims); err != nil {
			return nil, fmt.Errorf("search %q: %w", p.Name, err)
		}
	case len(r.Vector) != p.Dims:
		return nil, fmt.Errorf("search %q: a vector of %d numbers, want %d", p.Name, len(r.Vector), p.Dims)
	}
	s := &statement{candidates: r.Rows, args: []any{vectorText(p, r.Vector), 0}}
	if r.Hybrid {
		s.candidates = max(r.Rows, hybridCandidates)
	}
	conditions, err := s.conditions(ctx, tx, p, r.Filter)
	if err != nil {
		return nil, err
	}
	if r.Hybrid {
		language, err := language(ctx, tx, r.Language)
		if err != nil {
			return nil, err
		}
		s.args, s.index = append(s.args, r.Text), wordsIndex(p, language)
		word := len(s.args)
		s.build = func(exact bool) string { return hybridSQL(p, conditions, language, word, r.Rows, exact) }
	} else {
		s.build = func(exact bool) string { return nearestSQL(p, conditions, exact) }
	}
	s.sql, s.args[1] = s.build(false), s.candidates
	if s.indexed, err = indexed(ctx, tx, p); err != nil {
		return nil, err
	}
	return s, s.tune(ctx, tx)
}

// indexed tells whether there is an index that finds the nearest without looking at all vectors.
func indexed(ctx context.Context, tx pgx.Tx, p *pipeline.Pipeline) (there bool, err error) {
	table := p.Into()
	if p.ToColumn() {
		table = p.Source()
	}
	err = tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid JOIN pg_am m ON m.oid = x.relam
		WHERE i.indisvalid AND m.amname IN ('hnsw', 'ivfflat') AND (i.indrelid = $1::regclass OR i.indrelid IN (SELECT t.relid FROM pg_partition_tree($1::regclass) AS t)))`,
		table).Scan(&there)
	if err != nil {
		return false, fmt.Errorf("look for an index of pipeline %q: %w", p.Name, err)
	}
	return there, nil
}

// tune makes an HNSW index find as many rows as are wanted: left alone it finds no more than 40, before any filter, and among them
// what rows that were written anew have left. Where pgvector can, it goes on until there are enough.
func (s *statement) tune(ctx context.Context, tx pgx.Tx) error {
	const usual, most = 40, 1000 // what is beyond the range of the setting is refused
	var scan bool
	err := tx.QueryRow(ctx, "SELECT set_config('hnsw.ef_search', $1, true) IS NOT NULL, EXISTS (SELECT FROM pg_extension WHERE extname = 'vector' AND "+
		"string_to_array(regexp_replace(extversion, '[^0-9.].*', ''), '.')::int[] >= '{0,8}')", strconv.Itoa(min(max(s.candidates, usual), most))).Scan(nil, &scan)
	if err != nil || !scan {
		return err
	}
	_, err = tx.Exec(ctx, "SELECT set_config('hnsw.iterative_scan', 'strict_order', true)")
	return err
}

// widen doubles the number of candidates.
func (s *statement) widen(ctx context.Context, tx pgx.Tx) error {
	s.candidates = min(2*s.candidates, MaxRows)
	s.args[1] = s.candidates
	return s.tune(ctx, tx)
}

// run returns the rows that were found, and of how many vectors they are.
func (s *statement) run(ctx context.Context, tx pgx.Tx) (hits []Hit, candidates int, err error) {
	rows, err := tx.Query(ctx, s.sql, s.args...)
	if err != nil {
		return nil, 0, rephrase(err)
	}
	hits = []Hit{}
	var h Hit
	_, err = pgx.ForEachRow(rows, []any{&h.Key, &h.Columns, &h.Distance, &h.Score, &h.Text, &h.Chunk, &candidates}, func() error {
		hits = append(hits, h)
		h = Hit{}
		return nil
	})
	return hits, candidates, rephrase(err)
}

// vectorText writes a vector as pgvector reads it.
func vectorText(p *pipeline.Pipeline, v []float32) string {
	if p.Stored == pipeline.StoredSparse {
		return string(pipeline.Sparse{Dims: p.Dims, Pairs: v}.AppendText(nil))
	}
	b := []byte{'['}
	for i, x := range v {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendFloat(b, float64(x), 'g', -1, 32)
	}
	return string(append(b, ']'))
}

func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
