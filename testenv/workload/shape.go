// Package workload changes tables in all ways that users do, at random from a seed, and checks afterwards that every
// row has the vector of its current text.
//
// A fault test is: make the shapes, set up their pipelines, start the workload, do the damage, stop the workload, and
// Settle.
package workload

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
	"github.com/embedsidecar/embedsidecar/testenv/canary"
)

// Column is a column of a key.
type Column struct{ Name, Type string }

// Shape is a table for a workload, and the destination of its vectors.
type Shape struct {
	Name          string          // one word
	Schema, Table string          // "": public, and the name
	Key           []Column        // none: id, a bigint
	Columns       []string        // of type text; the default text is made of them
	Text, Filter  string          // as in pipeline.Spec; Filter reads Flag
	Counter       string          // an integer column that nothing depends on
	Flag          string          // a boolean column for the filter; "" if there is none
	IntoColumn    string          // the destination: a column of the table, which Create makes,
	IntoTable     string          // or an embedding table, which init makes
	Stored        pipeline.Stored // type of the destination; "": vector
	Dims          int
	Chunking      pipeline.Chunking
	Joins         pipeline.Joins
	Long          bool // texts are long enough to be stored out of line

	partition string                                // PARTITION BY ...
	after     []string                              // statements after CREATE TABLE, with {table} and {schema}
	requires  string                                // an extension
	joined    string                                // text after the columns, as SQL over the table
	newKey    func(r *rand.Rand, rows int) []string // nil: numbers from 0
	respell   func(key []string) []string           // the same key, printed differently; nil if impossible
}

// Source returns the table's name, quoted.
func (s Shape) Source() string { return pgx.Identifier{s.Schema, s.Table}.Sanitize() }

// Into returns the embedding table's name, quoted.
func (s Shape) Into() string { return pgx.Identifier{s.Schema, s.IntoTable}.Sanitize() }

// Spec returns the shape's pipeline, with the fake embedder.
func (s Shape) Spec() pipeline.Spec {
	return pipeline.Spec{
		Name: s.Name, Schema: s.Schema, Table: s.Table, Columns: s.Columns, Text: s.Text, Filter: s.Filter,
		IntoColumn: s.IntoColumn, IntoTable: s.IntoTable, IntoType: s.Stored, Plugin: "fake", Priority: pipeline.Normal,
		Enabled:  true,
		Chunking: s.Chunking,
		Joins:    s.Joins,
	}
}

// Shapes returns all shapes, with vectors of this width: all kinds of keys, both destinations with each of their types,
// odd names, partitions, long texts, each replica identity, a text expression with a filter.
func Shapes(dims int) []Shape {
	return usual(append(keyShapes(), tableShapes()...), dims)
}

// usual fills in the common fields of most shapes.
func usual(shapes []Shape, dims int) []Shape {
	for i := range shapes {
		s := &shapes[i]
		s.Schema, s.Table, s.Counter, s.Dims = cmp.Or(s.Schema, "public"), cmp.Or(s.Table, s.Name), "hits", dims
		if s.Key == nil {
			s.Key = []Column{{"id", "bigint"}}
		}
		if s.newKey == nil {
			s.newKey = func(r *rand.Rand, rows int) []string { return []string{strconv.Itoa(r.IntN(2 * rows))} }
		}
	}
	return shapes
}

