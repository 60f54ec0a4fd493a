package search

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/embedsidecar/embedsidecar/pipeline"
)

// previewed is how many characters of a text are shown.
const previewed = 200

// Reciprocal rank fusion: a row's score is the sum of 1/(fusion + its place) over both rankings. 60 is what the method was published
// with; it keeps the first places of one ranking from outweighing the agreement of two.
const (
	fusion           = 60
	hybridCandidates = 100 // rows of each ranking that are fused, at least
)

// source returns the FROM item of the source table. A plain table that others inherit from is only itself.
func source(p *pipeline.Pipeline, alias string) string {
	if p.Partitioned {
		return p.Source() + " AS " + alias
	}
	return "ONLY " + p.Source() + " AS " + alias
}

// Inside a statement the key's columns have names that no user's table has: text expressions name columns without an alias.
func own(i int) string { return fmt.Sprintf("embedsidecar_key_%d", i+1) }

// ownKeys lists them.
func ownKeys(p *pipeline.Pipeline) string {
	names := make([]string, len(p.Key))
	for i := range p.Key {
		names[i] = own(i)
	}
	return strings.Join(names, ", ")
}

// selectKeys lists the key's columns of alias under those names.
func selectKeys(p *pipeline.Pipeline, alias string) string {
	columns := make([]string, len(p.Key))
	for i, k := range p.Key {
		columns[i] = alias + "." + quote(k.Name) + " AS " + own(i)
	}
	return strings.Join(columns, ", ")
}

// sameKey compares the key of two aliases of tables.
func sameKey(p *pipeline.Pipeline, a, b string) string {
	parts := make([]string, len(p.Key))
	for i, k := range p.Key {
		parts[i] = a + "." + quote(k.Name) + " " + k.Equal + " " + b + "." + quote(k.Name)
	}
	return strings.Join(parts, " AND ")
}

// near returns the common table expressions that find the vectors nearest to $1, at most $2, and the rows they are of. A vector whose
// row is gone, which waits to be swept out of an embedding table, is not found.
func near(p *pipeline.Pipeline, conditions []string, exact bool) string {
	chunk, best := "", "NULL::integer"
	if p.Chunked {
		chunk = ", v.chunk_no AS embedsidecar_chunk"
		best = "(pg_catalog.array_agg(embedsidecar_chunk ORDER BY embedsidecar_distance, embedsidecar_chunk))[1]"
	}
	vector, from := "s."+quote(p.IntoColumn), source(p, "s")
	if !p.ToColumn() {
		vector = `v."embedding"`
		from = p.Into() + " AS v JOIN " + source(p, "s") + " ON " + sameKey(p, "v", "s")
	}
	// Vectors of an earlier generation are of the same model, and of the text as it was before: better than none.
	where := []string{vector + " IS NOT NULL"}
	for _, c := range conditions {
		where = append(where, "s."+c)
	}
	distance := vector + " " + p.DistanceOperator() + " " + p.ToStored("$1::text::"+p.VectorType())
	order := distance
	if exact { // an expression that no index is over
		order = "(" + distance + ") OPERATOR(pg_catalog.+) 0::float8"
	}
	return "WITH embedsidecar_nearest AS MATERIALIZED (\n  SELECT " + selectKeys(p, "s") + ", " + distance + " AS embedsidecar_distance" + chunk + "\n  FROM " + from +
		"\n  WHERE " + strings.Join(where, " AND ") + "\n  ORDER BY " + order + " LIMIT $2),\n" +
		"embedsidecar_near AS (\n  SELECT " + ownKeys(p) + ", pg_catalog.min(embedsidecar_distance) AS embedsidecar_distance, " + best + " AS embedsidecar_chunk,\n" +
		"    pg_catalog.row_number() OVER (ORDER BY pg_catalog.min(embedsidecar_distance), " + ownKeys(p) + ") AS embedsidecar_place\n" +
		"  FROM embedsidecar_nearest GROUP BY " + ownKeys(p) + ")"
}

// shown returns the statement's last part: the rows of found, which has keys, distance, score and chunk, with what is shown of them. Only
// for these the text is made. A row that the pipeline's filter excludes by now is not shown, though its vector may still be there.
func shown(p *pipeline.Pipeline, found, order string) string {
	again, columns := make([]string, len(p.Key)), make([]string, len(p.Key))
	for i, k := range p.Key {
		again[i] = "r." + quote(k.Name) + " " + k.Equal + " f." + own(i)
		columns[i] = literal(k.Name) + ", r." + quote(k.Name)
	}
	text, chunk, piece := "pg_catalog.left("+p.TextExpression()+", "+strconv.Itoa(previewed)+")", "NULL::jsonb", ""
	if p.Chunked {
		text = "coalesce(embedsidecar_piece.embedsidecar_text, " + text + ")"
		chunk = "embedsidecar_piece.embedsidecar_about"
		same := make([]string, len(p.Key))
		for i, k := range p.Key {
			same[i] = "c." + quote(k.Name) + " " + k.Equal + " f." + own(i)
		}
		// In a select of its own: a text of the user's names columns without the table.
		piece = "\nLEFT JOIN LATERAL (SELECT c.chunk_text AS embedsidecar_text, pg_catalog.jsonb_build_object('number', c.chunk_no, 'start_byte', c.start_byte," +
			" 'end_byte', c.end_byte, 'context', coalesce(c.context, '')) AS embedsidecar_about FROM " + p.Into() + " AS c WHERE " + strings.Join(same, " AND ") +
			" AND c.chunk_no = f.embedsidecar_chunk) AS embedsidecar_piece ON true"
	}
	return "\nSELECT " + p.KeyExpression("r") + ", pg_catalog.jsonb_build_object(" + strings.Join(columns, ", ") + "), f.embedsidecar_distance, f.embedsidecar_score,\n" +
		"  coalesce(" + text + ", ''), " + chunk + ", (SELECT pg_catalog.count(*) FROM embedsidecar_nearest)\n" +
		"FROM " + found + " AS f JOIN " + source(p, "r") + " ON " + strings.Join(again, " AND ") + piece + "\nWHERE " + p.FilterExpression() + "\nORDER BY " + order
}

