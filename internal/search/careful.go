package search

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// endLimit is the time limit for ending a transaction.
const endLimit = time.Second

// rowError is an error of a statement that evaluates a pipeline's text and filter. A row may be the cause.
type rowError struct{ err error }

// byRow wraps an error in a *rowError if a row may be the cause.
func byRow(err error) error {
	if database.RowsFault(err) {
		return &rowError{err}
	}
	return err
}

func (e *rowError) Error() string { return e.err.Error() }
func (e *rowError) Unwrap() error { return e.err }

// orCarefully runs a search. If a row makes it fail, it runs the search again in the careful way.
func orCarefully(ctx context.Context, db DB, p *pipeline.Pipeline, r *Request, f func(tx pgx.Tx, careful bool) ([]Hit,
	error),
) (hits []Hit, err error) {
	for _, careful := range []bool{false, true} {
		err = reading(ctx, db, p, r.Access, func(tx pgx.Tx) (err error) {
			hits, err = f(tx, careful)
			return err
		})
		if _, again := errors.AsType[*rowError](err); !again {
			break
		}
	}
	return hits, denied(ctx, db, p, r, err)
}

// reading runs f in a read-only transaction with one snapshot.
func reading(ctx context.Context, db DB, p *pipeline.Pipeline, access *Access, f func(tx pgx.Tx) error) error {
	tx, err := db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return fmt.Errorf("begin transaction: %w", err)
	}
	defer func() { // the transaction only reads; if the rollback fails, the connection is closed
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
		defer cancel()
		_ = tx.Rollback(ending)
	}()
	if err := access.enter(ctx, tx, p); err != nil {
		return err
	}
	if err := serves(ctx, tx, p); err != nil {
		return err
	}
	return f(tx)
}

// ErrSwitched means that the pipeline switched to another generation: the name of the vectors now belongs to that one.
// A caller that loads the pipeline again gets the new generation.
var ErrSwitched = errors.New("the model of the pipeline was switched meanwhile")

// serves makes sure that the name of the vectors still belongs to the generation of the pipeline. Its statement locks
// the table against a rename until the transaction ends. The server's answer tells which table and column the name
// resolved to.
func serves(ctx context.Context, tx pgx.Tx, p *pipeline.Pipeline) error {
	table := p.IntoOID
	if p.InSource() {
		table = p.OID
	}
	if table == 0 || p.InSource() && p.IntoNumber == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, "SELECT "+p.VectorOf("v")+" FROM "+p.VectorTable()+" AS v LIMIT 0",
		pgx.QueryExecModeExec) // a statement prepared earlier would return the earlier resolution
	if err != nil {
		return fmt.Errorf("check the vectors: %w", err)
	}
	rows.Close()
	fields := rows.FieldDescriptions()
	switch err := rows.Err(); {
	case database.HasCode(err, pgerrcode.UndefinedTable, pgerrcode.UndefinedColumn):
		return ErrSwitched
	case err != nil:
		return fmt.Errorf("check the vectors: %w", err)
	case len(fields) != 1 || fields[0].TableOID != table,
		p.InSource() && fields[0].TableAttributeNumber != uint16(p.IntoNumber): //nolint:gosec // at most 1,600
		return ErrSwitched
	}
	return nil
}

// show reads the contents of rows, in their order. It leaves out a row that is gone or that the pipeline's filter now
// excludes.
func (s *statement) show(ctx context.Context, tx pgx.Tx, rows []candidate, withText bool) ([]Hit, error) {
	args, err := showArgs(s.p, rows)
	if err != nil {
		return nil, err
	}
	if s.request.Highlight {
		args = append(args, s.lexemes)
	}
	read, _ := tx.Query(ctx, s.shownSQL(withText), args...)
	var (
		hits  []Hit
		place int
		size  int
		h     Hit
	)
	_, err = pgx.ForEachRow(read, []any{&place, &h.Key, &h.Columns, &h.Text, &h.Chunk, &h.Highlight}, func() error {
		if size += len(h.Columns); size > mostReturned {
			return bad("columns: their values exceed %d MiB: request fewer rows or columns", mostReturned>>20)
		}
		c := rows[place-1]
		h.Distance, h.Score, h.Highlight = c.distance, c.score, marked(h.Highlight)
		hits = append(hits, h)
		h = Hit{}
		return nil
	})
	return hits, wrap.Errorf(err, "read rows")
}

// showArgs splits keys into one array for each key column, followed by an array of chunk numbers.
func showArgs(p *pipeline.Pipeline, rows []candidate) ([]any, error) {
	columns, chunks := make([][]string, len(p.Key)), make([]*int32, len(rows))
	for i := range columns {
		columns[i] = make([]string, len(rows))
	}
	for i, c := range rows {
		values, err := pipeline.SplitKey(c.key, len(p.Key))
		if err != nil {
			return nil, fmt.Errorf("search %q: %w", p.Name, err)
		}
		for k, v := range values {
			columns[k][i] = v
		}
		chunks[i] = c.chunk
	}
	args := make([]any, 0, len(columns)+1)
	for i, c := range columns {
		args = append(args, p.Key[i].ListOf(c))
	}
	return append(args, chunks), nil
}

