package setup

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/refusal"
)

// maxName is how long a name may be; Postgres would cut a longer one without an error.
const maxName = 63

// findings is all that the catalogue says of a pipeline.
type findings struct {
	pipeline    pipeline.Pipeline
	table       *table
	destination destination
	vector      vectorType
	reads       []string // columns that text and filter name, generated ones too, by attribute number; nil: not known
	calls       []string // functions of the user's that text, filter and context call, sorted
	warnings    []string
	digest      string // of its definition as it is configured
	unproven    bool   // nobody knows yet whether the destination holds vectors of somebody else
}

// Resolve confirms a pipeline against the database: table, key, what its text and filter read, destination,
// privileges of the current role. model is what its vectors look like; a width of 0 takes that of the destination.
// The result has no ID, generation and fingerprint, which are in the pipeline's row.
//
// It returns *ConfigError (also as *MissingError) for what a person must change and *PermissionError with the grants
// to run. Nothing changes in the database. The destination must exist; init makes it.
func Resolve(ctx context.Context, db database.DB, spec pipeline.Spec, model Vectors) (pipeline.Pipeline, error) {
	p, _, err := resolve(ctx, db, spec, model)
	return p, err
}

// resolve is Resolve with what is worth a warning.
func resolve(ctx context.Context, db database.DB, spec pipeline.Spec, model Vectors) (p pipeline.Pipeline, warnings []string,
	err error,
) {
	err = database.Patiently(ctx, db, func(tx pgx.Tx) error {
		f, err := inspect(ctx, tx, spec, model, nil)
		if err != nil {
			return err
		}
		p, warnings = f.pipeline, f.warnings
		if !f.destination.Exists {
			return &refusal.ConfigError{Pipeline: spec.Name, Problem: "the destination " + destinationName(f.pipeline.Spec) +
				" does not exist", Hint: []string{"run embedsidecar init: it makes it"}}
		}
		if err := f.chunkable(); err != nil {
			return err
		}
		if err := f.retyped(); err != nil {
			return err
		}
		return permitted(ctx, tx, f)
	})
	return p, warnings, err
}

// permitted returns *PermissionError when the current role lacks a privilege that running the pipeline needs.
func permitted(ctx context.Context, q database.Querier, f *findings) error {
	role, statements, err := missingGrants(ctx, q, f)
	if err != nil {
		return err
	}
	if len(statements) > 0 {
		return &refusal.PermissionError{What: fmt.Sprintf("run pipeline %q", f.pipeline.Name), Role: role, SQL: statements}
	}
	return nil
}