// nearestSQL returns the search by vector alone.
func nearestSQL(p *pipeline.Pipeline, conditions []string, exact bool) string {
	return near(p, conditions, exact) + shown(p, "(SELECT *, NULL::float8 AS embedsidecar_score FROM embedsidecar_near)", "f.embedsidecar_place")
}

// hybridSQL returns the search by vector and by the words of the text in parameter $word. A row with any of the words counts; how well
// it is ranked depends on how many it has, and how near to one another.
func hybridSQL(p *pipeline.Pipeline, conditions []string, language string, word, rows int, exact bool) string {
	// A parameter, and quoted once more as a lexeme: nothing in it can be an operator.
	lexemes := fmt.Sprintf(`SELECT pg_catalog.string_agg('''' || pg_catalog.replace(pg_catalog.replace(w.lexeme, '\', '\\'), '''', '''''') || '''', ' | ')::pg_catalog.tsquery AS embedsidecar_words`+
		" FROM pg_catalog.unnest(pg_catalog.to_tsvector(%s, $%d::text)) AS w", language, word)
	document := words(p, language, "r.")
	where := []string{document + " OPERATOR(pg_catalog.@@) embedsidecar_query.embedsidecar_words", p.FilterExpression()}
	for _, c := range conditions {
		where = append(where, "r."+c)
	}
	rank := "pg_catalog.ts_rank_cd(" + document + ", embedsidecar_query.embedsidecar_words)"
	place := func(score string) string {
		return "1.0::float8 / (" + strconv.Itoa(fusion) + " + " + score + ")"
	}
	return near(p, conditions, exact) + ",\n" +
		"embedsidecar_query AS MATERIALIZED (" + lexemes + "),\n" +
		"embedsidecar_worded AS MATERIALIZED (\n  SELECT " + selectKeys(p, "r") + ", " + rank + " AS embedsidecar_rank\n  FROM embedsidecar_query, " + source(p, "r") +
		"\n  WHERE " + strings.Join(where, " AND ") + "\n  ORDER BY embedsidecar_rank DESC LIMIT $2),\n" +
		"embedsidecar_both AS (\n  SELECT " + ownKeys(p) + ", embedsidecar_distance, embedsidecar_chunk, " + place("embedsidecar_place") + " AS embedsidecar_part FROM embedsidecar_near\n" +
		"  UNION ALL SELECT " + ownKeys(p) + ", NULL, NULL, " + place("pg_catalog.row_number() OVER (ORDER BY embedsidecar_rank DESC, "+ownKeys(p)+")") + " FROM embedsidecar_worded),\n" +
		"embedsidecar_fused AS (\n  SELECT " + ownKeys(p) + ", pg_catalog.min(embedsidecar_distance) AS embedsidecar_distance, pg_catalog.min(embedsidecar_chunk) AS embedsidecar_chunk, pg_catalog.sum(embedsidecar_part) AS embedsidecar_score\n" +
		"  FROM embedsidecar_both GROUP BY " + ownKeys(p) +
		"\n  ORDER BY embedsidecar_score DESC, " + ownKeys(p) + " LIMIT " + strconv.Itoa(rows) + ")" +
		shown(p, "embedsidecar_fused", "f.embedsidecar_score DESC, "+ownKeys(p))
}

// words returns the SQL of a row's words. Columns are joined by ||, and not as the text itself is: concat_ws is not immutable, and no
// index could be built over it.
func words(p *pipeline.Pipeline, language, alias string) string {
	text := p.TextExpression()
	if p.Text == "" {
		parts := make([]string, len(p.Columns))
		for i, c := range p.Columns {
			parts[i] = "coalesce(" + alias + quote(c) + "::text, '')"
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
func vectorOf(p *pipeline.Pipeline, params []string) string {
	if p.ToColumn() {
		return "SELECT " + p.KeyExpression("r") + ", r." + quote(p.IntoColumn) + " FROM " + source(p, "r") + " WHERE " + p.MatchKey("r", params)
	}
	return "SELECT " + p.KeyExpression("v") + `, v."embedding" FROM ` + p.Into() + " AS v WHERE " + p.MatchKey("v", params) +
		" ORDER BY v.chunk_no LIMIT 1"
}

func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