// keyShapes differ in their keys and names.
func keyShapes() []Shape {
	return []Shape{
		{
			Name: "integers", Columns: []string{"title", "body"},
			IntoColumn: "embedding",
			newKey:     func(r *rand.Rand, rows int) []string { return []string{strconv.Itoa(r.IntN(2*rows) - rows/2)} },
		},
		{
			Name: "texts", Key: []Column{{"code", "text"}}, Columns: []string{"body"},
			IntoTable: "texts_embedding",
			newKey: func(r *rand.Rand, rows int) []string {
				return []string{hostile[r.IntN(len(hostile))] + strconv.Itoa(r.IntN(rows))}
			},
		},
		{
			Name: "uuids", Key: []Column{{"id", "uuid"}}, Columns: []string{"body"}, IntoColumn: "embedding",
			newKey: func(r *rand.Rand, _ int) []string { return []string{fmt.Sprintf("%016x%016x", r.Uint64(), r.Uint64())} },
		},
		{
			Name: "times", Key: []Column{{"at", "timestamptz"}}, Columns: []string{"body"},
			IntoTable: "times_embedding",
			newKey: func(r *rand.Rand, rows int) []string {
				if r.IntN(50) == 0 {
					return []string{"infinity"}
				}
				return []string{time.Unix(1e9+r.Int64N(1e9), r.Int64N(1e6)*1000).UTC().Format("2006-01-02 15:04:05.999999Z07:00")}
			},
		},
		{
			Name: "numerics", Key: []Column{{"amount", "numeric"}}, Columns: []string{"body"},
			IntoColumn: "embedding",
			newKey: func(r *rand.Rand, rows int) []string {
				return []string{strconv.FormatFloat(float64(r.IntN(2*rows))/4, 'f', -1, 64)}
			},
			respell: func(key []string) []string {
				amount := key[0]
				if !strings.Contains(amount, ".") {
					amount += "."
				}
				if len(amount) > 12 {
					return []string{strings.TrimRight(strings.TrimRight(amount, "0"), ".")}
				}
				return []string{amount + "0"}
			},
		},
		{
			Name: "citexts", Key: []Column{{"email", "citext"}}, Columns: []string{"body"},
			IntoTable: "citexts_embedding", requires: "citext",
			newKey: func(r *rand.Rand, rows int) []string {
				return []string{fmt.Sprintf("User%d@Example.org", r.IntN(2*rows))}
			},
			respell: func(key []string) []string {
				if lower := strings.ToLower(key[0]); lower != key[0] {
					return []string{lower}
				}
				return []string{strings.ToUpper(key[0])}
			},
		},
		{
			Name: "composite", Key: []Column{
				{"tenant", "integer"},
				{"code", "character varying(40)"},
				{"day", "date"},
			},
			Columns: []string{"title", "body"}, IntoColumn: "embedding",
			newKey: func(r *rand.Rand, rows int) []string {
				return []string{
					strconv.Itoa(r.IntN(3)), []string{`a|b`, `a\`, `|`, `\|`, ``}[r.IntN(5)],
					time.Unix(86400*r.Int64N(int64(rows)/8+1), 0).UTC().Format(time.DateOnly),
				}
			},
		},
		{
			Name: "quoted", Schema: `Mixed "Case"`, Table: `Döcs; DROP`, Key: []Column{{`Id"`, "bigint"}},
			Columns: []string{`select`, `Tïtle $1`}, IntoColumn: `The Vector`,
		},
	}
}

// tableShapes differ in how rows are stored, published and filtered, and in the type of their vectors.
func tableShapes() []Shape {
	return []Shape{
		{
			Name: "partitioned", Key: []Column{{"region", "text"}, {"id", "bigint"}},
			Columns: []string{"body"}, IntoColumn: "embedding",
			partition: "PARTITION BY LIST (region)",
			after: []string{
				"CREATE TABLE {schema}.partitioned_north PARTITION OF {table} FOR VALUES IN ('north')",
				"CREATE TABLE {schema}.partitioned_south PARTITION OF {table} FOR VALUES IN ('south') PARTITION BY HASH (id)",
				"CREATE TABLE {schema}.partitioned_south_0 PARTITION OF {schema}.partitioned_south FOR VALUES WITH (MODULUS 2, REMAINDER 0)",
				"CREATE TABLE {schema}.partitioned_south_1 PARTITION OF {schema}.partitioned_south FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
				"CREATE TABLE {schema}.partitioned_rest PARTITION OF {table} DEFAULT",
			},
			newKey: func(r *rand.Rand, rows int) []string {
				return []string{[]string{"north", "south", "east", "west"}[r.IntN(4)], strconv.Itoa(r.IntN(rows))}
			},
		},
		{
			Name: "toasted", Key: []Column{{"id", "integer"}}, Columns: []string{"title", "body"},
			IntoTable: "toasted_embedding", Long: true,
			after: []string{"ALTER TABLE {table} ALTER COLUMN body SET STORAGE EXTERNAL"},
		},
		{
			Name: "full", Table: "full_identity", Key: []Column{{"id", "smallint"}}, Columns: []string{"title", "body"},
			IntoColumn: "embedding", Long: true,
			after:  []string{"ALTER TABLE {table} REPLICA IDENTITY FULL"},
			newKey: func(r *rand.Rand, rows int) []string { return []string{strconv.Itoa(r.IntN(min(2*rows, 30000)))} },
		},
		{
			Name: "indexed", Key: []Column{{"id", "integer"}}, Columns: []string{"title", "body"},
			IntoColumn: "embedding", Long: true,
			after: []string{ // no primary key at all
				"CREATE UNIQUE INDEX indexed_identity ON {table} (id)",
				"ALTER TABLE {table} REPLICA IDENTITY USING INDEX indexed_identity",
				"ALTER TABLE {table} DROP CONSTRAINT indexed_pkey, ALTER id SET NOT NULL",
			},
		},
		{
			Name: "filtered", Columns: []string{"title", "body"},
			IntoTable: "filtered_embedding",
			Text:      `title || ': ' || coalesce(body, '')`, Filter: `published`, Flag: "published",
		},
		{
			Name: "halves", Columns: []string{"body"}, IntoColumn: "embedding",
			Stored: pipeline.StoredHalfvec,
		},
		{
			Name: "bits", Columns: []string{"body"}, IntoColumn: "embedding",
			Stored: pipeline.StoredBit,
		},
		{
			Name: "half_table", Columns: []string{"body"},
			IntoTable: "half_table_embedding", Stored: pipeline.StoredHalfvec,
		},
	}
}

// Named picks shapes by name, in the order of the names. An unknown name panics.
func Named(shapes []Shape, names ...string) []Shape {
	var picked []Shape
	for _, name := range names {
		found := false
		for _, s := range shapes {
			if s.Name == name {
				picked, found = append(picked, s), true
			}
		}
		if !found {
			panic("no shape is called " + name)
		}
	}
	return picked
}

// Create makes the tables as the database's owner, with their destination column but without their embedding table,
// and returns the shapes. A shape whose extension this server does not have is left out.
func Create(ctx context.Context, db *testenv.Database, shapes []Shape) ([]Shape, error) {
	var made []Shape
	for _, s := range shapes {
		if s.requires != "" {
			var there bool
			if err := db.Pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = $1)`,
				s.requires).Scan(&there); err != nil {
				return nil, fmt.Errorf("create shape %s: %w", s.Name, err)
			}
			if !there {
				continue
			}
		}
		for _, statement := range s.ddl() {
			if _, err := db.Pool.Exec(ctx, statement); err != nil {
				return nil, fmt.Errorf("create shape %s: %s: %w", s.Name, statement, err)
			}
		}
		made = append(made, s)
	}
	return made, nil
}

func (s Shape) ddl() []string {
	var ddl, columns []string
	if s.requires != "" {
		ddl = append(ddl, "CREATE EXTENSION IF NOT EXISTS "+s.requires)
	}
	schema := pgx.Identifier{s.Schema}.Sanitize()
	if s.Schema != "public" {
		ddl = append(ddl, "CREATE SCHEMA IF NOT EXISTS "+schema)
	}
	for _, c := range s.Key {
		columns = append(columns, quote(c.Name)+" "+c.Type)
	}
	for _, c := range s.Columns {
		columns = append(columns, quote(c)+" text")
	}
	columns = append(columns, quote(s.Counter)+" integer NOT NULL DEFAULT 0")
	if s.Flag != "" {
		columns = append(columns, quote(s.Flag)+" boolean DEFAULT true")
	}
	if s.IntoColumn != "" {
		columns = append(columns, fmt.Sprintf("%s %s(%d)", quote(s.IntoColumn), s.Stored.Name(), s.Dims))
	}
	columns = append(columns, "PRIMARY KEY ("+s.keyList()+")")
	ddl = append(ddl, strings.TrimSpace(fmt.Sprintf("CREATE TABLE %s (%s) %s", s.Source(), strings.Join(columns, ", "),
		s.partition)))
	for _, statement := range s.after {
		ddl = append(ddl, strings.NewReplacer("{table}", s.Source(), "{schema}", schema).Replace(statement))
	}
	return ddl
}

func (s Shape) keyList() string {
	return s.eachKey(", ", func(name string) string { return name })
}

// eachKey makes a list of an expression for each column of the key, by its quoted name.
func (s Shape) eachKey(between string, expression func(name string) string) string {
	return strings.Join(lists.Map(s.Key, func(c Column) string { return expression(quote(c.Name)) }), between)
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

// hostile are texts that often cause bugs.
var hostile = []string{
	`'`, `"`, `\`, `\\`, `|`, `\|`, `$1`, `%s`, `--`, `/*`, `;`, `{}`, `{"a":null}`, `NULL`, `null`, `\N`, `\x00`,
	`\u0000`, `E'\n'`, `::text`,
	"a\nb", "a\r\nb", "a\n\nb", "\ttab", " lead", "trail ", "\v\f", "\u0001\u001b[31m", "\u007f",
	"Ünïcödé", "e\u0301", "é", "ﬁ", "ß", "İı", "Ǆ", "数据库", "データベース", "한국어", "עברית", "العربية", "हिन्दी", "ไทย",
	"\u202eright to left\u202c", "zero\u200bwidth", "\ufefffeff", "\u2028line", "\ufffd", "\ufffe", "\U0010ffff", "\ue000",
	"👩‍👩‍👧‍👦", "🇳🇵", "👍🏽", "a\u0300\u0301\u0302\u0303\u0304\u0305\u0306\u0307\u0308",
}

// blank are texts without words.
var blank = []string{"", " ", "  \t ", "\n", "\n\n", "\r\n", "\u00a0", "\u2003\u3000"}

var words = strings.Fields(`the a of and to in is was for on with by from at this that row table index page lock queue worker
	vector distance model token night river stone copper ` + canary.Text +
	` harbour engine garden winter silver paper window bridge forest`)

// text makes the value of a text column; nil is NULL. Some texts are common to many rows, because the same text must be
// embedded only once.
func text(r *rand.Rand, long bool) any {
	switch n := r.IntN(100); {
	case n < 4:
		return nil
	case n < 9:
		return blank[r.IntN(len(blank))]
	case n < 24:
		return hostile[r.IntN(len(hostile))]
	case n < 34:
		return words[r.IntN(len(words))]
	case long && n < 70:
		return letters(r, 2500+r.IntN(40000))
	default:
		return sentence(r)
	}
}

func sentence(r *rand.Rand) string {
	picked := make([]string, 2+r.IntN(12))
	for i := range picked {
		picked[i] = words[r.IntN(len(words))]
	}
	if r.IntN(6) == 0 {
		picked[r.IntN(len(picked))] = hostile[r.IntN(len(hostile))]
	}
	return strings.Join(picked, " ")
}

// letters are n bytes that do not compress well.
func letters(r *rand.Rand, n int) string {
	const alphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 -"
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[r.IntN(len(alphabet))]
	}
	return string(b)
}