// inspect looks at everything but privileges. stored is the pipeline's row if it has one: then the table is found by
// its number, whatever it is called now, and what text and filter read is taken from there.
func inspect(ctx context.Context, tx pgx.Tx, spec pipeline.Spec, model Vectors, stored *storedPipeline) (*findings,
	error,
) {
	fail := func(problem string, hint []string) error {
		return &refusal.ConfigError{Pipeline: spec.Name, Problem: problem, Hint: hint}
	}
	if problem := malformed(spec); problem != "" {
		return nil, fail(problem, nil)
	}
	var t *table
	var err error
	if stored != nil {
		t, err = tableByOID(ctx, tx, stored.TableOID)
	} else {
		t, err = tableByName(ctx, tx, spec.Schema, spec.Table)
	}
	if err != nil {
		return nil, refusal.About(spec.Name, err)
	}
	if stored != nil && spec.IntoSchema == "" {
		spec.IntoSchema = spec.Schema // the embedding table did not move with the source
	}
	spec.Schema, spec.Table = t.Schema, t.Name
	if problem, hint := t.embeddable(); problem != "" {
		return nil, fail(problem, hint)
	}
	if err := usable(ctx, tx, t); err != nil {
		return nil, err
	}
	if err := t.unruly(ctx, tx); err != nil {
		return nil, refusal.About(spec.Name, err)
	}
	if problem, hint, err := t.findKey(ctx, tx); problem != "" || err != nil {
		return nil, refusal.Either(fail(problem, hint), err)
	}
	if t.Kind == "p" {
		if problem, hint, err := t.checkLeaves(ctx, tx); problem != "" || err != nil {
			return nil, refusal.Either(fail(problem, hint), err)
		}
	}
	f := &findings{table: t, pipeline: pipeline.Pipeline{
		Spec: spec, OID: t.OID, Key: t.Key, Partitioned: t.Kind == "p",
		Triggers: t.Triggers, Status: pipeline.Active,
	}}
	if t.Children {
		f.warnings = append(f.warnings, "tables that inherit from "+t.quoted()+
			" are left out: only its own rows get a vector")
	}
	if f.vector, err = findVector(ctx, tx); err != nil {
		return nil, refusal.About(spec.Name, err)
	}
	f.pipeline.Extension = f.vector.extension()
	if stored != nil {
		err = f.recall(ctx, tx, stored)
	} else {
		err = f.readColumns(ctx, tx)
	}
	if err != nil {
		return nil, err
	}
	d, problem, hint, err := findDestination(ctx, tx, spec, t, f.vector, model)
	f.destination, f.pipeline.IntoOID = d, d.OID
	f.pipeline.Stored = d.Stored
	if problem != "" || err != nil {
		return nil, refusal.Either(fail(problem, hint), err)
	}
	f.pipeline.Chunked, f.pipeline.HashIndexed = d.Chunked || !d.Exists && spec.Chunking.On(), d.Indexed
	if spec.ToColumn() && (slices.Contains(f.reads, spec.IntoColumn) || slices.Contains(f.pipeline.Watched,
		spec.IntoColumn)) {
		return nil, fail(fmt.Sprintf("the destination %q is among the columns that the text is made of: every vector would ask for another", spec.IntoColumn), nil)
	}
	f.pipeline.Dims = model.Dims
	if model.Dims == 0 {
		f.pipeline.Dims = f.destination.Dims
	}
	if f.pipeline.Dims == 0 {
		return nil, fail(fmt.Sprintf("the width of the vectors is not known: neither the model nor the destination %s says it", destinationName(spec)), nil)
	}
	if problem, hint := unindexable(spec, f.destination.Stored, f.pipeline.Dims); problem != "" {
		return nil, fail(problem, hint)
	}
	return f, nil
}

// usable returns *PermissionError when the role may not even name the table: then nothing else about it can be asked.
func usable(ctx context.Context, q database.Querier, t *table) error {
	var role string
	var usage bool
	if err := q.QueryRow(ctx, "SELECT current_user::text, has_schema_privilege($1, 'USAGE')", t.Schema).Scan(&role,
		&usage); err != nil {
		return fmt.Errorf("look up privileges on schema %s: %w", database.Quote(t.Schema), err)
	}
	if !usage {
		return &refusal.PermissionError{
			What: "look at table " + t.quoted(), Role: role,
			SQL: []string{"GRANT USAGE ON SCHEMA " + database.Quote(t.Schema) + " TO " + database.Quote(role) + ";"},
		}
	}
	return nil
}

// malformed returns what no database is needed to see.
func malformed(spec pipeline.Spec) string {
	for what, name := range map[string]string{
		"schema": spec.Schema, "table": spec.Table, "destination column": spec.IntoColumn,
		"schema of the embedding table": spec.IntoSchema,
		"embedding table":               spec.IntoTable,
	} {
		if problem := badName(name); problem != "" && name != "" {
			return fmt.Sprintf("the name of the %s %s", what, problem)
		}
	}
	for _, c := range spec.Columns {
		if problem := badName(c); problem != "" {
			return fmt.Sprintf("the name of a column %s", problem)
		}
	}
	switch {
	case spec.Name == "":
		return "a pipeline has no name"
	case strings.ContainsRune(spec.Name, 0):
		return "the name of the pipeline contains a NUL character"
	case spec.Schema == "" || spec.Table == "":
		return "the source table has no schema or no name"
	case len(spec.Columns) == 0 && spec.Text == "":
		return "neither columns nor a text are given"
	case (spec.IntoColumn == "") == (spec.IntoTable == ""):
		return "there must be one destination: a column of the table, or an embedding table"
	}
	return spec.ChunkingMistake()
}