// showCarefully shows rows of which some fail. It shows a failing row without its text, or not at all if the filter
// fails.
func (s *statement) showCarefully(ctx context.Context, tx pgx.Tx, rows []candidate) ([]Hit, error) {
	hits, err := s.shown(ctx, tx, rows, true)
	if !database.RowsFault(err) {
		return hits, err
	}
	if len(rows) > 1 {
		first, err := s.showCarefully(ctx, tx, rows[:len(rows)/2])
		if err != nil {
			return nil, err
		}
		second, err := s.showCarefully(ctx, tx, rows[len(rows)/2:])
		return append(first, second...), err
	}
	if _, unfit := s.shown(ctx, tx, nil, true); unfit != nil {
		return nil, unfit // it fails without any row, too: no row is the cause
	}
	problem := fmt.Sprintf("the pipeline's text cannot be computed for this row (%s)", database.SQLState(err))
	hits, err = s.shown(ctx, tx, rows, false)
	if database.RowsFault(err) {
		return nil, nil // it is unknown whether the filter accepts the row, so it is left out
	}
	for i := range hits {
		hits[i].Problem = problem
	}
	return hits, err
}

func (s *statement) shown(ctx context.Context, tx pgx.Tx, rows []candidate, withText bool) (hits []Hit, err error) {
	err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) (err error) {
		hits, err = s.show(ctx, tx, rows, withText)
		return err
	})
	return hits, err
}

// mostReturned is the maximum total size, in bytes, of the columns that a search returns.
const mostReturned = 16 << 20

// part is a part of the source table: a range of blocks, or some row positions (ctid). Positions need no index and work
// for every key.
type part struct {
	table    uint32 // the table or partition; 0: the whole table
	from, to int64  // range of blocks
	places   []string
}

// everywhere is the whole table; its statement can use an index.
var everywhere = part{}

// mostParts limits the statements of one careful search for words. If more rows than that fail, the pipeline's
// configuration is wrong.
const mostParts = 2000

// wordsCarefully searches the table in parts. It halves the parts that fail until it has isolated the failing rows, and
// leaves these out.
func (s *statement) wordsCarefully(ctx context.Context, tx pgx.Tx) (found []candidate, err error) {
	search := func(in part) (some []candidate, err error) {
		err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) (err error) {
			some, err = s.worded(ctx, tx, in)
			return err
		})
		return some, err
	}
	if found, err = search(everywhere); !database.RowsFault(err) {
		return found, err
	}
	if _, unfit := search(part{table: s.p.OID}); unfit != nil {
		return nil, unfit // it fails without any row, too: no row is the cause
	}
	failed := err
	todo, err := s.parts(ctx, tx)
	if err != nil {
		return nil, err
	}
	found = nil
	for n := 0; len(todo) > 0; n++ {
		if n == mostParts {
			return nil, fmt.Errorf("search words: the text of too many rows cannot be computed: %w", failed)
		}
		in := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		some, err := search(in)
		switch {
		case err == nil:
			found = append(found, some...)
		case !database.RowsFault(err):
			return nil, err
		default:
			halves, err := s.halve(ctx, tx, in)
			if err != nil {
				return nil, err
			}
			todo = append(todo, halves...)
		}
	}
	slices.SortStableFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.rank, a.rank),
			cmp.Compare(a.key, b.key))
	})
	return found[:min(len(found), s.candidates)], nil
}

// parts returns the table, or each of its partitions, as parts.
func (s *statement) parts(ctx context.Context, tx pgx.Tx) ([]part, error) {
	list, err := database.Collect(ctx, tx, "table_blocks", func(row pgx.CollectableRow) (in part, err error) {
		err = row.Scan(&in.table, nil, &in.to)
		return in, err
	}, pgx.StrictNamedArgs{"table": s.p.OID})
	return list, wrap.Errorf(err, "look up the size of %s", s.p.Source())
}

// halve splits a part in two. It returns nothing for a single row.
func (s *statement) halve(ctx context.Context, tx pgx.Tx, in part) ([]part, error) {
	if in.places == nil && in.to-in.from > 1 {
		middle := in.from + (in.to-in.from)/2
		return []part{{table: in.table, from: in.from, to: middle}, {table: in.table, from: middle, to: in.to}}, nil
	}
	if in.places == nil {
		rows, err := tx.Query(ctx, "SELECT r.ctid::text FROM "+source(s.p, "r")+" WHERE "+placed(in))
		if err != nil {
			return nil, fmt.Errorf("look up rows: %w", err)
		}
		if in.places, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
			return nil, fmt.Errorf("look up rows: %w", err)
		}
	}
	if len(in.places) < 2 { // a row alone
		return nil, nil
	}
	first, second := in, in
	first.places, second.places = in.places[:len(in.places)/2], in.places[len(in.places)/2:]
	return []part{first, second}, nil
}
