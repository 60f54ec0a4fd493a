// Package adopt takes over vectors that another program made. It embeds a sample of their texts again and trusts the
// vectors if the sample agrees. Then it writes ledger entries for the rows, as if this program had written the vectors.
// It takes no vector that is older than its text, and writes nothing for a row that changes meanwhile.
package adopt

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/spelling"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
)

// Place is the location of vectors as the user names it.
type Place struct {
	From       string   // a column of the source table, or a table, or TABLE.COLUMN
	Key        []string // columns with the source's key; empty: those of a foreign key, or of the same names
	UpdatedAt  string   // column of the source with the time of the last change of the text; "": there is none
	EmbeddedAt string   // column beside the vectors with the time of their creation; "": one with a common name
	Chunk      string   // column of the table with the text of a chunk; "": one with a common name
	Unless     string   // SQL condition on the vector's row g that makes the vector stale; "": none
}

// Common names of columns.
var (
	madeNames  = []string{"embedded_at", "embedding_updated_at", "embedded_on", "vectorized_at"}
	beside     = []string{"updated_at", "created_at"}
	chunkNames = []string{"chunk", "chunk_text", "content", "document", "text", "body"}
	orderNames = []string{"chunk_no", "chunk_seq", "chunk_index", "chunk_id", "seq", "position", "ordinal", "idx", "id"}
)

// finder finds a place in the catalog.
type finder struct {
	tx     pgx.Tx
	f      *resolve.Findings
	at     Place
	t      *catalog.Table // the table with the vectors
	vector catalog.Column
	own    bool // it is the source table
}

// Find looks up a place. It returns *refusal.ConfigError if it has no vectors that fit the pipeline.
func Find(ctx context.Context, tx pgx.Tx, f *resolve.Findings, at Place) (*rows.Given, error) {
	d := &finder{tx: tx, f: f, at: at}
	given, err := d.find(ctx)
	if err != nil {
		return nil, refusal.Of(f.Pipeline.Name, err)
	}
	return given, nil
}

func refuse(format string, args ...any) *refusal.ConfigError {
	return &refusal.ConfigError{Problem: fmt.Sprintf(format, args...), Code: code.Destination}
}

func (d *finder) find(ctx context.Context) (*rows.Given, error) {
	if err := d.findColumn(ctx); err != nil {
		return nil, err
	}
	p := &d.f.Pipeline
	if p.InSource() && (!d.own || d.vector.Name != p.IntoColumn) {
		e := refuse("its vectors go into the column %q of its own table, and those to adopt are in %s", p.IntoColumn,
			d.named())
		e.Hint = []string{
			"use an embedding table: into: {table: NAME}; it is created, and the vectors are copied",
			"or copy them into the column with an UPDATE, and adopt that: --from " + p.IntoColumn,
		}
		return nil, e
	}
	g := &rows.Given{Table: d.t.Quoted()}
	if d.own {
		g.Table = p.Rows()
	}
	var err error
	if g.Key, err = d.key(ctx); err != nil {
		return nil, err
	}
	if err := d.vectors(g); err != nil {
		return nil, err
	}
	if err := d.times(g); err != nil {
		return nil, err
	}
	return g, d.chunks(g)
}

func (d *finder) named() string { return d.t.Quoted() + "." + database.Quote(d.vector.Name) }

// findColumn finds the table and the column with the vectors.
func (d *finder) findColumn(ctx context.Context) error {
	words, err := config.ParseNames("--from", d.at.From)
	if err != nil {
		return err
	}
	if c, ok := d.f.Table.Column(words[len(words)-1]); ok && len(words) == 1 {
		d.t, d.vector, d.own = d.f.Table, c, true
		return d.usable(ctx)
	}
	schema := d.f.Table.Schema
	try := func(words []string) error {
		if len(words) == 2 { // schema and table
			d.t, err = catalog.TableByName(ctx, d.tx, words[0], words[1])
			return err
		}
		d.t, err = catalog.TableByName(ctx, d.tx, schema, words[0])
		return err
	}
	column := ""
	if err := try(words[:min(len(words), 2)]); err != nil { // schema and table
		if len(words) == 1 {
			return err
		}
		column, words = words[len(words)-1], words[:len(words)-1]
		if try(words) != nil {
			return err
		}
	} else if len(words) > 2 { // schema and table
		column = words[2]
	}
	d.own = d.t.OID == d.f.Table.OID
	var found []string
	for _, c := range d.t.Columns {
		if c.Name == column || column == "" && d.f.Vector.HoldsVectors(c) {
			d.vector = c
			found = append(found, c.Name)
		}
	}
	switch {
	case len(found) == 0 && column != "":
		return refuse("%s has no column %q", d.t.Quoted(), column).With(spelling.DidYouMean(column, d.t.ColumnNames())...)
	case len(found) == 0:
		return refuse("%s has no column with vectors", d.t.Quoted())
	case len(found) > 1:
		return refuse("%s has several columns with vectors: %s", d.t.Quoted(), strings.Join(found, ", ")).
			With("name one: --from " + d.at.From + "." + found[0])
	}
	return d.usable(ctx)
}

// usable checks that the table is safe to read: its owner could make it run code of his own.
func (d *finder) usable(ctx context.Context) error {
	if d.own {
		return nil
	}
	if d.t.Kind != "r" && d.t.Kind != "p" {
		return refuse("%s is no table", d.t.Quoted())
	}
	if err := d.t.Named(); err != nil {
		return err
	}
	if d.t.RowSecurity {
		return refuse("%s has row-level security that hides rows from this role", d.t.Quoted())
	}
	return catalog.Untrusted(ctx, d.tx, d.t.OID)
}

