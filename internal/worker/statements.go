package worker

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// maxText is how many characters of a text are looked at. Models read a few thousand tokens at most, but no number of
// characters is certain to hold them: a tokenizer may make nothing of a megabyte of blanks.
const maxText = 1 << 20

// statements are a pipeline's own SQL, built once from confirmed names.
type statements struct {
	read    string // rows by key; the last parameter says how many bytes of texts to send
	formats pgx.QueryResultFormats
	gone    string // which of some keys have no source row
	spell   string // keys as values of the key columns: it fails if one is none
	write   string // vectors to the destination
	empty   string // take vectors away from rows that have no text
	adopt   string // an embedding table's vectors of an older generation become those of this one
	remove  string // vectors of rows that are gone; "" with a column, which went with its row
	lock    string // a column's rows, skipping locked ones, with their source hash; "" with an embedding table
	// what triggers have left of a column's rows: whether the vector is what was written, and the source hash
	after   string
	reuse   string         // vectors by key
	vectors pageStatements // keys of an embedding table, and whether they have no source row; empty with a column
	rows    pageStatements // keys of the source table, and whether the ledger knows them

	chunks chunkStatements
}

// pageStatements give the next keys of a table, from the largest to the smallest, each with what is asked of it.
type pageStatements struct{ first, next string }

func ident(name string) string { return pgx.Identifier{name}.Sanitize() }

// source returns the FROM item of the source table. A plain table that others inherit from is only itself.
func source(p *pipeline.Pipeline) string {
	if p.Partitioned {
		return p.Source() + " AS r"
	}
	return "ONLY " + p.Source() + " AS r"
}

func newStatements(p *pipeline.Pipeline) statements {
	n := len(p.Key)
	names := make([]string, n)  // k.k1, k.k2: the key's texts in a list of rows
	params := make([]string, n) // one array per key column
	for i := range n {
		names[i] = fmt.Sprintf("k.k%d", i+1)
		params[i] = fmt.Sprintf("pg_catalog.unnest($%d::text[])", i+1)
	}
	// list is a FROM item: keys, then more arrays, numbered.
	list := func(more ...string) string {
		arrays, columns := slices.Clone(params), make([]string, 0, n+len(more))
		for i := range n {
			columns = append(columns, fmt.Sprintf("k%d", i+1))
		}
		for i, m := range more {
			name, typ, _ := strings.Cut(m, " ")
			arrays = append(arrays, fmt.Sprintf("pg_catalog.unnest($%d::%s[])", n+1+i, typ))
			columns = append(columns, name)
		}
		return "ROWS FROM (" + strings.Join(arrays, ", ") + ") WITH ORDINALITY AS k (" + strings.Join(columns, ", ") +
			", place)"
	}
	match := p.MatchKey("r", names)
	values := make([]string, n)
	for i, k := range p.Key {
		values[i] = k.Value(names[i])
	}
	s := statements{spell: "SELECT " + strings.Join(values, ", ") + " FROM " + list()}
	s.buildRead(p, list, match)
	s.buildScan(p, list, match)
	if p.ToColumn() {
		s.buildColumn(p, list, match)
	} else {
		s.buildTable(p, list, names)
	}
	if p.Chunked {
		s.buildChunks(p, list, names)
	}
	return s
}

// The columns that read gives.
const (
	readPlace = iota
	readKey
	readKeep
	readText
	readBytes // of a text that is more than blanks
	readSum   // the text hash of a text that is not sent
	readTitle // chunked: the beginning of the context line
	readSource
	readLedgerSource
	readLedgerText
	readLedgerVector
	readLedgerGeneration
	readLedgerVersion // xmin of the entry: what a write-back compares
	// column: the vector; table: the text hash of the stored row; chunked: the hash of those of all chunks
	readStored
	readStoredGeneration // table only
	readColumns
)

// blanks are the characters of which a text may consist that is empty, but for those that are rarer.
const blanks = `E' \t\n\f\r\x0b'`

