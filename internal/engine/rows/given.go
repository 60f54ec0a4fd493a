package rows

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// Given describes existing vectors of a pipeline's rows, made by another program: a table with one row per source row,
// or several if texts were chunked. It may be the source table. SQL refers to its rows as g.
type Given struct {
	Table  string   // as a FROM item, without an alias
	Key    []string // its columns for the source's key, in key order
	Vector string   // SQL of the vector, in the type of the destination
	There  string   // SQL condition: a vector exists and fits
	// columns of source and given row with the times of text and vector; "": unknown
	Changed, Made string
	// with chunks: the text column, and the column that orders the chunks of a row
	Text, Order string
}

// GivenVector is a vector of a row.
type GivenVector struct {
	Vector []float32 // as stored
	Stale  bool      // the text is newer
	Text   string    // of the chunk
}

// from joins a source row with its given rows; key returns the SQL of its key columns.
func (g *Given) from(p *pipeline.Pipeline, key func(i int) string) string {
	same := make([]string, len(p.Key))
	for i, k := range p.Key {
		same[i] = "g." + database.Quote(g.Key[i]) + " " + k.Equal + " " + key(i)
	}
	return g.Table + " AS g WHERE " + strings.Join(same, " AND ") + " AND " + g.There
}

// columns returns the selected columns of a given row; changed is the SQL of the text's change time.
func (g *Given) columns(changed string) string {
	stale, text := "false", "''"
	if g.Changed != "" {
		stale = "coalesce(" + changed + " > g." + database.Quote(g.Made) + ", false)"
	}
	if g.Text != "" {
		text = "coalesce(g." + database.Quote(g.Text) + "::text, '')"
	}
	return g.Vector + " AS vector, " + stale + " AS stale, " + text + " AS chunk"
}

// order returns the ORDER BY suffix for the given rows of one source row.
func (g *Given) order() string {
	if g.Order == "" {
		return ""
	}
	return ", g." + database.Quote(g.Order)
}

// givenFormats are the formats of place, vector, staleness and chunk.
var givenFormats = pgx.QueryResultFormats{
	pgx.TextFormatCode, pgx.BinaryFormatCode, pgx.TextFormatCode, pgx.TextFormatCode,
}

// read returns the statement that reads the given vectors of rows.
func (g *Given) read(p *pipeline.Pipeline) statement {
	return build(p, func(b *builder) string {
		return "SELECT k.place, v.vector, v.stale OR " + sinceSetUp(p) + ", v.chunk FROM " +
			b.list() + " JOIN " + source(p) + " ON " +
			b.matchSource() + " CROSS JOIN LATERAL (SELECT " + g.columns("r."+database.Quote(g.Changed)) +
			", row_number() OVER (ORDER BY g.ctid" + g.order() + ") AS no FROM " + g.from(p, ofSource(p)) +
			") AS v ORDER BY k.place, v.no"
	})
}

// sinceSetUp returns the SQL that reports whether the source row r, or one joined to it, may have changed since the
// adoption that set up its pipeline began, or since the set-up. It is then unknown whether the vector is of the new
// text, and the stream would find the row as it was taken over, or began after its change. A joined row that is gone
// leaves no trace here (worker.doubtful).
// Transaction IDs are compared modulo 2^32, and only those that may have begun since then count: a frozen row may have
// any. Those count from the oldest transaction that ran at the set-up, as a subtransaction of it is in no snapshot, but
// from no older one than the last hundred thousand: a forgotten transaction must not cost every vector.
func sinceSetUp(p *pipeline.Pipeline) string {
	const running = 1_000_000 // more than can be above the last one that has ended
	const lately = 100_000
	const since = `"embedsidecar set up"` // no name of a join
	changed := func(row string) string {
		return fmt.Sprintf("(%s.xmin::text::bigint - %s.first) & 4294967295 <="+
			" %d + greatest(0, pg_snapshot_xmax(pg_current_snapshot())::text::bigint - %[2]s.first)", row, since, running)
	}
	return fmt.Sprintf("coalesce((SELECT %s"+
		" FROM (SELECT greatest(pg_snapshot_xmin(p.set_up)::text::bigint, pg_snapshot_xmax(p.set_up)::text::bigint - %d)"+
		" FROM embedsidecar.pipeline AS p WHERE p.pipeline_id = %d) AS %s (first)), false)",
		strings.Join(append([]string{changed("r")}, p.JoinedMeets(changed)...), " OR "), lately, p.ID, since)
}

// ofSource returns the SQL of the key columns of the source row r.
func ofSource(p *pipeline.Pipeline) func(i int) string {
	return func(i int) string { return "r." + database.Quote(p.Key[i].Name) }
}

