package rows

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

var update = flag.Bool("update", false, "rewrite testdata/*.sql")

// shapes are pipelines that need different statements.
func shapes() map[string]*pipeline.Pipeline {
	bigint := pipeline.KeyColumn{
		Name: "id", Type: "bigint", Equal: `OPERATOR("pg_catalog".=)`,
		Greater: `OPERATOR("pg_catalog".>)`,
	}
	citext := pipeline.KeyColumn{
		Name: `a "b"`, Type: `"ext"."citext"`, Collation: `"pg_catalog"."default"`, Equal: `OPERATOR("ext".=)`,
		Greater: `OPERATOR("ext".>)`,
	}
	over := func(change func(p *pipeline.Pipeline)) *pipeline.Pipeline {
		p := &pipeline.Pipeline{
			Spec: pipeline.Spec{Name: "docs", Schema: "public", Table: "docs", Columns: []string{"title", "body"}},
			ID:   7, OID: 16401, Key: []pipeline.KeyColumn{bigint}, Watched: []string{"title", "body"}, Dims: 3,
			Extension: `"public"`,
			Form:      pipeline.Form{Stored: pipeline.StoredVector}, Generation: 4,
		}
		change(p)
		return p
	}
	column := func(stored pipeline.Stored) *pipeline.Pipeline {
		return over(func(p *pipeline.Pipeline) { p.IntoColumn, p.Stored, p.Triggers = "embedding", stored, true })
	}
	table := func(change func(p *pipeline.Pipeline)) *pipeline.Pipeline {
		return over(func(p *pipeline.Pipeline) { p.IntoTable = "docs_embedding"; change(p) })
	}
	return map[string]*pipeline.Pipeline{
		"column_vector":    column(pipeline.StoredVector),
		"column_halfvec":   column(pipeline.StoredHalfvec),
		"column_bit":       column(pipeline.StoredBit),
		"column_sparsevec": column(pipeline.StoredSparse),
		"table":            table(func(*pipeline.Pipeline) {}),
		"table_partitioned_filter_text": table(func(p *pipeline.Pipeline) {
			p.Partitioned, p.WatchAll, p.Watched = true, true, nil
			p.Columns, p.Text, p.Filter, p.PriorityBy = nil, "title || body", "published", "severity"
		}),
		"table_composite_key": table(func(p *pipeline.Pipeline) { p.Key = []pipeline.KeyColumn{bigint, citext} }),
		"chunks": table(func(p *pipeline.Pipeline) {
			p.Chunked, p.HashIndexed, p.Chunking = true, true, pipeline.Chunking{
				Strategy: pipeline.ChunkTokens, Tokens: 200,
				Context: "title",
			}
		}),
		"table_ignore": table(func(p *pipeline.Pipeline) { p.Ignore = "lower(text)" }),
		"chunks_ignore": table(func(p *pipeline.Pipeline) {
			p.Chunked, p.Ignore = true, "lower(text)"
			p.Chunking = pipeline.Chunking{Strategy: pipeline.ChunkTokens, Tokens: 200, Context: "title"}
		}),
		"chunks_without_text": table(func(p *pipeline.Pipeline) {
			p.Chunked, p.Chunking = true, pipeline.Chunking{Strategy: pipeline.ChunkTokens, Tokens: 200, NoText: true}
		}),
	}
}

// clause is where a statement is broken into lines.
var clause = regexp.MustCompile(
	`^\s(FROM|USING ROWS FROM|(LEFT |CROSS )?JOIN|WHERE|ON CONFLICT|SET|SELECT|ORDER BY|RETURNING|LIMIT)\b`)

// readable breaks a statement into lines, each as far in as its brackets are deep.
func readable(sql string) string {
	var b strings.Builder
	depth, quoted := 0, false
	for i := 0; i < len(sql); i++ {
		at := clause.FindString(sql[i:])
		switch c := sql[i]; {
		case c == '\'' || c == '"':
			quoted = !quoted
		case quoted:
		case c == '(':
			depth++
		case c == ')':
			depth--
		case at != "" && !strings.HasSuffix(sql[:i], "ROWS") && !strings.HasSuffix(sql[:i], "DELETE"):
			b.WriteString("\n" + strings.Repeat("  ", depth) + at[1:])
			i += len(at) - 1
			continue
		}
		b.WriteByte(sql[i])
	}
	return b.String() + ";\n"
}

// inOrder are the names of statements, as the files have them.
var inOrder = []string{
	"read", "screen", "gone", "spell", "lanes", "at_once", "write", "empty", "adopt", "remove", "lock", "after", "reuse",
	"vectors.first", "vectors.next", "rows.first", "rows.next",
	"chunks.stored", "chunks.vectors", "chunks.known", "chunks.shift", "chunks.put", "chunks.end", "chunks.deep",
	"chunks.all",
}

// statements are all of a table's, by name.
func (t *Table) statements() map[string]statement {
	all := t.destination.(interface{ statements() map[string]statement }).statements()
	maps.Copy(all, map[string]statement{
		"read": t.sql.read, "screen": t.sql.screen, "gone": t.sql.gone, "spell": t.sql.spell,
		"lanes": t.sql.lanes, "rows.first": t.sql.rows.first,
		"rows.next": t.sql.rows.next,
	})
	return all
}

