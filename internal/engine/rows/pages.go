package rows

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// PageRows is the maximum number of rows read by one statement, and pageTime its time limit. A TRUNCATE or ALTER TABLE
// waits for the statement, and all later sessions wait behind it. After a timeout a smaller page is tried.
const (
	PageRows = 1000
	pageTime = 2 * time.Second
	// rowTime limits the reading of one row, whose text may never end. afterwards applies to it as well.
	rowTime = 15 * time.Second
)

// pager adapts the page size to the time limit. It is safe for concurrent use.
type pager struct {
	rows atomic.Int64 // size of the next page
	// briefly is Table.Briefly.
	briefly  func(ctx context.Context, limit time.Duration, f func(ctx context.Context, tx pgx.Tx) error) error
	overtime *Overtime
}

func newPager(t *Table, overtime *Overtime) *pager {
	p := &pager{briefly: t.Briefly, overtime: overtime}
	p.rows.Store(PageRows)
	return p
}

// next returns the size of the next page, at most most.
func (p *pager) next(most int) int { return min(int(p.rows.Load()), most) }

// Pages reads tables page by page. It is not safe for concurrent use.
type Pages struct {
	*pager
	t    *Table
	read func(ctx context.Context, db database.Reader, keys []string, texts int) ([]Row, error)
	// sparse is a condition so selective that finding the next row took too long; "": none.
	sparse string
}

// Pages returns a reader of the table's rows by pages.
func (t *Table) Pages() *Pages { return &Pages{newPager(t, t.pager.overtime), t, t.readBy, ""} }

// pageStatements return the next keys of a table in descending order, each with the answer to a question.
type pageStatements struct{ first, next statement }

// newPageStatements builds the statements that return the keys of a table, named r, with the answer to a question about
// each, named f. Keys are in descending order of their index, so that new rows, which users look for, come first. With
// met they read all rows, and return those that meet the condition and the last one.
func newPageStatements(p *pipeline.Pipeline, table, which, met, question string) pageStatements {
	keys, order := make([]string, len(p.Key)), make([]string, len(p.Key))
	for i, k := range p.Key {
		keys[i] = "r." + database.Quote(k.Name)
		order[i] = keys[i] + " USING " + k.Greater
	}
	columns, told := strings.Join(keys, ", "), ""
	if met != "" {
		const name = `"embedsidecar met"`
		columns += ", (" + met + ") IS TRUE AS " + name
		question += " AS answer, f." + name + " OR row_number() OVER () = count(*) OVER () AS told"
		told = " WHERE g.told"
	} else {
		question += " AS answer"
	}
	page := func(b *builder, where func() string) string {
		limit := b.param("max")
		return "SELECT g.row_key, g.answer FROM (SELECT " + p.KeyExpression("f") + " AS row_key, " + question +
			", row_number() OVER () AS place" +
			" FROM (SELECT " + columns + " FROM " + table + where() + " ORDER BY " +
			strings.Join(order, ", ") + " LIMIT " + limit + ") AS f) AS g" + told + " ORDER BY g.place"
	}
	return pageStatements{
		first: build(p, func(b *builder) string {
			return page(b, func() string {
				if which == "" {
					return ""
				}
				return " WHERE (" + which + ")"
			})
		}),
		next: build(p, func(b *builder) string {
			return page(b, func() string {
				if which == "" {
					return " WHERE " + b.below(keys)
				}
				return " WHERE (" + which + ") AND " + b.below(keys)
			})
		}),
	}
}

// newRowPages builds the statements for the source table: for all rows, or for those that meet a condition.
func newRowPages(p *pipeline.Pipeline, which, met string) pageStatements {
	which = "(" + cmp.Or(which, "true") + ")" + sameTables(p)
	return newPageStatements(p, source(p), which, met, fmt.Sprintf("EXISTS (SELECT FROM embedsidecar.ledger AS l"+
		" WHERE l.pipeline_id = %d AND l.row_key = %s OFFSET 0)", p.ID, p.KeyExpression("f")))
}