// buildRead makes the statement that reads rows by key. Texts are sent up to a number of bytes: of all rows together,
// or with chunks of each. Of others there is the hash. The bytes of a SQL_ASCII database may have to be mended before
// they are hashed, which only the worker does.
func (s *statements) buildRead(p *pipeline.Pipeline, list func(...string) string, match string) {
	n := len(p.Key)
	limit := fmt.Sprintf("$%d::bigint", n+2)
	inner := []string{
		p.KeyExpression("r") + " AS row_key", p.FilterExpression() + " AS keep",
		sourceHash(p) + " AS source",
	}
	send, hash, title := "(sum(octet_length(f.body)) OVER (ORDER BY k.place) <= "+limit+
		" OR pg_client_encoding() = 'SQL_ASCII')",
		"sha256(convert_to(f.body, pg_client_encoding()::name))", "NULL::text"
	if p.Chunked {
		inner = append(inner, fmt.Sprintf("CASE WHEN %s THEN %s END AS body", p.FilterExpression(), p.TextExpression()),
			fmt.Sprintf("CASE WHEN %s THEN left(%s, %d) END AS title", p.FilterExpression(), p.ContextExpression(), maxTitle))
		send, title = "octet_length(f.body) <= "+limit, "f.title"
		hash = "CASE WHEN pg_client_encoding() <> 'SQL_ASCII' THEN " + p.Chunking.ChunkedHashExpression("f.body", "f.title") +
			" END"
	} else {
		inner = append(inner, fmt.Sprintf("CASE WHEN %s THEN left(%s, %d) END AS body", p.FilterExpression(),
			p.TextExpression(), maxText))
	}
	body := fmt.Sprintf("CASE WHEN %s THEN f.body END, CASE WHEN btrim(f.body, %s) <> '' THEN octet_length(f.body) END, CASE WHEN NOT %s THEN %s END, %s",
		send, blanks, send, hash, title)
	s.formats = make(pgx.QueryResultFormats, readColumns)
	for _, at := range []int{readSum, readSource, readLedgerSource, readLedgerText, readLedgerVector, readStored} {
		s.formats[at] = pgx.BinaryFormatCode
	}
	stored, join := "f.stored, NULL::integer", ""
	if p.ToColumn() {
		inner = append(inner, "r."+ident(p.IntoColumn)+" AS stored")
	} else {
		stored = "d.text_hash, d.generation"
		found, which := "e.text_hash, e.generation", " AND e.chunk_no = 0 OFFSET 0"
		if p.Chunked {
			found = "sha256(string_agg(e.text_hash, ''::bytea ORDER BY e.chunk_no)) AS text_hash," +
				" CASE WHEN min(e.generation) = max(e.generation) THEN min(e.generation) ELSE -1 END AS generation"
			which = ""
		}
		texts := make([]string, n)
		for i := range n {
			texts[i] = fmt.Sprintf("k.k%d", i+1)
		}
		join = "\nLEFT JOIN LATERAL (SELECT " + found + " FROM " + p.Into() + " AS e WHERE " + p.MatchKey("e", texts) +
			which + ") AS d ON true"
	}
	s.read = "SELECT k.place, f.row_key, f.keep, " + body +
		", f.source, l.source_hash, l.text_hash, l.vector_hash, l.generation, l.version, " + stored +
		"\nFROM " + list("row_key text") +
		"\nLEFT JOIN LATERAL (SELECT " + strings.Join(inner, ", ") + " FROM " + source(p) + " WHERE " + match +
		" LIMIT 1) AS f ON true" +
		fmt.Sprintf("\nLEFT JOIN LATERAL (SELECT g.source_hash, g.text_hash, g.vector_hash, g.generation, g.xmin::text AS version FROM embedsidecar.ledger AS g"+
			" WHERE g.pipeline_id = %d AND g.row_key = k.row_key OFFSET 0) AS l ON true", p.ID) + join +
		"\nORDER BY k.place"
}

// buildScan makes the statements of a scan.
func (s *statements) buildScan(p *pipeline.Pipeline, list func(...string) string, match string) {
	s.rows = buildPages(p, source(p),
		fmt.Sprintf("EXISTS (SELECT FROM embedsidecar.ledger AS l WHERE l.pipeline_id = %d AND l.row_key = %s OFFSET 0)",
			p.ID, p.KeyExpression("f")))
	s.gone = "SELECT k.row_key FROM " + list("row_key text") + " WHERE NOT EXISTS (SELECT FROM " + source(p) + " WHERE " +
		match +
		" AND " + p.KeyExpression("r") + " = k.row_key OFFSET 0)"
	if p.ToColumn() {
		return
	}
	// The key columns have the same names and types in both tables, so no cast is needed to compare them.
	parts := make([]string, len(p.Key))
	for i, k := range p.Key {
		parts[i] = "r." + ident(k.Name) + " " + k.Equal + " f." + ident(k.Name)
	}
	s.vectors = buildPages(p, p.Into()+" AS r", "NOT EXISTS (SELECT FROM "+source(p)+" WHERE "+strings.Join(parts,
		" AND ")+" OFFSET 0)")
}

// buildPages makes the statements that give the keys of a table, which is called r, with a question about each, which
// is called f. They go from the largest key to the smallest, in the order of the key's own index, so that new rows,
// which are the ones people look for, come first.
func buildPages(p *pipeline.Pipeline, table, question string) pageStatements {
	n := len(p.Key)
	keys, order := make([]string, n), make([]string, n)
	builtIn := true
	for i, k := range p.Key {
		keys[i] = "r." + ident(k.Name)
		order[i] = "r." + ident(k.Name) + " USING " + k.Greater
		builtIn = builtIn && strings.HasPrefix(k.Greater, `OPERATOR("pg_catalog".`)
	}
	value := func(i int) string { return p.Key[i].Value(fmt.Sprintf("$%d::text", i+2)) }
	var after string
	if builtIn && n > 1 {
		values := make([]string, n)
		for i := range n {
			values[i] = value(i)
		}
		after = "(" + strings.Join(values, ", ") + ") OPERATOR(pg_catalog.>) (" + strings.Join(keys, ", ") + ")"
	} else {
		var ways []string
		for i, k := range p.Key {
			var steps []string
			for j := range i {
				steps = append(steps, value(j)+" "+p.Key[j].Equal+" r."+ident(p.Key[j].Name))
			}
			ways = append(ways, strings.Join(append(steps, value(i)+" "+k.Greater+" r."+ident(k.Name)), " AND "))
		}
		after = "(" + strings.Join(ways, " OR ") + ")"
	}
	page := func(where string) string {
		return "SELECT g.row_key, g.answer FROM (SELECT " + p.KeyExpression("f") + " AS row_key, " + question +
			" AS answer, row_number() OVER () AS place" +
			" FROM (SELECT " + strings.Join(keys, ", ") + " FROM " + table + where + " ORDER BY " + strings.Join(order, ", ") +
			" LIMIT $1) AS f) AS g ORDER BY g.place"
	}
	return pageStatements{first: page(""), next: page(" WHERE " + after)}
}

