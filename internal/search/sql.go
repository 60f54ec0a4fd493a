package search

import (
	"fmt"
	"html"
	"strconv"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// previewed is how many characters of a text are shown.
const previewed = 200

// Reciprocal rank fusion: a row's score is the sum of 1/(fusion + its place) over both rankings. 60 is what the method
// was published with; it keeps the first places of one ranking from outweighing the agreement of two.
const (
	fusion           = 60
	hybridCandidates = 100 // rows of each ranking that are fused, at least
)

// source returns the FROM item of the source table.
func source(p *pipeline.Pipeline, alias string) string { return p.Rows() + " AS " + alias }

// sameKey compares the key of two aliases of tables.
func sameKey(p *pipeline.Pipeline, a, b string) string {
	parts := make([]string, len(p.Key))
	for i, k := range p.Key {
		parts[i] = a + "." + quote(k.Name) + " " + k.Equal + " " + b + "." + quote(k.Name)
	}
	return strings.Join(parts, " AND ")
}

// near returns the search by vector: the keys of the rows whose vectors are nearest to $1, of at most $2 vectors, with
// the nearest chunk of each and the number of vectors. A vector whose row is gone, which waits to be swept out of an
// embedding table, is not found. Of several that are as near as the last, the key decides, so that pages fit together.
func (s *statement) near(exact bool) string {
	p := s.p
	chunk, best := "", "NULL::integer"
	if p.Chunked {
		chunk = ", v.chunk_no AS embedsidecar_chunk"
		best = "(pg_catalog.array_agg(embedsidecar_chunk ORDER BY embedsidecar_distance, embedsidecar_chunk))[1]"
	}
	vector, from := vectors(p)
	// Vectors of an earlier generation are of the same model, and of the text as it was before: better than none.
	where := vector + " IS NOT NULL" + and("s", s.conditions)
	distance := p.Distance(vector, "$1::text::"+p.VectorType())
	order := distance
	if exact { // an expression that no index is over
		order = "(" + distance + ") OPERATOR(pg_catalog.+) 0::float8"
	}
	keys := keysOf(p, "n")
	return "WITH embedsidecar_nearest AS MATERIALIZED (\n  SELECT " + keysOf(p, "s") + ", " + distance +
		" AS embedsidecar_distance" + chunk + "\n  FROM " + from +
		"\n  WHERE " + where + "\n  ORDER BY " + order + " FETCH FIRST ($2) ROWS WITH TIES)\n" +
		"SELECT " + p.KeyExpression("n") + ", pg_catalog.min(embedsidecar_distance), " + best +
		", (SELECT pg_catalog.count(*) FROM embedsidecar_nearest)\n" +
		"FROM embedsidecar_nearest AS n GROUP BY " + keys + "\nORDER BY pg_catalog.min(embedsidecar_distance), " + keys +
		" LIMIT $2"
}

// vectors returns the vector of a source row s, and the FROM item that has both; of an embedding table it is called v.
func vectors(p *pipeline.Pipeline) (vector, from string) {
	if p.InSource() {
		return p.VectorOf("s"), source(p, "s")
	}
	return p.VectorOf("v"), p.Into() + " AS v JOIN " + source(p, "s") + " ON " + sameKey(p, "v", "s")
}

// and puts conditions on a table behind others.
func and(alias string, conditions []string) string {
	var b strings.Builder
	for _, c := range conditions {
		b.WriteString(" AND " + alias + "." + c)
	}
	return b.String()
}

// shownSQL returns the statement that reads what is shown of rows, by their keys ($1 and on, an array for each column)
// and the numbers of their nearest chunks (the last parameter). Only for these rows text and filter are evaluated. A
// row that the filter excludes by now is not shown, though its vector may still be there.
func (s *statement) shownSQL(withText bool) string {
	p := s.p
	arrays, names, keys := make([]string, len(p.Key)), make([]string, len(p.Key)), make([]string, len(p.Key))
	var columns []string
	for i, k := range p.Key {
		arrays[i] = "pg_catalog.unnest(" + k.TypedList(fmt.Sprintf("$%d", i+1)) + ")"
		// Beside the table are only names that no user's has: text expressions name columns without an alias.
		names[i] = fmt.Sprintf("embedsidecar_key_%d", i+1)
		keys[i] = "k." + names[i]
		columns = append(columns, literal(k.Name)+", "+k.JSON("r."+quote(k.Name)))
	}
	for _, c := range s.wanted {
		columns = append(columns, literal(c.Name)+", "+returned(c))
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
		// In a select of its own: a text of the user's names columns without the table.
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

// mostCharacters is how much of the value of a column is returned, and of a text is read for passages.
const mostCharacters = 65536

// What ts_headline puts around a word: characters that no text keeps, as nothing of a text may pass for a mark.
const markBegin, markEnd = "\x02", "\x03"

// highlighted returns the SQL of passages of a text with the words of the question marked, for marked. The words are
// the parameter behind those of shownSQL. Markup that the server knows as such is left out by it.
func (s *statement) highlighted(text string) string {
	if !s.request.Highlight {
		return "''"
	}
	return "pg_catalog.ts_headline(" + s.language + ", pg_catalog.translate(" + text + ", E'\\x02\\x03', ''), " +
		fmt.Sprintf("$%d::text::pg_catalog.tsquery, ", len(s.p.Key)+2) + "E'StartSel=\"\\x02\", StopSel=\"\\x03\", " +
		"MaxFragments=3, MinWords=10, MaxWords=30, FragmentDelimiter=\" ... \"')"
}

// marked is what highlighted has found as HTML.
func marked(passages string) string {
	return strings.NewReplacer(markBegin, "<mark>", markEnd, "</mark>").Replace(html.EscapeString(passages))
}

// returned is the SQL of the value of a column of row r, of which a long one is cut.
func returned(c filterable) string {
	value := "r." + quote(c.Name)
	printed := "pg_catalog.format('%s', " + value + ")"
	return fmt.Sprintf("CASE WHEN pg_catalog.length(%[1]s) > %[2]d THEN pg_catalog.to_jsonb(pg_catalog.left(%[1]s, %[2]d))"+
		" WHEN %[3]s IS NULL THEN NULL ELSE pg_catalog.to_jsonb(%[4]s) END", printed, mostCharacters, value,
		pipeline.KeyColumn{Type: c.Type}.JSON(value))
}

// wording returns the search for the words of $1, a tsquery: the keys of at most $2 rows of a part of the table, best
// first. A row with any of the words counts; how well it is ranked depends on how many it has, and how near to one
// another.
func (s *statement) wording(in part) string {
	p := s.p
	document, query := words(p, s.language, "r."), "$1::text::pg_catalog.tsquery"
	return "SELECT " + p.KeyExpression("r") + ", pg_catalog.ts_rank_cd(" + document + ", " + query +
		") AS embedsidecar_rank\nFROM " + partOf(p, in) +
		"\nWHERE " + document + " OPERATOR(pg_catalog.@@) " + query + " AND " + p.FilterExpression() + and("r",
		s.conditions) +
		"\nORDER BY embedsidecar_rank DESC, " + keysOf(p, "r") + " LIMIT $2"
}

// keysOf lists the key's columns of alias.
func keysOf(p *pipeline.Pipeline, alias string) string {
	columns := lists.Map(p.Key, func(k pipeline.KeyColumn) string { return alias + "." + quote(k.Name) })
	return strings.Join(columns, ", ")
}

// partOf returns the FROM item of a part of the source table. OFFSET keeps the server from evaluating anything of a
// row before it knows that the row lies in the part.
func partOf(p *pipeline.Pipeline, in part) string {
	if in.table == 0 {
		return source(p, "r")
	}
	return "(SELECT * FROM " + source(p, "r") + " WHERE " + placed(in) + " OFFSET 0) AS r"
}

// placed is the condition of being in a part.
func placed(in part) string {
	condition := fmt.Sprintf("r.tableoid = %d::oid AND r.ctid >= '(%d,0)'::tid AND r.ctid < '(%d,0)'::tid", in.table,
		in.from, in.to)
	if in.places != nil {
		condition += ` AND r.ctid = ANY ('{"` + strings.Join(in.places, `","`) + `"}'::tid[])`
	}
	return condition
}

// placesSQL returns the query for the places of a part's rows.
func placesSQL(p *pipeline.Pipeline, in part) string {
	return "SELECT r.ctid::text FROM " + source(p, "r") + " WHERE " + placed(in)
}

// words returns the SQL of a row's words. Columns are joined by ||, and not as the text itself is: concat_ws is not
// immutable, and no index could be built over it.
func words(p *pipeline.Pipeline, language, alias string) string {
	text := p.TextExpression()
	if p.Text == "" {
		parts := make([]string, len(p.Columns))
		for i, c := range p.Columns {
			parts[i] = "coalesce(" + p.ColumnText(alias+quote(c), c) + ", '')"
		}
		text = strings.Join(parts, " || ' ' || ")
	}
	return "pg_catalog.to_tsvector(" + language + ", " + text + ")"
}

// wordsIndex returns the statement that makes the index a hybrid search can use.
func wordsIndex(p *pipeline.Pipeline, language string) string {
	return "CREATE INDEX CONCURRENTLY ON " + p.Source() + " USING gin (" + words(p, language, "") + ")"
}

// vectorOf returns the query for the key, as the row prints it, and the vector of one row.
func vectorOf(p *pipeline.Pipeline, params, conditions []string) string {
	vector, from := vectors(p)
	first := ""
	if p.Chunked {
		first = " ORDER BY v.chunk_no LIMIT 1"
	}
	return "SELECT " + p.KeyExpression("s") + ", " + vector + " FROM " + from + " WHERE " + p.MatchKey("s", params) +
		and("s", conditions) + first
}

func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