// What is built from names stands in testdata as it is sent, so that a change of it can be read.
func TestStatements_AreTheGoldenOnes(t *testing.T) {
	t.Parallel()
	for shape, p := range shapes() {
		var b strings.Builder
		all := New(p, nil, Options{}).statements()
		for _, name := range inOrder {
			if s, ok := all[name]; ok && s.there() {
				b.WriteString("-- " + name + "\n" + readable(s.sql) + "\n")
			}
			delete(all, name)
		}
		for name := range all {
			t.Errorf("%s: statement %q is in no file", shape, name)
		}
		golden(t, shape, b.String())
	}
}

// golden compares statements with those of a file.
func golden(t *testing.T, name, sql string) {
	t.Helper()
	path := filepath.Join("testdata", name+".sql")
	if *update {
		if err := os.WriteFile(path, []byte(sql), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != sql {
		t.Errorf("the statements are not those of %s: look at what differs after go test ./internal/engine/rows -update",
			path)
	}
}

// Vectors that are there already are read where they are.
func TestGiven_StatementsAreTheGoldenOnes(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, of := range []struct {
		shape string
		given Given
	}{
		{"column_vector", Given{
			Table: `"public"."docs"`, Key: []string{"id"}, Vector: `g."old"`, There: `g."old" IS NOT NULL`,
		}},
		{"chunks", Given{
			Table: `"public"."store"`, Key: []string{"doc_id"}, Vector: `g."embedding"`, There: "true",
			Changed: "updated_at", Made: "made_at", Text: "chunk", Order: "chunk_seq",
		}},
	} {
		p := shapes()[of.shape]
		b.WriteString("-- " + of.shape + ": read\n" + readable(of.given.read(p).sql) +
			"\n-- sample\n" + readable(of.given.sample(p, true)) + "\n-- count\n" + readable(of.given.count(p)) + "\n")
	}
	p := shapes()["column_vector"]
	p.Joins = pipeline.Joins{{
		Schema: "public", Table: "tags", As: "tag", On: []pipeline.On{{Column: "id", Of: "tag_id"}}, Text: "name",
		Joins: pipeline.Joins{{
			Schema: "public", Table: "kinds", As: "kind", On: []pipeline.On{{Column: "id", Of: "kind_id"}}, Text: "name",
		}},
	}}
	given := Given{Table: `"public"."docs"`, Key: []string{"id"}, Vector: `g."old"`, There: `g."old" IS NOT NULL`}
	b.WriteString("-- with joins: read\n" + readable(given.read(p).sql) + "\n")
	golden(t, "given", b.String())
}

func TestGiven_TakesWhatTheServerSays(t *testing.T) {
	t.Parallel()
	p, one := shapes()["chunks"], "\x00\x01\x00\x00\x3f\x80\x00\x00"
	found := make([][]GivenVector, 2)
	for _, c := range []struct {
		line [4]string
		ok   bool
	}{
		{[4]string{"2", one, "t", "a\xff"}, true},
		{[4]string{"2", one, "f", ""}, true},
		{[4]string{"3", one, "f", ""}, false}, // nobody has asked for a third row
		{[4]string{"1", "\x00", "f", ""}, false},
	} {
		raw := make([][]byte, len(c.line))
		for i := range c.line {
			raw[i] = []byte(c.line[i])
		}
		if err := scanGiven(p, raw, found); (err == nil) != c.ok {
			t.Errorf("%q: %v", c.line, err)
		}
	}
	drawn, err := scanSampled(p, [][]byte{[]byte("7"), []byte("text"), []byte("title"), []byte(one)})
	vector := []float32{1}
	if diff := cmp.Diff(Sampled{Key: "7", Text: "text", Title: "title", Vector: vector}, drawn); diff != "" || err != nil {
		t.Errorf("%v, (-want +got):\n%s", err, diff)
	}
	want := [][]GivenVector{nil, {{Vector: vector, Stale: true, Text: "a\uFFFD"}, {Vector: vector}}}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func (c *column) statements() map[string]statement {
	return map[string]statement{
		"write": c.sql.write, "empty": c.sql.empty, "lock": c.sql.lock, "after": c.sql.after, "reuse": c.sql.reuse,
	}
}

func (t *embeddingTable) statements() map[string]statement {
	return map[string]statement{
		"write": t.sql.write, "empty": t.sql.empty, "adopt": t.sql.adopt, "remove": t.sql.remove, "reuse": t.sql.reuse,
		"at_once":       t.sql.atOnce,
		"vectors.first": t.sql.pages.first, "vectors.next": t.sql.pages.next,
	}
}

func (c *Chunks) statements() map[string]statement {
	all := c.embeddingTable.statements()
	for name, s := range map[string]statement{
		"stored": c.chunks.stored, "vectors": c.chunks.vectors, "known": c.chunks.known, "shift": c.chunks.shift,
		"put": c.chunks.put, "end": c.chunks.end, "deep": c.chunks.deep, "all": c.chunks.all,
	} {
		all["chunks."+name] = s
	}
	return all
}