// sourceHash returns the SQL expression of a row's pipeline.SourceHash.
func sourceHash(p *pipeline.Pipeline) string {
	parts := []string{"''::bytea"}
	for _, w := range p.Watched {
		c := "r." + ident(w)
		// num_nulls and not IS NULL, which a composite value of nothing but NULLs also satisfies.
		parts = append(parts, fmt.Sprintf("CASE WHEN num_nulls(%s) = 1 THEN decode(repeat('00', %d), 'hex')"+
			" ELSE substr(sha256(convert_to(format('%%s', %s), pg_client_encoding()::name)), 1, %d) END", c,
			pipeline.ColumnHashSize, c, pipeline.ColumnHashSize))
	}
	return strings.Join(parts, " || ")
}

func (s *statements) buildColumn(p *pipeline.Pipeline, list func(...string) string, match string) {
	column := ident(p.IntoColumn)
	// FOR NO KEY UPDATE needs no more than UPDATE on the one column, and readers of foreign keys do not wait for it.
	s.lock = "SELECT k.place, f.source FROM " + list() + " CROSS JOIN LATERAL (SELECT " + sourceHash(p) +
		" AS source FROM " + source(p) +
		" WHERE " + match + " FOR NO KEY UPDATE SKIP LOCKED) AS f"
	target := "ONLY " + p.Source()
	if p.Partitioned {
		target = p.Source()
	}
	s.write = "UPDATE " + target + " AS r SET " + column + " = " + p.ToStored("k.vector") + " FROM " +
		list("vector "+p.VectorType()) +
		" WHERE " + match + " RETURNING k.place"
	equal := "OPERATOR(" + p.Extension + ".=)"
	if p.Stored == pipeline.StoredBit {
		equal = "OPERATOR(pg_catalog.=)"
	}
	s.after = "SELECT k.place, coalesce(r." + column + " " + equal + " " + p.ToStored("k.vector") + ", false), " +
		sourceHash(p) +
		" FROM " + list("vector "+p.VectorType()) + " JOIN " + source(p) + " ON " + match
	s.empty = "UPDATE " + target + " AS r SET " + column + " = NULL FROM " + list() + " WHERE " + match +
		" RETURNING k.place"
	s.reuse = "SELECT k.place, r." + column + " FROM " + list() + " JOIN " + source(p) + " ON " + match + " WHERE r." +
		column + " IS NOT NULL"
}

func (s *statements) buildTable(p *pipeline.Pipeline, list func(...string) string, names []string) {
	columns, values, respell := make([]string, len(p.Key)), make([]string, len(p.Key)), make([]string, len(p.Key))
	for i, k := range p.Key {
		columns[i], values[i] = ident(k.Name), k.Value(names[i])
		respell[i] = columns[i] + " = excluded." + columns[i]
	}
	keys := strings.Join(columns, ", ")
	match := p.MatchKey("d", names)
	s.write = "INSERT INTO " + p.Into() + " AS d (" + keys +
		", chunk_no, generation, text_hash, embedded_at, embedding) SELECT " +
		strings.Join(values, ", ") + fmt.Sprintf(", 0, %d, k.text_hash, now(), %s FROM ", p.Generation,
		p.ToStored("k.vector")) +
		list("text_hash bytea", "vector "+p.VectorType()) + " ON CONFLICT (" + keys + ", chunk_no) DO UPDATE SET " +
		strings.Join(respell, ", ") + ", generation = excluded.generation," +
		" text_hash = excluded.text_hash, embedded_at = excluded.embedded_at, embedding = excluded.embedding"
	s.adopt = fmt.Sprintf("UPDATE %s AS d SET generation = %d FROM ", p.Into(), p.Generation) + list() + " WHERE " + match
	s.empty = "DELETE FROM " + p.Into() + " AS d USING " + list() + " WHERE " + match
	// Of a row that is gone the key must also be spelled alike: by the time that is known, a row of another spelling
	// that is equal to it (citext, numeric) may have come and got its vector.
	s.remove = "DELETE FROM " + p.Into() + " AS d USING " + list("row_key text") + " WHERE " + match + " AND " +
		p.KeyExpression("d") + " = k.row_key"
	s.reuse = "SELECT k.place, d.embedding FROM " + list() + " JOIN " + p.Into() + " AS d ON " + match +
		" WHERE d.chunk_no = 0"
}
