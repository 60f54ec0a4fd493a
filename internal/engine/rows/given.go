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

// Given is where vectors of a pipeline's rows are already, made by another program: a table with one row for each of
// the source, or several where texts were cut. It may be the source table itself. Its row is called g.
type Given struct {
	Table  string   // as a FROM item, without an alias
	Key    []string // its columns with the values of the source's key, in that order
	Vector string   // SQL of the vector, in the type of the destination
	There  string   // SQL condition: there is a vector, and it fits
	// columns of the source and of the given row: a text that changed after its vector was made; "": nobody says
	Changed, Made string
	// of chunks: the column with the text, and what orders those of a row
	Text, Order string
}

// GivenVector is a vector of a row.
type GivenVector struct {
	Vector []float32 // as it is stored
	Stale  bool      // the row says that its text is newer
	Text   string    // of the chunk
}

// from joins the source row r, or what has its key as columns, with its given rows.
func (g *Given) from(p *pipeline.Pipeline, key func(i int) string) string {
	same := make([]string, len(p.Key))
	for i, k := range p.Key {
		same[i] = "g." + database.Quote(g.Key[i]) + " " + k.Equal + " " + key(i)
	}
	return g.Table + " AS g WHERE " + strings.Join(same, " AND ") + " AND " + g.There
}

// columns are what is read of a given row; changed is the SQL of when the text changed.
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

// order is how the given rows of one source row follow each other.
func (g *Given) order() string {
	if g.Order == "" {
		return ""
	}
	return ", g." + database.Quote(g.Order)
}

// givenFormats are how a place, a vector, staleness and a chunk come.
var givenFormats = pgx.QueryResultFormats{
	pgx.TextFormatCode, pgx.BinaryFormatCode, pgx.TextFormatCode, pgx.TextFormatCode,
}

// read is the statement that reads the given vectors of rows.
func (g *Given) read(p *pipeline.Pipeline) statement {
	return build(p, func(b *builder) string {
		return "SELECT k.place, v.vector, v.stale OR " + sinceSetUp(p) + ", v.chunk FROM " +
			b.list() + " JOIN " + source(p) + " ON " +
			b.matchSource() + " CROSS JOIN LATERAL (SELECT " + g.columns("r."+database.Quote(g.Changed)) +
			", row_number() OVER (ORDER BY g.ctid" + g.order() + ") AS no FROM " + g.from(p, ofSource(p)) +
			") AS v ORDER BY k.place, v.no"
	})
}

// sinceSetUp is the SQL that reports whether the source row r was changed since its pipeline was set up: whether a
// vector is of that text nobody knows, and the stream that comes to the change finds the row as it was taken over. Ids
// of transactions are compared in a circle, of which only what can have begun since then counts: a frozen row may have
// any.
func sinceSetUp(p *pipeline.Pipeline) string {
	const running = 1_000_000 // more than can be above the last one that has ended
	return fmt.Sprintf("coalesce((SELECT (r.xmin::text::bigint - s.barrier::text::bigint) & 4294967295 <="+
		" %d + greatest(0, pg_snapshot_xmax(pg_current_snapshot())::text::bigint - s.barrier::text::bigint)"+
		" FROM embedsidecar.scan AS s WHERE s.pipeline_id = %d), false)", running, p.ID)
}

// ofSource is the SQL of the columns of the key of the source row r.
func ofSource(p *pipeline.Pipeline) func(i int) string {
	return func(i int) string { return "r." + database.Quote(p.Key[i].Name) }
}

// Given returns the given vectors of rows, in the order of their keys. It returns ErrSplit.
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

// scanGiven takes a line of the statement: the place of its row, a vector, whether it is stale, and the chunk.
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

// Sampled is a vector that is compared with what the model gives of its text.
type Sampled struct {
	Key, Text, Title string
	Vector           []float32
}

// sampledText is the most bytes of a text that is embedded to compare.
const sampledText = 64 << 10

// sample is the SQL that draws vectors. $1 is the share, $2 the most bytes of a text, and $3 how many are wanted.
func (g *Given) sample(p *pipeline.Pipeline, pages bool) string {
	method := "BERNOULLI"
	if pages {
		method = "SYSTEM"
	}
	// The text is read in a query of its own: what it names must not be columns of the given table.
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

// Sample draws about so many given vectors at random, of those whose text is not newer. It needs nothing of ours in
// the database. share is how many of a hundred rows, or pages of them, are looked at.
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

// Count returns how many rows the source has and, of these, how many have a given vector and how many of those are
// older than their text.
func (g *Given) Count(ctx context.Context, tx pgx.Tx, p *pipeline.Pipeline) (all, given, stale int64, err error) {
	err = tx.QueryRow(ctx, g.count(p)).Scan(&all, &given, &stale)
	return all, given, stale, wrap.Errorf(err, "count vectors in %s", g.Table)
}