func badName(name string) string {
	switch {
	case name == "":
		return "is empty"
	case len(name) > maxName:
		return fmt.Sprintf("is %d bytes long; Postgres keeps %d", len(name), maxName)
	case strings.ContainsRune(name, 0):
		return "contains a NUL character"
	}
	return ""
}

// readColumns finds out which columns text and filter read.
func (f *findings) readColumns(ctx context.Context, tx pgx.Tx) error {
	p, t := &f.pipeline, f.table
	fail := func(problem string, hint []string) error {
		return &refusal.ConfigError{Pipeline: p.Name, Problem: problem, Hint: hint}
	}
	seen := map[string]bool{}
	for _, c := range p.Columns {
		if _, ok := t.column(c); !ok {
			return fail(fmt.Sprintf("table %s has no column %q", t.quoted(), c), pipeline.DidYouMean(c, t.columnNames()))
		}
		if seen[c] {
			return fail(fmt.Sprintf("column %q is named twice", c), nil)
		}
		seen[c] = true
	}
	text := p.Text
	if text == "" {
		text = TextExpression(p)
	}
	read, unknown := map[string]bool{}, false
	for _, e := range []struct{ word, expression string }{
		{textWord, text},
		{filterWord, p.Filter},
		{contextWord, p.Chunking.Context},
	} {
		if e.expression == "" && e.word != textWord {
			continue
		}
		r, problem, hint, err := readExpression(ctx, tx, t, e.word, e.expression)
		if problem != "" || err != nil {
			return refusal.Either(fail(problem, hint), err)
		}
		if r.Unknown && e.word == textWord && p.Text == "" && !t.anyGenerated(p.Columns) {
			r = reading{Columns: p.Columns} // no need to ask Postgres
		}
		for _, c := range r.Columns {
			read[c] = true
		}
		unknown = unknown || r.Unknown
		f.calls = append(f.calls, r.Calls...)
		f.warnings = append(f.warnings, r.Warnings...)
	}
	slices.Sort(f.calls)
	f.calls = slices.Compact(f.calls)
	if p.WatchAll = unknown; unknown {
		if !p.ToColumn() {
			return nil
		}
		var name, role string
		if err := tx.QueryRow(ctx, "SELECT current_database()::text, current_user::text").Scan(&name, &role); err != nil {
			return fmt.Errorf("look up role: %w", err)
		}
		return fail("what its text and filter read cannot be found out without the privilege TEMPORARY on the database, and a vector written into the row might change it",
			[]string{
				"GRANT TEMPORARY ON DATABASE " + database.Quote(name) + " TO " + database.Quote(role) + "; (for init alone)",
				"or use an embedding table as destination",
			})
	}
	if len(read) == 0 {
		f.warnings = append(f.warnings, "neither text nor filter reads a column: every row has the same text")
	}
	keys := keyNames(t.Key)
	f.reads = []string{}
	for _, c := range t.Columns {
		if !read[c.Name] {
			continue
		}
		f.reads = append(f.reads, c.Name)
		if !c.Generated && !slices.Contains(keys, c.Name) {
			p.Watched = append(p.Watched, c.Name)
		}
	}
	return nil
}

// anyGenerated reports whether one of the columns is made of others.
func (t *table) anyGenerated(names []string) bool {
	for _, name := range names {
		if c, _ := t.column(name); c.Generated {
			return true
		}
	}
	return false
}