// below returns the condition that a row with these key columns comes after the given key.
func (b *builder) below(columns []string) string {
	n, builtIn := len(b.p.Key), true
	given := make([]string, n)
	for i, k := range b.p.Key {
		given[i] = k.Param(b.param(keyParam(i)))
		builtIn = builtIn && strings.HasPrefix(k.Greater, `OPERATOR("pg_catalog".`)
	}
	if builtIn && n > 1 {
		return "(" + strings.Join(given, ", ") + ") OPERATOR(pg_catalog.>) (" + strings.Join(columns, ", ") + ")"
	}
	ways := make([]string, n)
	for i, k := range b.p.Key {
		var steps []string
		for j := range i {
			steps = append(steps, given[j]+" "+b.p.Key[j].Equal+" "+columns[j])
		}
		ways[i] = strings.Join(append(steps, given[i]+" "+k.Greater+" "+columns[i]), " AND ")
	}
	return "(" + strings.Join(ways, " OR ") + ")"
}

// overran reports whether a statement exceeded its time limit.
func overran(err error) bool { return database.Judge(err) == database.Canceled }

// Briefly runs f in a transaction that is rolled back, with a statement_timeout; 0: no limit. It returns
// database.ErrTooLong a while after a statement should have ended.
func (t *Table) Briefly(ctx context.Context, limit time.Duration, f func(ctx context.Context, tx pgx.Tx) error) error {
	batch := &pgx.Batch{}
	batch.BeginTx(pgx.TxOptions{})
	database.Conduct(t.db, batch)
	batch.Queue("SELECT set_config('statement_timeout', $1, true)", fmt.Sprint(limit.Milliseconds()))
	results := t.db.SendBatch(ctx, batch)
	if tx := results.Tx(); tx != nil {
		defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // read-only
	}
	if err := results.Close(); err != nil {
		return err
	}
	if limit == 0 {
		return f(ctx, results.Tx())
	}
	return database.Limited(ctx, afterwards*limit, func(ctx context.Context) error { return f(ctx, results.Tx()) })
}

// afterwards times its limit is how long a statement may take before its connection is closed.
const afterwards = 4

// page runs f with a number of rows that can be read in time. one is the limit for a single row; 0: none. A row that
// takes longer than a page is read in overtime.
func (p *pager) page(ctx context.Context, most int, one time.Duration,
	f func(ctx context.Context, tx pgx.Tx, rows int) error,
) error {
	for {
		rows, start := p.next(most), time.Now()
		read := func(ctx context.Context, tx pgx.Tx) error { return f(ctx, tx, rows) }
		err := p.briefly(ctx, pageTime, read)
		if rows <= 1 && one != pageTime && overran(err) && ctx.Err() == nil {
			err = p.overtime.do(ctx, func() error { return p.briefly(ctx, one, read) })
		}
		switch {
		case overran(err) && rows > 1:
			p.rows.Store(int64(max(rows/4, 1)))
			continue
		case err == nil && time.Since(start) < pageTime/2: // twice as many also fit
			p.rows.Store(min(max(int64(2*rows), p.rows.Load()), PageRows))
		}
		return err
	}
}

// Rows returns the next keys of the source table, and whether the ledger knows them: all rows, or those that meet a
// condition. It returns none after the last. If the condition is so selective that the server reads many rows per
// match, Rows reads all rows in portions; each portion then also contains its last row. It returns ErrSplit.
func (p *Pages) Rows(ctx context.Context, which string, after *string) (keys []string, known []bool, err error) {
	switch which {
	case "":
		return p.keys(ctx, p.t.sql.rows, 0, after)
	case p.sparse:
	default:
		keys, known, err = p.keys(ctx, newRowPages(p.t.p, which, ""), pageTime, after)
		if !overran(err) || ctx.Err() != nil {
			return keys, known, err
		}
		p.sparse = which
		p.rows.Store(PageRows)
	}
	return p.keys(ctx, newRowPages(p.t.p, "", which), 0, after)
}

