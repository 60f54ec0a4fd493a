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

// statement is SQL of a pipeline's own, built once from confirmed names, with the names of its parameters in the order
// of their numbers. pgx's named ones will not do: an expression of the user's may have an @ in it.
type statement struct {
	sql    string
	params []string
}

// there reports whether the destination has such a statement.
func (s statement) there() bool { return s.sql != "" }

// values are parameters by their names. Those of keys are there by themselves.
type values map[string]any

// The names of parameters that are made of keys: one array for each key column, and the keys as they are.
func keyParam(i int) string { return "k" + strconv.Itoa(i+1) }

const rowKey = "row_key"

// The names of the same once more, as values among which a column that says the partition has to be.
func amongParam(i int) string { return "among" + strconv.Itoa(i+1) }

// ErrSplit means that a key was written when the key had another number of columns.
var ErrSplit = errors.New("a key of another table's shape")

// args returns the parameters for rows that are given by their keys. It returns ErrSplit.
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

// after returns the parameters for what comes after one key. It returns ErrSplit.
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

// named returns parameters in the order of their numbers.
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

// param returns how a parameter is written. Its number is that of its first mention.
func (b *builder) param(name string) string {
	at := slices.Index(b.params, name)
	if at < 0 {
		at = len(b.params)
		b.params = append(b.params, name)
	}
	return "$" + strconv.Itoa(at+1)
}

// array is a parameter that has one element for each row of a list.
type array struct{ name, typ string }

// Arrays that several statements have.
var (
	keysAsTheyAre = array{rowKey, "text"}
	textHashes    = array{"text_hash", "bytea"}
	chunkNumbers  = array{"chunk_no", "integer"}
)

// vectors is the array of vectors, in the type in which they travel.
func (b *builder) vectors() array { return array{"vector", b.p.VectorType()} }

// list returns a FROM item called k: keys, with arrays beside them, numbered.
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

// match compares the key of the row called alias with that of the list.
func (b *builder) match(alias string) string { return b.p.MatchKey(alias, listed(b.p)) }

// matchSource is match for the row of the source table, which is called r.
func (b *builder) matchSource() string {
	conditions := []string{b.match("r")}
	for i, k := range b.p.Key {
		if k.Routes {
			conditions = append(conditions, k.Among("r."+database.Quote(k.Name), b.param(amongParam(i))))
		}
	}
	return strings.Join(conditions, " AND ")
}

// listed returns the key's columns in a list, which are texts or values: k.k1, k.k2.
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

// source returns the FROM item of the source table.
func source(p *pipeline.Pipeline) string { return p.Rows() + " AS r" }

// sameTables is a condition that fails, as if a table were not there, where a name means another table than the one
// that the pipeline was loaded with: names may be exchanged, and exchanged back before anybody notices. Where it holds
// the server's planner takes it away.
func sameTables(p *pipeline.Pipeline) string {
	same := func(schema, table string, oid uint32) string {
		if oid == 0 {
			return ""
		}
		return fmt.Sprintf(" AND CASE WHEN %s::pg_catalog.regclass::oid = %d THEN true"+
			" ELSE (text 'embedsidecar.table_of_another_name')::pg_catalog.regclass IS NULL END",
			database.Literal(database.Quote(schema, table)), oid)
	}
	conditions := []string{same(p.Schema, p.Table, p.OID)}
	for _, link := range p.Links() {
		conditions = append(conditions, same(link.Table().Schema, link.Table().Table, link.Table().OID))
	}
	return strings.Join(conditions, "")
}

// sourceHash returns the SQL expression of a row's pipeline.SourceHash.
func sourceHash(p *pipeline.Pipeline) string {
	parts := []string{"''::bytea"}
	for _, w := range p.Watched {
		c := "r." + database.Quote(w)
		// num_nulls and not IS NULL, which a composite value of nothing but NULLs also satisfies.
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
