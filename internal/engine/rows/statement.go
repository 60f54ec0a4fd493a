package rows

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// statement is a pipeline's own SQL, built once from checked names, with its parameter names in order. pgx's named
// arguments do not work here: a user's expression may contain an @.
type statement struct {
	sql    string
	params []string
}

// there reports whether the statement exists.
func (s statement) there() bool { return s.sql != "" }

// values are parameters by name. The parameters of keys are added automatically.
type values map[string]any

// keyParam names the array of one key column; rowKey is the array of the keys as stored.
func keyParam(i int) string { return "k" + strconv.Itoa(i+1) }

const rowKey = "row_key"

// amongParam names the values that a partition key column must be among.
func amongParam(i int) string { return "among" + strconv.Itoa(i+1) }

// ErrSplit means that a stored key has another number of columns than the current key.
var ErrSplit = errors.New("a key with another number of columns")

// args returns the parameters for rows with these keys. It returns ErrSplit.
func (s statement) args(p *pipeline.Pipeline, keys []string, more values) ([]any, error) {
	columns := make([][]string, len(p.Key))
	for _, key := range keys {
		parts, err := pipeline.SplitKey(key, len(p.Key))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrSplit, err)
		}
		for i, v := range parts {
			columns[i] = append(columns[i], v)
		}
	}
	all := values{rowKey: keys}
	for i := range columns {
		all[keyParam(i)] = p.Key[i].ListOf(columns[i])
		if p.Key[i].Routes {
			all[amongParam(i)] = p.Key[i].AmongOf(columns[i])
		}
	}
	return s.named(all, more)
}

// after returns the parameters for the rows after one key. It returns ErrSplit.
func (s statement) after(p *pipeline.Pipeline, key *string, more values) ([]any, error) {
	all := values{}
	if key != nil {
		parts, err := pipeline.SplitKey(*key, len(p.Key))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrSplit, err)
		}
		for i, v := range parts {
			all[keyParam(i)] = v
		}
	}
	return s.named(all, more)
}

// named returns the parameters in order.
func (s statement) named(given ...values) ([]any, error) {
	args := make([]any, 0, len(s.params))
next:
	for _, name := range s.params {
		for _, some := range given {
			if v, ok := some[name]; ok {
				args = append(args, v)
				continue next
			}
		}
		return nil, fmt.Errorf("a statement has no value for its parameter %q", name)
	}
	return args, nil
}

// builder builds one statement.
type builder struct {
	p      *pipeline.Pipeline
	params []string
}

func build(p *pipeline.Pipeline, f func(b *builder) string) statement {
	b := &builder{p: p}
	sql := f(b)
	return statement{sql, b.params}
}

// param returns the placeholder of a parameter, numbered by first use.
func (b *builder) param(name string) string {
	at := slices.Index(b.params, name)
	if at < 0 {
		at = len(b.params)
		b.params = append(b.params, name)
	}
	return "$" + strconv.Itoa(at+1)
}

// array is a parameter with one element per row of a list.
type array struct{ name, typ string }

// Arrays of several statements.
var (
	keysAsTheyAre = array{rowKey, "text"}
	textHashes    = array{"text_hash", "bytea"}
	chunkNumbers  = array{"chunk_no", "integer"}
)

// vectors returns the array of vectors in its wire type.
func (b *builder) vectors() array { return array{"vector", b.p.VectorType()} }

// list returns a FROM item named k: the keys and other arrays, with their place.
func (b *builder) list(more ...array) string {
	var arrays, columns []string
	add := func(name, list string) {
		arrays, columns = append(arrays, "pg_catalog.unnest("+list+")"), append(columns, name)
	}
	for i, k := range b.p.Key {
		add(keyParam(i), k.TypedList(b.param(keyParam(i))))
	}
	for _, a := range more {
		add(a.name, b.param(a.name)+"::"+a.typ+"[]")
	}
	return "ROWS FROM (" + strings.Join(arrays, ", ") + ") WITH ORDINALITY AS k (" + strings.Join(columns, ", ") +
		", place)"
}

// match compares the key of the row named alias with that of the list.
func (b *builder) match(alias string) string { return b.p.MatchKey(alias, listed(b.p)) }

// matchSource is match for the source row r.
func (b *builder) matchSource() string {
	conditions := []string{b.match("r")}
	for i, k := range b.p.Key {
		if k.Routes {
			conditions = append(conditions, k.Among("r."+database.Quote(k.Name), b.param(amongParam(i))))
		}
	}
	return strings.Join(conditions, " AND ")
}

// listed returns the key columns of a list: k.k1, k.k2.
func listed(p *pipeline.Pipeline) []string {
	names := make([]string, len(p.Key))
	for i := range names {
		names[i] = "k." + keyParam(i)
	}
	return names
}

// keyValues returns a list's keys as values of the key columns.
func keyValues(p *pipeline.Pipeline) string {
	parts, names := make([]string, len(p.Key)), listed(p)
	for i, k := range p.Key {
		parts[i] = k.Value(names[i])
	}
	return strings.Join(parts, ", ")
}

func source(p *pipeline.Pipeline) string { return p.Rows() + " AS r" }

// sameTables returns a condition that raises "undefined table" if a name means another table than when the pipeline was
// loaded: names may be swapped, and swapped back unnoticed. If it holds, the planner removes it.
func sameTables(p *pipeline.Pipeline) string {
	conditions := []string{sameTable(p.Schema, p.Table, p.OID)}
	for _, link := range p.Links() {
		conditions = append(conditions, sameTable(link.Table().Schema, link.Table().Table, link.Table().OID))
	}
	return strings.Join(conditions, "")
}

// sameInto is sameTables for the embedding table: two generations may exchange the names of their tables, and exchange
// them back before a write-back checks them.
func sameInto(p *pipeline.Pipeline) string {
	into := p.Destination()
	return sameTable(into.Schema, into.Table, p.IntoOID)
}

func sameTable(schema, table string, oid uint32) string {
	if oid == 0 {
		return ""
	}
	return fmt.Sprintf(" AND CASE WHEN %s::pg_catalog.regclass::oid = %d THEN true"+
		" ELSE (text 'embedsidecar.table_of_another_name')::pg_catalog.regclass IS NULL END",
		database.Literal(database.Quote(schema, table)), oid)
}

// sourceHash returns the SQL expression of a row's pipeline.SourceHash.
func sourceHash(p *pipeline.Pipeline) string {
	parts := []string{"''::bytea"}
	for _, w := range p.Watched {
		c := "r." + database.Quote(w)
		// num_nulls instead of IS NULL, which is also true for a composite value of NULLs.
		parts = append(parts, fmt.Sprintf("CASE WHEN num_nulls(%s) = 1 THEN decode(repeat('00', %d), 'hex')"+
			" ELSE substr(sha256(convert_to(format('%%s', %s), pg_client_encoding()::name)), 1, %d) END", c,
			pipeline.ColumnHashSize, c, pipeline.ColumnHashSize))
	}
	for _, text := range p.JoinedTexts() {
		parts = append(parts, fmt.Sprintf("coalesce(substr(sha256(convert_to(%s, pg_client_encoding()::name)), 1, %d),"+
			" decode(repeat('00', %[2]d), 'hex'))", text, pipeline.ColumnHashSize))
	}
	return strings.Join(parts, " || ")
}
