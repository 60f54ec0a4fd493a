package worker

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// A statement that reads a table on its own account, and not for a row that changed, reads a page of it. Whoever
// truncates or alters the table waits for that, and everybody else behind him: so it ends after this time, and a
// smaller page is tried.
const (
	pageRows = 1000
	pageTime = 2 * time.Second
)

// pages reads tables page by page. It is not safe for concurrent use.
type pages struct {
	w    *Worker
	rows int // of the next page
}

func newPages(w *Worker) *pages { return &pages{w: w, rows: pageRows} }

// overran reports whether a statement was ended for the time it took.
func overran(err error) bool { return database.Judge(err) == database.Canceled }

// briefly runs f in a transaction none of whose statements takes longer than limit; 0 is no limit.
func (p *pages) briefly(ctx context.Context, limit time.Duration, f func(tx pgx.Tx) error) error {
	batch := &pgx.Batch{}
	batch.BeginTx(pgx.TxOptions{})
	batch.Queue("SELECT set_config('statement_timeout', $1, true)", fmt.Sprint(limit.Milliseconds()))
	results := p.w.o.DB.SendBatch(ctx, batch)
	if tx := results.Tx(); tx != nil {
		defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // it only reads
	}
	if err := results.Close(); err != nil {
		return err
	}
	return f(results.Tx())
}

// page runs f with a number of rows that can be read in time. One row may take as long as it takes.
func (p *pages) page(ctx context.Context, most int, f func(tx pgx.Tx, rows int) error) error {
	for {
		rows, limit := min(p.rows, most), pageTime
		if rows <= 1 {
			limit = 0
		}
		err := p.briefly(ctx, limit, func(tx pgx.Tx) error { return f(tx, rows) })
		switch {
		case overran(err) && rows > 1:
			p.rows = max(rows/4, 1)
			continue
		case err == nil:
			p.rows = min(max(2*rows, p.rows), pageRows)
		}
		return err
	}
}

// keys returns the keys that come next after one, with the answer to the statement's question about each. There are
// none after the last. A key that has several rows is there once.
func (p *pages) keys(ctx context.Context, s pageStatements, after *string) (keys []string, answers []bool, err error) {
	sql, args := s.first, []any{0}
	if after != nil {
		values, err := pipeline.SplitKey(*after, len(p.w.o.Pipeline.Key))
		if err != nil {
			return nil, nil, fmt.Errorf("%w: %w", errSplit, err)
		}
		sql = s.next
		for _, v := range values {
			args = append(args, v)
		}
	}
	err = p.page(ctx, pageRows, func(tx pgx.Tx, n int) error {
		keys, answers, args[0] = nil, nil, n
		rows, err := tx.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		var (
			key    string
			answer bool
		)
		_, err = pgx.ForEachRow(rows, []any{&key, &answer}, func() error {
			if len(keys) == 0 || keys[len(keys)-1] != key {
				keys, answers = append(keys, key), append(answers, answer)
			}
			return nil
		})
		return err
	})
	return keys, answers, err
}

// read looks at the rows of keys and hands them on, without their texts: there are only the hashes. A row whose text
// or filter fails is found by halving, and refused gets its key and the error; so is a key that no row can have.
func (p *pages) read(ctx context.Context, keys []string, each func(rows []row),
	refused func(key string, err error),
) error {
	for len(keys) > 0 {
		var found []row
		most := min(len(keys), p.vectorRows())
		err := p.page(ctx, most, func(tx pgx.Tx, n int) (err error) {
			found, err = p.w.read(ctx, tx, keys[:n], 0)
			return err
		})
		switch {
		case err == nil:
			each(found)
			keys = keys[len(found):]
		case !p.w.ofSomeRow(ctx, err):
			return err
		case min(p.rows, most) == 1:
			refused(keys[0], err)
			keys = keys[1:]
		default:
			// The rows before and after the one at fault are read by pages as large as before.
			half := min(p.rows, most) / 2
			if err := p.read(ctx, slices.Clone(keys[:half]), each, refused); err != nil {
				return err
			}
			keys = keys[half:]
		}
	}
	return nil
}

// vectorRows is how many rows may be read whose vectors come along, as those of a column do.
func (p *pages) vectorRows() int {
	const least, most = 16, 8 << 20
	if !p.w.o.Pipeline.ToColumn() {
		return pageRows
	}
	return max(least, most/(4*max(p.w.o.Pipeline.Dims, 1)))
}
