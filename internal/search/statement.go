package search

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

type statement struct {
	p       *pipeline.Pipeline
	request Request
	// $1 is the vector, $2 the number of candidates, then the values of conditions; a search for words has its tsquery
	// as $1
	args       []any
	conditions []string
	rows       int          // number of rows wanted
	wanted     []filterable // columns to return
	candidates int          // number of vectors, and of rows with the words, to examine
	indexed    bool         // an index may find all or some of the nearest vectors
	language   string       // hybrid, highlight: a text search configuration, quoted
	lexemes    string       // hybrid, highlight: the words of the text as a tsquery; "": no words
	index      string       // hybrid: the statement of an index that would make it faster
}

func prepare(ctx context.Context, tx pgx.Tx, p *pipeline.Pipeline, r Request, rows int) (*statement, error) {
	switch {
	case p.Stored == pipeline.StoredSparse:
		if err := embed.CheckPairs(r.Vector, p.Dims); err != nil {
			return nil, fmt.Errorf("search %q: %w", p.Name, err)
		}
	case len(r.Vector) != p.Dims:
		return nil, fmt.Errorf("search %q: a vector of %d numbers, want %d", p.Name, len(r.Vector), p.Dims)
	}
	vector := pipeline.VectorText(p.Stored == pipeline.StoredSparse, p.Dims, r.Vector)
	s := &statement{p: p, request: r, rows: rows, candidates: rows, args: []any{vector, 0}}
	if r.Hybrid {
		s.candidates = max(rows, hybridCandidates)
	}
	s.args[1] = s.candidates
	var err error
	if s.conditions, err = s.conditionsOf(ctx, tx, p, r.Filter, r.Access); err != nil {
		return nil, err
	}
	if err = s.want(ctx, tx, r.Columns); err != nil {
		return nil, err
	}
	if r.Hybrid || r.Highlight {
		if s.language, err = language(ctx, tx, r.Language); err != nil {
			return nil, err
		}
		if s.lexemes, err = lexemes(ctx, tx, s.language, r.Text); err != nil {
			return nil, err
		}
	}
	if r.Hybrid {
		s.index = "CREATE INDEX CONCURRENTLY ON " + p.Source() + " USING gin (" + words(p, s.language, "") + ")"
	}
	if s.indexed, err = indexed(ctx, tx, p); err != nil {
		return nil, err
	}
	return s, s.tune(ctx, tx)
}

// Distances returns the statement for the distances of the $2 vectors nearest to $1 that match a filter, and its
// parameters from $3 on. It configures the index to continue until enough rows match. Benchmarks use it.
func Distances(ctx context.Context, tx pgx.Tx, p *pipeline.Pipeline, filter Filters) (sql string, args []any,
	err error,
) {
	s := &statement{p: p, args: make([]any, 2)} // $1 and $2
	conditions, err := s.conditionsOf(ctx, tx, p, filter, nil)
	if err == nil {
		err = s.tune(ctx, tx)
	}
	vector, from := vectors(p)
	distance := p.Distance(vector, "$1::text::"+p.VectorType())
	return "SELECT " + distance + " FROM " + from + " WHERE " + vector + " IS NOT NULL" + and("s", conditions) +
		" ORDER BY " + distance + " LIMIT $2", s.args[2:], err
}

// want looks up the columns to return.
func (s *statement) want(ctx context.Context, tx pgx.Tx, names []string) error {
	if len(names) == 0 {
		return nil
	}
	columns, err := filterables(ctx, tx, s.p)
	if err != nil {
		return err
	}
	if columns, err = shared(s.p, columns, s.request.Access, "columns", names); err != nil {
		return err
	}
	for _, name := range names {
		c, err := column(s.p, columns, "columns", name)
		if err != nil {
			return err
		}
		s.wanted = append(s.wanted, c)
	}
	return nil
}

// argsOf returns the parameters of the search by vector or of the search for words.
func (s *statement) argsOf(words bool) []any {
	args := slices.Clone(s.args)
	if words {
		args[0] = s.lexemes
	}
	return args
}

// indexed reports whether an index can find the nearest vectors.
func indexed(ctx context.Context, tx pgx.Tx, p *pipeline.Pipeline) (there bool, err error) {
	err = tx.QueryRow(ctx, sqlfiles.Query("vectors_indexed"), pgx.StrictNamedArgs{"table": p.VectorTable()}).
		Scan(&there)
	return there, wrap.Errorf(err, "look for an index of pipeline %q", p.Name)
}

// tune makes an HNSW index return as many rows as are wanted. By default it returns at most 40, counted before any
// filter and including dead entries of rewritten rows. Where pgvector supports it, the scan continues until there are
// enough rows.
func (s *statement) tune(ctx context.Context, tx pgx.Tx) error {
	const usual, most = 40, 1000 // the server rejects values outside the range of the setting
	_, err := tx.Exec(ctx, `SELECT set_config('hnsw.ef_search', $1, true),
		CASE WHEN EXISTS (SELECT FROM pg_extension WHERE extname = 'vector'
			AND string_to_array(regexp_replace(extversion, '[^0-9.].*', ''), '.')::int[] >= '{0,8}')
		THEN set_config('hnsw.iterative_scan', 'strict_order', true) END`,
		strconv.Itoa(min(max(s.candidates, usual), most)))
	return err
}

// candidate is a row that a search may return.
type candidate struct {
	key      string
	distance *float64
	score    *float64
	chunk    *int32 // the nearest chunk
	rank     float64
}