// Vectors returns the next keys of the destination, and whether their source row is missing. It returns none after the
// last, and none for a column destination. It returns ErrSplit.
func (p *Pages) Vectors(ctx context.Context, after *string) (keys []string, gone []bool, err error) {
	s := p.t.pages()
	if !s.first.there() {
		return nil, nil, nil
	}
	return p.keys(ctx, s, 0, after)
}

// keys returns the keys after one, with the answer to the statement's question about each. A key with several rows is
// returned once. one is the time limit for a single row; 0: none.
func (p *Pages) keys(ctx context.Context, s pageStatements, one time.Duration, after *string) (keys []string,
	answers []bool, err error,
) {
	sql := s.first
	if after != nil {
		sql = s.next
	}
	if _, err := sql.after(p.t.p, after, values{"max": 0}); err != nil {
		return nil, nil, err
	}
	err = p.page(ctx, PageRows, one, func(ctx context.Context, tx pgx.Tx, n int) error {
		keys, answers = nil, nil
		args, err := sql.after(p.t.p, after, values{"max": n})
		if err != nil {
			return err
		}
		rows, _ := tx.Query(ctx, sql.sql, args...)
		var (
			key    string
			answer bool
		)
		_, err = pgx.ForEachRow(rows, []any{&key, &answer}, func() error {
			keys, answers = appendKey(keys, answers, key, answer)
			return nil
		})
		return err
	})
	return keys, answers, err
}

// appendKey adds a key with its answer, unless it equals the previous one: the chunks of a row follow each other.
func appendKey(keys []string, answers []bool, key string, answer bool) ([]string, []bool) {
	if n := len(keys); n > 0 && keys[n-1] == key {
		return keys, answers
	}
	return append(keys, key), append(answers, answer)
}

// Gone returns the keys without a source row, among those that could be read in time.
func (p *Pages) Gone(ctx context.Context, keys []string) (read, gone []string, err error) {
	err = p.page(ctx, len(keys), 0, func(ctx context.Context, tx pgx.Tx, n int) error {
		keys = keys[:n]
		args, err := p.t.sql.gone.args(p.t.p, keys, nil)
		if err != nil {
			return err
		}
		rows, _ := tx.Query(ctx, p.t.sql.gone.sql, args...)
		gone, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	return keys, gone, err
}

// Read reads the rows of keys and passes them to each, with hashes instead of texts. If a row's text or filter fails or
// takes too long, the page is halved until the row is found, and refused gets its key and the error. The same goes for
// malformed keys.
func (p *Pages) Read(ctx context.Context, keys []string, each func(found []Row),
	refused func(key string, err error),
) error {
	for len(keys) > 0 {
		var found []Row
		most := min(len(keys), p.vectorRows())
		err := p.page(ctx, most, rowTime, func(ctx context.Context, tx pgx.Tx, n int) (err error) {
			found, err = p.read(ctx, tx, keys[:n], 0)
			return err
		})
		switch {
		case err == nil:
			each(found)
			keys = keys[len(found):]
		case !overran(err) && !p.t.OfSomeRow(ctx, err):
			return err
		case p.next(most) == 1:
			refused(keys[0], err)
			keys = keys[1:]
		default:
			// The rows before and after the failing one are read with the full page size again.
			half := p.next(most) / 2
			if err := p.Read(ctx, slices.Clone(keys[:half]), each, refused); err != nil {
				return err
			}
			keys = keys[half:]
		}
	}
	return nil
}

// vectorRows returns the page size for rows read with their vectors, as with a column destination.
func (p *Pages) vectorRows() int {
	const least, most = 16, 8 << 20
	if !p.t.OfUsers() {
		return PageRows
	}
	return max(least, most/(4*max(p.t.p.Dims, 1)))
}
