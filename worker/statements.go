package worker

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/pipeline"
)

// Sizes that bound what one batch may bring into memory.
const (
	// maxText is how many characters of a text are looked at. Models read a few thousand tokens at most.
	maxText = 1 << 20
	// hashAtServer is the stored size, in bytes, from which on a watched column is hashed by the server instead of being sent.
	hashAtServer = 32 << 10
)

// statements are a pipeline's own SQL, built once from confirmed names.
type statements struct {
	read    string // rows by key; of chunked pipelines with texts up to bigText
	big     string // chunked: rows by key, with texts up to maxChunked
	formats pgx.QueryResultFormats
	page    string // the next keys of the source table
	first   string // the first keys of the source table
	gone    string // which of some keys have no source row
	spell   string // keys as values of the key columns: it fails if one is none
	write   string // vectors to the destination
	empty   string // take vectors away from rows that have no text
	remove  string // vectors of rows that are gone; "" with a column, which went with its row
	lock    string // a column's rows, skipping locked ones, with their source hash; "" with an embedding table
	after   string // what triggers have left of a column's rows: whether the vector is what was written, and the source hash
	reuse   string // vectors by key
	orphans string // keys of an embedding table without a source row

	chunks chunkStatements
}

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
		return "ROWS FROM (" + strings.Join(arrays, ", ") + ") WITH ORDINALITY AS k (" + strings.Join(columns, ", ") + ", place)"
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
		s.buildOrphans(p)
	}
	if p.Chunked {
		s.buildChunks(p, list, names)
	}
	return s
}

// The columns that read gives before the watched ones.
const (
	readPlace = iota
	readKey
	readKeep
	readText
	readBytes // chunked: of the whole text
	readTitle // chunked: the beginning of the context line
	readLedgerSource
	readLedgerText
	readLedgerVector
	readLedgerGeneration
	readLedgerVersion    // xmin of the entry: what a write-back compares
	readStored           // column: the vector; table: the text hash of the stored row; chunked: the hash of those of all chunks
	readStoredGeneration // table only
	readWatched          // then two per watched column: its output text, or its SHA-256 if it is large
)

func (s *statements) buildRead(p *pipeline.Pipeline, list func(...string) string, match string) {
	n := len(p.Key)
	inner := []string{p.KeyExpression("r") + " AS row_key", p.FilterExpression() + " AS keep"}
	body := "f.body, NULL::integer, NULL::text"
	if p.Chunked {
		inner = append(inner, fmt.Sprintf("CASE WHEN %s THEN %s END AS body", p.FilterExpression(), p.TextExpression()),
			fmt.Sprintf("CASE WHEN %s THEN left(%s, %d) END AS title", p.FilterExpression(), p.ContextExpression(), maxTitle))
		body = fmt.Sprintf("CASE WHEN octet_length(f.body) <= %d THEN f.body END, octet_length(f.body), f.title", bigText)
	} else {
		inner = append(inner, fmt.Sprintf("CASE WHEN %s THEN left(%s, %d) END AS body", p.FilterExpression(), p.TextExpression(), maxText))
	}
	var outer []string
	s.formats = make(pgx.QueryResultFormats, readWatched)
	for _, at := range []int{readLedgerSource, readLedgerText, readLedgerVector, readStored} {
		s.formats[at] = pgx.BinaryFormatCode
	}
	for i, w := range p.Watched {
		c := "r." + ident(w)
		inner = append(inner,
			fmt.Sprintf("CASE WHEN pg_column_size(%s) <= %d THEN %s END AS w%d", c, hashAtServer, c, i),
			fmt.Sprintf("CASE WHEN pg_column_size(%s) > %d THEN sha256(convert_to(format('%%s', %s), pg_client_encoding()::name)) END AS h%d",
				c, hashAtServer, c, i))
		outer = append(outer, fmt.Sprintf("f.w%d", i), fmt.Sprintf("f.h%d", i))
		s.formats = append(s.formats, pgx.TextFormatCode, pgx.BinaryFormatCode)
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
		join = "\nLEFT JOIN LATERAL (SELECT " + found + " FROM " + p.Into() + " AS e WHERE " + p.MatchKey("e", texts) + which + ") AS d ON true"
	}
	s.read = "SELECT k.place, f.row_key, f.keep, " + body + ", l.source_hash, l.text_hash, l.vector_hash, l.generation, l.version, " + stored
	if len(outer) > 0 {
		s.read += ", " + strings.Join(outer, ", ")
	}
	s.read += "\nFROM " + list("row_key text") +
		"\nLEFT JOIN LATERAL (SELECT " + strings.Join(inner, ", ") + " FROM " + source(p) + " WHERE " + match + " LIMIT 1) AS f ON true" +
		fmt.Sprintf("\nLEFT JOIN LATERAL (SELECT g.source_hash, g.text_hash, g.vector_hash, g.generation, g.xmin::text AS version FROM embedsidecar.ledger AS g"+
			" WHERE g.pipeline_id = %d AND g.row_key = k.row_key OFFSET 0) AS l ON true", p.ID) + join +
		"\nORDER BY k.place"
	if p.Chunked {
		s.big = strings.Replace(s.read, fmt.Sprintf("<= %d THEN f.body", bigText), fmt.Sprintf("<= %d THEN f.body", maxChunked), 1)
	}
}