// nearest returns the rows with the nearest vectors, and the number of vectors examined. It reads only keys, vectors
// and the columns of conditions, so no row's text can make it fail.
func (s *statement) nearest(ctx context.Context, tx pgx.Tx, exact bool) (found []candidate, vectors int, err error) {
	rows, _ := tx.Query(ctx, s.near(exact), s.argsOf(false)...)
	found, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (c candidate, err error) {
		err = row.Scan(&c.key, &c.distance, &c.chunk, &vectors)
		return c, err
	})
	return found, vectors, wrap.Errorf(err, "search vectors")
}

// worded returns the rows of a part of the table that have any of the words, best first. The text of a row may make it
// fail.
func (s *statement) worded(ctx context.Context, tx pgx.Tx, in part) (found []candidate, err error) {
	rows, _ := tx.Query(ctx, s.wording(in), s.argsOf(true)...)
	found, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (c candidate, err error) {
		err = row.Scan(&c.key, &c.rank)
		return c, err
	})
	return found, wrap.Errorf(err, "search words")
}

// fuse joins two rankings by reciprocal rank fusion.
func fuse(near, worded []candidate) []candidate {
	fused := slices.Clone(near)
	at := make(map[string]int, len(near)+len(worded))
	score := func(i, place int) {
		sum := 1 / float64(fusion+place)
		if fused[i].score != nil {
			sum += *fused[i].score
		}
		fused[i].score = &sum
	}
	for i := range fused {
		at[fused[i].key] = i
		score(i, i+1)
	}
	for place, c := range worded {
		i, both := at[c.key]
		if !both {
			i = len(fused)
			fused = append(fused, c)
		}
		score(i, place+1)
	}
	slices.SortStableFunc(fused, func(a, b candidate) int { return cmp.Compare(*b.score, *a.score) })
	return fused
}

// near cuts off the rows beyond the maximum distance, and reports whether it cut any.
func (r *Request) near(found []candidate) (near []candidate, ended bool) {
	if r.MaxDistance == nil {
		return found, false
	}
	for i, c := range found {
		if *c.distance > *r.MaxDistance {
			return found[:i], true
		}
	}
	return found, false
}

// find increases the number of candidates until enough rows can be shown.
func find(ctx context.Context, tx pgx.Tx, p *pipeline.Pipeline, r Request, rows int, careful bool) ([]Hit, error) {
	s, err := prepare(ctx, tx, p, r, rows)
	if err != nil {
		return nil, err
	}
	show := func(ctx context.Context, tx pgx.Tx, rows []candidate) ([]Hit, error) {
		hits, err := s.show(ctx, tx, rows, true)
		return hits, byRow(err)
	}
	words := func(ctx context.Context, tx pgx.Tx) ([]candidate, error) {
		found, err := s.worded(ctx, tx, everywhere)
		return found, byRow(err)
	}
	if careful {
		show, words = s.showCarefully, s.wordsCarefully
	}
	exact := false
	for {
		found, vectors, err := s.nearest(ctx, tx, exact)
		if err != nil {
			return nil, err
		}
		if vectors < s.candidates && s.indexed && !exact {
			// An index scan ends early when few of the nearest match a filter, or are dead.
			exact = true
			continue
		}
		found, ended := r.near(found)
		if r.Hybrid && s.lexemes != "" {
			worded, err := words(ctx, tx)
			if err != nil {
				return nil, err
			}
			found = fuse(found, worded)
		} else if r.Hybrid {
			found = fuse(found, nil)
		}
		hits, err := s.shownOf(ctx, tx, found, show)
		if err != nil {
			return nil, err
		}
		// Several chunks of one row may have displaced other rows.
		if len(hits) >= rows || ended || vectors < s.candidates || s.candidates >= MaxRows {
			return hits[:min(len(hits), rows)], nil
		}
		s.candidates = min(2*s.candidates, MaxRows)
		s.args[1] = s.candidates
		if err := s.tune(ctx, tx); err != nil {
			return nil, err
		}
	}
}

// shownOf shows as many of the found rows as are wanted. The pipeline's filter may exclude some by now, and others may
// have a pending task.
func (s *statement) shownOf(ctx context.Context, tx pgx.Tx, found []candidate,
	show func(ctx context.Context, tx pgx.Tx, rows []candidate) ([]Hit, error),
) ([]Hit, error) {
	hits := []Hit{}
	for portion := range slices.Chunk(found, s.rows) {
		if len(hits) >= s.rows {
			break
		}
		if s.request.FreshOnly {
			var err error
			if portion, err = s.fresh(ctx, tx, portion); err != nil {
				return nil, err
			}
		}
		more, err := show(ctx, tx, portion)
		if err != nil {
			return nil, err
		}
		hits = append(hits, more...)
	}
	return hits, nil
}

// fresh leaves out the rows that have a task: their texts may have changed since they were embedded. It reads the tasks
// as the program's role, because the role of a token may lack access to the queue.
func (s *statement) fresh(ctx context.Context, tx pgx.Tx, rows []candidate) ([]candidate, error) {
	keys := lists.Map(rows, func(c candidate) string { return c.key })
	var stale []string
	err := s.request.Access.leave(ctx, tx, func() error {
		err := tx.QueryRow(ctx, sqlfiles.Query("keys_with_tasks"), pgx.StrictNamedArgs{
			"pipeline_id": s.p.ID, "keys": keys,
		}).Scan(&stale)
		return wrap.Errorf(err, "look for tasks of pipeline %q", s.p.Name)
	})
	waits := make(map[string]bool, len(stale))
	for _, key := range stale {
		waits[key] = true
	}
	return slices.DeleteFunc(slices.Clone(rows), func(c candidate) bool { return waits[c.key] }), err
}