// key finds the columns that hold the source's key.
func (d *finder) key(ctx context.Context) ([]string, error) {
	want := pipeline.KeyNames(d.f.Table.Key)
	if d.own {
		return want, nil
	}
	names := d.at.Key
	if len(names) == 0 {
		referring, err := database.Collect(ctx, d.tx, "given_key", pgx.RowTo[[]string], pgx.StrictNamedArgs{
			"given": d.t.OID, "source": d.f.Table.OID, "keys": want,
		})
		if err != nil {
			return nil, fmt.Errorf("look up foreign keys of %s: %w", d.t.Quoted(), err)
		}
		names = want
		if len(referring) > 0 {
			names = referring[0]
		}
	}
	hint := "name them: --from-key " + strings.Join(want, ",") + ", in the order of the key of " + d.f.Table.Quoted()
	if len(names) != len(want) {
		return nil, refuse("the key of %s has %d columns, and %d are named", d.f.Table.Quoted(), len(want), len(names)).With(hint)
	}
	for i, name := range names {
		own, _ := d.f.Table.Column(want[i])
		c, ok := d.t.Column(name)
		if !ok {
			return nil, refuse("the columns of %s with the key of %s are unknown: it has no foreign key to it, and no column %q",
				d.t.Quoted(), d.f.Table.Quoted(), name).With(hint)
		}
		if c.Base != own.Base && c.Category != own.Category {
			return nil, refuse("column %q of %s is of type %s, and the key column %q of %s of type %s", name, d.t.Quoted(), c.TypeName,
				want[i], d.f.Table.Quoted(), own.TypeName).With(hint)
		}
	}
	return names, nil
}

// vectors sets how the vectors are read.
func (d *finder) vectors(g *rows.Given) error {
	p, column := &d.f.Pipeline, "g."+database.Quote(d.vector.Name)
	vector, width, ok := d.f.Vector.Converted(d.vector, column, p.Stored)
	if !ok {
		return refuse("%s is of type %s, which the destination of type %s cannot take over", d.named(), d.vector.TypeName,
			p.Stored.Name())
	}
	if n := int(d.vector.Modifier); n > 0 && n != p.Dims && d.f.Vector.HoldsVectors(d.vector) {
		return &refusal.ConfigError{
			Code: code.Width, Problem: fmt.Sprintf("the vectors in %s are %d wide, those of model %s %d: another model made them",
				d.named(), n, p.Model, p.Dims),
			Hint: []string{"name the model that made them: --model NAME"},
		}
	}
	g.Vector, g.There = vector, column+" IS NOT NULL"
	if d.at.Unless != "" {
		g.There += " AND NOT (" + d.at.Unless + ")"
	}
	if width != "" {
		g.There += fmt.Sprintf(" AND %s = %d", width, p.Dims)
	}
	// A vector of zeros is somebody's placeholder. CASE: only a vector of that width can be converted.
	g.There = fmt.Sprintf("CASE WHEN %s THEN %s OPERATOR(pg_catalog.<>) 'NaN'::float8 ELSE false END", g.There,
		p.Between(vector, vector))
	return nil
}

// times finds the columns that show whether a text is newer than its vector.
func (d *finder) times(g *rows.Given) error {
	if d.at.UpdatedAt == "" {
		if d.at.EmbeddedAt != "" {
			return refuse("--embedded-at needs --updated-at, the column with the time when a text was changed")
		}
		return nil
	}
	time := func(t *catalog.Table, name string) error {
		c, ok := t.Column(name)
		if !ok {
			return refuse("%s has no column %q", t.Quoted(), name).With(spelling.DidYouMean(name, t.ColumnNames())...)
		}
		if c.Category != "D" {
			return refuse("column %q of %s is of type %s, no time", name, t.Quoted(), c.TypeName)
		}
		return nil
	}
	if err := time(d.f.Table, d.at.UpdatedAt); err != nil {
		return err
	}
	made := d.at.EmbeddedAt
	if made == "" {
		names := madeNames
		if !d.own {
			names = slices.Concat(madeNames, beside)
		}
		made = first(d.t, names)
	}
	if made == "" {
		return refuse("%s has no column with the time when a vector was made", d.t.Quoted()).With("name the column: --embedded-at COLUMN")
	}
	g.Changed, g.Made = d.at.UpdatedAt, made
	return time(d.t, made)
}

// chunks finds the column with the texts of chunks.
func (d *finder) chunks(g *rows.Given) error {
	if !d.f.Pipeline.Chunking.On() {
		return nil
	}
	g.Text, g.Order = d.at.Chunk, first(d.t, orderNames)
	if g.Text == "" && !d.own {
		g.Text = first(d.t, chunkNames)
	}
	if c, ok := d.t.Column(g.Text); g.Text == "" || !ok || c.Category != "S" {
		e := refuse("the pipeline chunks its texts, and %s has no column with the text of each chunk", d.t.Quoted())
		e.Hint = []string{
			"name the column: --chunk COLUMN",
			"without it, vectors cannot be assigned to chunks, and the texts must be embedded",
		}
		return e
	}
	return nil
}

// first returns the first of some names that is a column of the table.
func first(t *catalog.Table, names []string) string {
	for _, name := range names {
		if _, ok := t.Column(name); ok {
			return name
		}
	}
	return ""
}