// buildScan makes the statements of a scan. It goes from the largest key to the smallest, in the order of the key's own index,
// so that new rows, which are the ones people look for, come first.
func (s *statements) buildScan(p *pipeline.Pipeline, list func(...string) string, match string) {
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
	known := fmt.Sprintf("EXISTS (SELECT FROM embedsidecar.ledger AS l WHERE l.pipeline_id = %d AND l.row_key = f.row_key OFFSET 0)", p.ID)
	page := func(where string) string {
		return "SELECT f.row_key, " + known + " AS known FROM (SELECT " + p.KeyExpression("r") + " AS row_key, row_number() OVER () AS place" +
			" FROM (SELECT " + strings.Join(keys, ", ") + " FROM " + source(p) + where + " ORDER BY " + strings.Join(order, ", ") +
			" LIMIT $1) AS r) AS f ORDER BY f.place"
	}
	s.first = page("")
	s.page = page(" WHERE " + after)
	s.gone = "SELECT k.row_key FROM " + list("row_key text") + " WHERE NOT EXISTS (SELECT FROM " + source(p) + " WHERE " + match +
		" AND " + p.KeyExpression("r") + " = k.row_key OFFSET 0)"
}

// sourceHash returns the SQL expression of a row's pipeline.SourceHash.
func sourceHash(p *pipeline.Pipeline) string {
	parts := []string{"''::bytea"}
	for _, w := range p.Watched {
		c := "r." + ident(w)
		// num_nulls and not IS NULL, which a composite value of nothing but NULLs also satisfies.
		parts = append(parts, fmt.Sprintf("CASE WHEN num_nulls(%s) = 1 THEN decode(repeat('00', %d), 'hex')"+
			" ELSE substr(sha256(convert_to(format('%%s', %s), pg_client_encoding()::name)), 1, %d) END", c, pipeline.ColumnHashSize, c, pipeline.ColumnHashSize))
	}
	return strings.Join(parts, " || ")
}

func (s *statements) buildColumn(p *pipeline.Pipeline, list func(...string) string, match string) {
	column := ident(p.IntoColumn)
	// FOR NO KEY UPDATE needs no more than UPDATE on the one column, and readers of foreign keys do not wait for it.
	s.lock = "SELECT k.place, f.source FROM " + list() + " CROSS JOIN LATERAL (SELECT " + sourceHash(p) + " AS source FROM " + source(p) +
		" WHERE " + match + " FOR NO KEY UPDATE SKIP LOCKED) AS f"
	target := "ONLY " + p.Source()
	if p.Partitioned {
		target = p.Source()
	}
	s.write = "UPDATE " + target + " AS r SET " + column + " = " + p.ToStored("k.vector") + " FROM " + list("vector "+p.VectorType()) +
		" WHERE " + match + " RETURNING k.place"
	equal := "OPERATOR(" + p.Extension + ".=)"
	if p.Stored == pipeline.StoredBit {
		equal = "OPERATOR(pg_catalog.=)"
	}
	s.after = "SELECT k.place, coalesce(r." + column + " " + equal + " " + p.ToStored("k.vector") + ", false), " + sourceHash(p) +
		" FROM " + list("vector "+p.VectorType()) + " JOIN " + source(p) + " ON " + match
	s.empty = "UPDATE " + target + " AS r SET " + column + " = NULL FROM " + list() + " WHERE " + match + " RETURNING k.place"
	s.reuse = "SELECT k.place, r." + column + " FROM " + list() + " JOIN " + source(p) + " ON " + match + " WHERE r." + column + " IS NOT NULL"
}

func (s *statements) buildTable(p *pipeline.Pipeline, list func(...string) string, names []string) {
	columns, values, respell := make([]string, len(p.Key)), make([]string, len(p.Key)), make([]string, len(p.Key))
	for i, k := range p.Key {
		columns[i], values[i] = ident(k.Name), k.Value(names[i])
		respell[i] = columns[i] + " = excluded." + columns[i]
	}
	keys := strings.Join(columns, ", ")
	match := p.MatchKey("d", names)
	s.write = "INSERT INTO " + p.Into() + " AS d (" + keys + ", chunk_no, generation, text_hash, embedded_at, embedding) SELECT " +
		strings.Join(values, ", ") + fmt.Sprintf(", 0, %d, k.text_hash, now(), %s FROM ", p.Generation, p.ToStored("k.vector")) +
		list("text_hash bytea", "vector "+p.VectorType()) + " ON CONFLICT (" + keys + ", chunk_no) DO UPDATE SET " + strings.Join(respell, ", ") + ", generation = excluded.generation," +
		" text_hash = excluded.text_hash, embedded_at = excluded.embedded_at, embedding = excluded.embedding"
	s.empty = "DELETE FROM " + p.Into() + " AS d USING " + list() + " WHERE " + match
	// Of a row that is gone the key must also be spelled alike: by the time that is known, a row of another spelling that is equal to
	// it (citext, numeric) may have come and got its vector.
	s.remove = "DELETE FROM " + p.Into() + " AS d USING " + list("row_key text") + " WHERE " + match + " AND " + p.KeyExpression("d") + " = k.row_key"
	s.reuse = "SELECT k.place, d.embedding FROM " + list() + " JOIN " + p.Into() + " AS d ON " + match + " WHERE d.chunk_no = 0"
}

// buildOrphans makes the statement that finds vectors in an embedding table whose source row is gone.
func (s *statements) buildOrphans(p *pipeline.Pipeline) {
	// The key columns have the same names and types in both tables, so no cast is needed to compare them.
	parts := make([]string, len(p.Key))
	for i, k := range p.Key {
		parts[i] = "r." + ident(k.Name) + " " + k.Equal + " d." + ident(k.Name)
	}
	distinct := ""
	if p.Chunked {
		distinct = "DISTINCT " // a key has several chunks
	}
	s.orphans = "SELECT " + distinct + p.KeyExpression("d") + " FROM " + p.Into() + " AS d WHERE NOT EXISTS (SELECT FROM " + source(p) +
		" WHERE " + strings.Join(parts, " AND ") + ")"
}
