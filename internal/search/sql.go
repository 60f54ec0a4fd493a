package search

import (
	"fmt"
	"html"
	"strconv"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// previewed is the number of characters of a text that are shown.
const previewed = 200

// Reciprocal rank fusion: the score of a row is the sum of 1/(fusion + rank) over both rankings. 60 is the published
// constant. It keeps a first place in one ranking from outweighing a row that both rankings contain.
const (
	fusion           = 60
	hybridCandidates = 100 // minimum number of rows of each ranking that are fused
)

// source returns the FROM item of the source table.
func source(p *pipeline.Pipeline, alias string) string { return p.Rows() + " AS " + alias }

// near returns the statement of the search by vector. It takes the $2 vectors nearest to $1, with ties, and returns the
// keys of their rows, the nearest chunk of each, and the number of vectors. It skips a vector whose row is gone and
// which is not yet removed from the embedding table, and one of zeros, which a user may have stored: it has no
// direction, and is near to nothing. The key breaks ties, so that pages do not overlap.
func (s *statement) near(exact bool) string {
	p := s.p
	chunk, best := "", "NULL::integer"
	if p.Chunked {
		chunk = ", v.chunk_no AS embedsidecar_chunk"
		best = "(pg_catalog.array_agg(embedsidecar_chunk ORDER BY embedsidecar_distance, embedsidecar_chunk))[1]"
	}
	vector, from := vectors(p)
	// Vectors of an earlier generation are from the same model, of an older text. They are better than none.
	where := vector + " IS NOT NULL" + and("s", s.conditions)
	distance := p.Distance(vector, "$1::text::"+p.VectorType())
	order := distance
	if exact { // an expression without an index
		order = "(" + distance + ") OPERATOR(pg_catalog.+) 0::float8"
	}
	keys := keysOf(p, "n")
	return "WITH embedsidecar_nearest AS MATERIALIZED (\n  SELECT " + keysOf(p, "s") + ", " + distance +
		" AS embedsidecar_distance" + chunk + "\n  FROM " + from +
		"\n  WHERE " + where + "\n  ORDER BY " + order + " FETCH FIRST ($2) ROWS WITH TIES)\n" +
		"SELECT " + p.KeyExpression("n") + ", pg_catalog.min(embedsidecar_distance), " + best +
		", (SELECT pg_catalog.count(*) FROM embedsidecar_nearest)\n" +
		"FROM embedsidecar_nearest AS n WHERE embedsidecar_distance OPERATOR(pg_catalog.<>) 'NaN'::float8 GROUP BY " + keys + "\nORDER BY pg_catalog.min(embedsidecar_distance), " + keys +
		" LIMIT $2"
}

// vectors returns the expression of the vector, and the FROM item with the source row s and, if there is one, the
// embedding table v.
func vectors(p *pipeline.Pipeline) (vector, from string) {
	if p.InSource() {
		return p.VectorOf("s"), source(p, "s")
	}
	return p.VectorOf("v"), p.Into() + " AS v JOIN " + source(p, "s") + " ON " + p.SameKey("v", "s")
}

// and returns conditions on an alias, each preceded by AND.
func and(alias string, conditions []string) string {
	var b strings.Builder
	for _, c := range conditions {
		b.WriteString(" AND " + alias + "." + c)
	}
	return b.String()
}

// shownSQL returns the statement that reads the contents of rows. $1 and the following parameters are their keys, one
// array for each column; the last is the numbers of their nearest chunks. It evaluates text and filter for these rows
// only. It leaves out a row that the filter now excludes, even if its vector still exists.
func (s *statement) shownSQL(withText bool) string {
	p := s.p
	arrays, names, keys := make([]string, len(p.Key)), make([]string, len(p.Key)), make([]string, len(p.Key))
	var columns []string
	for i, k := range p.Key {
		arrays[i] = "pg_catalog.unnest(" + k.TypedList(fmt.Sprintf("$%d", i+1)) + ")"
		// Text expressions name columns without an alias, so the other FROM items must not use names that a user's
		// column has.
		names[i] = fmt.Sprintf("embedsidecar_key_%d", i+1)
		keys[i] = "k." + names[i]
		columns = append(columns, database.Literal(k.Name)+", "+k.JSON("r."+database.Quote(k.Name)))
	}
	for _, c := range s.wanted {
		columns = append(columns, database.Literal(c.Name)+", "+returned(c))
	}
	shown := strings.Join(columns, ", ")
	text, long, chunk, piece := "''", "''", "NULL::jsonb", ""
	if withText {
		shown := previewed
		if s.request.Rerank > 0 {
			shown = s.request.reranked()
		}
		text = "pg_catalog.left(" + p.TextExpression() + ", " + strconv.Itoa(shown) + ")"
		long = "pg_catalog.left(" + p.TextExpression() + ", " + strconv.Itoa(mostCharacters) + ")"
	}
	if p.Chunked {
		text = "coalesce(embedsidecar_piece.embedsidecar_text, " + text + ")"
		long = "coalesce(embedsidecar_piece.embedsidecar_text, " + long + ")"
		chunk = "embedsidecar_piece.embedsidecar_about"
		// In its own sub-select, because a user's text expression names columns without an alias.
		piece = "\nLEFT JOIN LATERAL (SELECT c.chunk_text AS embedsidecar_text, pg_catalog.jsonb_build_object('number', c.chunk_no, 'start_byte', c.start_byte," +
			" 'end_byte', c.end_byte, 'context', coalesce(c.context, '')) AS embedsidecar_about FROM " + p.Into() +
			" AS c WHERE " + p.MatchKey("c", keys) +
			" AND c.chunk_no = k.embedsidecar_chunk) AS embedsidecar_piece ON true"
	}
	return "SELECT k.embedsidecar_place, " + p.KeyExpression("r") + ", pg_catalog.jsonb_build_object(" +
		shown + "), coalesce(" + text + ", ''), " + chunk + ", " + s.highlighted(long) +
		"\nFROM ROWS FROM (" + strings.Join(arrays, ", ") + fmt.Sprintf(", pg_catalog.unnest($%d::integer[])", len(p.Key)+1) +
		") WITH ORDINALITY AS k (" + strings.Join(names, ", ") +
		", embedsidecar_chunk, embedsidecar_place)\nJOIN " + source(p, "r") + " ON " + p.MatchKey("r", keys) + piece +
		"\nWHERE " + p.FilterExpression() + "\nORDER BY k.embedsidecar_place"
}

// mostCharacters limits the characters returned of a column value, and those of a text that are read for passages.
const mostCharacters = 65536

// Marks that ts_headline puts around a word. They are removed from the text first, so no text can forge a mark.
const markBegin, markEnd = "\x02", "\x03"

// highlighted returns the SQL for passages of a text with the query's words marked (see marked). The words are the
// parameter after those of shownSQL. ts_headline leaves out the markup that it recognizes.
func (s *statement) highlighted(text string) string {
	if !s.request.Highlight {
		return "''"
	}
	return "pg_catalog.ts_headline(" + s.language + ", pg_catalog.translate(" + text + ", E'\\x02\\x03', ''), " +
		fmt.Sprintf("$%d::text::pg_catalog.tsquery, ", len(s.p.Key)+2) + "E'StartSel=\"\\x02\", StopSel=\"\\x03\", " +
		"MaxFragments=3, MinWords=10, MaxWords=30, FragmentDelimiter=\" ... \"')"
}

// marked converts the passages of highlighted to HTML.
func marked(passages string) string {
	return strings.NewReplacer(markBegin, "<mark>", markEnd, "</mark>").Replace(html.EscapeString(passages))
}

// returned is the SQL for the value of a column of row r, cut if it is long.
func returned(c filterable) string {
	value := "r." + database.Quote(c.Name)
	printed := "pg_catalog.format('%s', " + value + ")"
	return fmt.Sprintf("CASE WHEN pg_catalog.length(%[1]s) > %[2]d THEN pg_catalog.to_jsonb(pg_catalog.left(%[1]s, %[2]d))"+
		" WHEN %[3]s IS NULL THEN NULL ELSE pg_catalog.to_jsonb(%[4]s) END", printed, mostCharacters, value,
		pipeline.KeyColumn{Type: c.Type}.JSON(value))
}

// wording returns the statement of the search for the words of $1, a tsquery. It returns the keys of at most $2 rows of
// a part of the table, best first. A row with any of the words matches; its rank depends on how many words it has and
// how close together they are.
func (s *statement) wording(in part) string {
	p := s.p
	document, query := words(p, s.language, "r."), "$1::text::pg_catalog.tsquery"
	return "SELECT " + p.KeyExpression("r") + ", pg_catalog.ts_rank_cd(" + document + ", " + query +
		") AS embedsidecar_rank\nFROM " + partOf(p, in) +
		"\nWHERE " + document + " OPERATOR(pg_catalog.@@) " + query + " AND " + p.FilterExpression() + and("r",
		s.conditions) +
		"\nORDER BY embedsidecar_rank DESC, " + keysOf(p, "r") + " LIMIT $2"
}

// keysOf lists the key columns of an alias.
func keysOf(p *pipeline.Pipeline, alias string) string {
	columns := lists.Map(p.Key, func(k pipeline.KeyColumn) string { return alias + "." + database.Quote(k.Name) })
	return strings.Join(columns, ", ")
}

// partOf returns the FROM item of a part of the source table. OFFSET 0 keeps the server from evaluating other
// expressions on a row before it has checked that the row is in the part.
func partOf(p *pipeline.Pipeline, in part) string {
	if in.table == 0 {
		return source(p, "r")
	}
	return "(SELECT * FROM " + source(p, "r") + " WHERE " + placed(in) + " OFFSET 0) AS r"
}

// placed returns the condition that a row is in a part.
func placed(in part) string {
	condition := fmt.Sprintf("r.tableoid = %d::oid AND r.ctid >= '(%d,0)'::tid AND r.ctid < '(%d,0)'::tid", in.table,
		in.from, in.to)
	if in.places != nil {
		condition += ` AND r.ctid = ANY ('{"` + strings.Join(in.places, `","`) + `"}'::tid[])`
	}
	return condition
}

// words returns the SQL for the tsvector of a row. It joins columns with ||, unlike the pipeline's text: concat_ws is
// not immutable, so an index on it would be impossible.
func words(p *pipeline.Pipeline, language, alias string) string {
	text := p.TextExpression()
	if p.Text == "" {
		parts := lists.Map(p.Columns, func(c string) string {
			return "coalesce(" + p.ColumnText(alias+database.Quote(c), c) + ", '')"
		})
		text = strings.Join(parts, " || ' ' || ")
	}
	return "pg_catalog.to_tsvector(" + language + ", " + text + ")"
}

// vectorOf returns the query for the key (as the row prints it) and the vector of one row.
func vectorOf(p *pipeline.Pipeline, params, conditions []string) string {
	vector, from := vectors(p)
	first := ""
	if p.Chunked {
		first = " ORDER BY v.chunk_no LIMIT 1"
	}
	return "SELECT " + p.KeyExpression("s") + ", " + vector + " FROM " + from + " WHERE " + p.MatchKey("s", params) +
		and("s", conditions) + first
}