// Given returns the given vectors of rows, in key order. It returns ErrSplit.
func (t *Table) Given(ctx context.Context, g *Given, keys []string) ([][]GivenVector, error) {
	s := g.read(t.p)
	args, err := s.args(t.p, keys, nil)
	if err != nil {
		return nil, err
	}
	found := make([][]GivenVector, len(keys))
	err = eachLine(ctx, t.db, givenFormats, s, args, func(raw [][]byte) error { return scanGiven(t.p, raw, found) })
	return found, wrap.Errorf(err, "read vectors from %s", g.Table)
}

// scanGiven reads a result row: place, vector, staleness and chunk.
func scanGiven(p *pipeline.Pipeline, raw [][]byte, found [][]GivenVector) error {
	place, err := parsePlace(raw[0], len(found))
	if err != nil {
		return err
	}
	vector, err := p.Stored.ParseBinary(raw[1])
	if err != nil {
		return err
	}
	found[place] = append(found[place], GivenVector{
		Vector: vector, Stale: string(raw[2]) == "t", Text: strings.ToValidUTF8(string(raw[3]), "\uFFFD"),
	})
	return nil
}

// Sampled is a given vector to compare with the model's vector of its text.
type Sampled struct {
	Key, Text, Title string
	Vector           []float32
}

// sampledText is the maximum size of a text embedded for comparison.
const sampledText = 64 << 10

// sample returns the SQL that draws vectors. $1 is the share, $2 the maximum bytes of a text, $3 the number of vectors.
func (g *Given) sample(p *pipeline.Pipeline, pages bool) string {
	method := "BERNOULLI"
	if pages {
		method = "SYSTEM"
	}
	// The text is read in a subquery: its names must not refer to columns of the given table.
	inner := []string{p.KeyExpression("r") + " AS row_key", "CASE WHEN " + p.FilterExpression() + " THEN " +
		fmt.Sprintf("left(%s, %d)", p.TextExpression(), MaxText) + " END AS body", "left(" + p.ContextExpression() +
		fmt.Sprintf(", %d) AS title", maxTitle)}
	for i, k := range p.Key {
		inner = append(inner, "r."+database.Quote(k.Name)+" AS "+keyParam(i))
	}
	if g.Changed != "" {
		inner = append(inner, "r."+database.Quote(g.Changed)+" AS changed")
	}
	text := "f.body"
	if g.Text != "" {
		text = "v.chunk"
	}
	return "SELECT f.row_key, " + text + ", coalesce(f.title, ''), v.vector FROM (SELECT " + strings.Join(inner, ", ") +
		" FROM " + p.Rows() + " AS r TABLESAMPLE " + method + " ($1::real)) AS f CROSS JOIN LATERAL (SELECT " +
		g.columns("f.changed") + " FROM " + g.from(p, func(i int) string { return "f." + keyParam(i) }) +
		") AS v WHERE NOT v.stale AND btrim(" + text + ", " + blanks + ") <> '' AND octet_length(" + text +
		") <= $2 AND f.body IS NOT NULL ORDER BY random() LIMIT $3"
}

// Sample draws about n given vectors at random whose text is not newer. It needs none of our tables. share is the
// percentage of rows, or of table pages, to read.
func (g *Given) Sample(ctx context.Context, tx pgx.Tx, p *pipeline.Pipeline, share float64, pages bool, n int,
) ([]Sampled, error) {
	formats := pgx.QueryResultFormats{
		pgx.TextFormatCode, pgx.TextFormatCode, pgx.TextFormatCode, pgx.BinaryFormatCode,
	}
	var all []Sampled
	err := eachLine(ctx, tx, formats, statement{sql: g.sample(p, pages)}, []any{share, sampledText, n},
		func(raw [][]byte) error {
			one, err := scanSampled(p, raw)
			all = append(all, one)
			return err
		})
	return all, wrap.Errorf(err, "draw a sample from %s", g.Table)
}

func scanSampled(p *pipeline.Pipeline, raw [][]byte) (s Sampled, err error) {
	s.Key, s.Text, s.Title = string(raw[0]), string(raw[1]), string(raw[2])
	s.Vector, err = p.Stored.ParseBinary(raw[3])
	return s, err
}

func (g *Given) count(p *pipeline.Pipeline) string {
	return "SELECT count(*), count(v.vector), count(*) FILTER (WHERE v.stale) FROM " + source(p) +
		" LEFT JOIN LATERAL (SELECT true AS vector, bool_or(w.stale) AS stale FROM (SELECT " +
		g.columns("r."+database.Quote(g.Changed)) + " FROM " + g.from(p, ofSource(p)) +
		") AS w HAVING count(*) > 0) AS v ON true"
}

// Count returns the number of source rows, how many of them have a given vector, and how many of these are older than
// their text.
func (g *Given) Count(ctx context.Context, tx pgx.Tx, p *pipeline.Pipeline) (all, given, stale int64, err error) {
	err = tx.QueryRow(ctx, g.count(p)).Scan(&all, &given, &stale)
	return all, given, stale, wrap.Errorf(err, "count vectors in %s", g.Table)
}
