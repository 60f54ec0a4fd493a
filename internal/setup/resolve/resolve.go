// Package resolve confirms configured and stored pipelines against the catalog: whether they can work, what they watch,
// and which grants they need. It changes nothing.
package resolve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/spelling"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// Resolve confirms a pipeline against the database: table, key, what its text and filter read, destination, privileges
// of the current role. model describes its vectors; a width of 0 means that of the destination. The result has no ID,
// generation and fingerprint, which are in the pipeline's row.
//
// It returns *ConfigError (also as *MissingError) for what a user must change and *PermissionError with the missing
// grants. It changes nothing in the database. The destination must exist; init makes it.
func Resolve(ctx context.Context, db database.Beginner, spec pipeline.Spec, model catalog.Vectors) (p pipeline.Pipeline,
	warnings []string, err error,
) {
	err = database.RetryReadOnly(ctx, db, func(tx pgx.Tx) error {
		f, err := Inspect(ctx, tx, spec, model, nil)
		if err == nil {
			err = KnownZone(ctx, tx, spec)
		}
		if err != nil {
			return err
		}
		p, warnings = f.Pipeline, f.Warnings
		if !f.Destination.Exists {
			missing := refusal.For(spec.Name, code.Destination,
				"the destination "+f.Pipeline.DestinationName()+" does not exist", f.toMake()...)
			return errors.Join(missing, f.Permitted()) // the grants are needed as well
		}
		if err := f.behind(); err != nil {
			return err
		}
		return f.Permitted()
	})
	return p, warnings, err
}

// Permitted returns *PermissionError when the current role lacks a privilege to run the pipeline.
func (f *Findings) Permitted() error {
	statements := f.missingGrants()
	if len(statements) == 0 {
		return nil
	}
	what := fmt.Sprintf("run pipeline %q", f.Pipeline.Name)
	if some := f.hidden(); len(some) > 0 {
		what += fmt.Sprintf(": read column %s of %s", database.QuoteAll(some), f.Table.Quoted())
	}
	return &refusal.PermissionError{
		What: what, Role: f.Table.Reader, SQL: statements, Pipelines: []string{f.Pipeline.Name},
	}
}

// KnownZone returns *ConfigError when the server does not know a time zone of a pipeline.
func KnownZone(ctx context.Context, q database.Querier, spec pipeline.Spec) error {
	for _, of := range []struct{ setting, zone string }{
		{"active", spec.Active.Zone()}, {"budget", spec.Budget.Zone()}, {"budget of the model", spec.ModelBudget.Zone()},
	} {
		if of.zone == "UTC" {
			continue
		}
		var known bool
		args := pgx.StrictNamedArgs{"zone": of.zone}
		if err := q.QueryRow(ctx, sqlfiles.Query("zone_known"), args).Scan(&known); err != nil {
			return fmt.Errorf("look up the time zone of pipeline %q: %w", spec.Name, err)
		}
		if !known {
			return unknownZone(spec.Name, of.setting, of.zone)
		}
	}
	return nil
}

func unknownZone(name, setting, zone string) error {
	return refusal.For(name, "", fmt.Sprintf("%s: the server knows no time zone %q", setting, zone),
		"name it as in SELECT name FROM pg_timezone_names, such as Europe/Berlin")
}

// hidden returns the columns that the pipeline's expressions read and the role may not, although it may read others of
// the table. The missing grants do not show them, because those name all columns.
func (f *Findings) hidden() []string {
	names := f.Table.Unreadable()
	if len(names) == len(f.Table.Columns) {
		return nil
	}
	return slices.DeleteFunc(names, func(name string) bool { return !slices.Contains(f.Looks, name) })
}

// wants lists the tables of a pipeline, from its row if it has one.
func wants(spec pipeline.Spec, stored *Stored) (list []catalog.Want) {
	source := catalog.Want{Schema: spec.Schema, Name: spec.Table}
	if stored != nil {
		source.OID = stored.OID
	}
	list = append(list, source)
	if !spec.InSource() {
		into := spec.Destination()
		list = append(list, catalog.Want{Schema: into.Schema, Name: into.Table, Into: true})
	}
	p := pipeline.Pipeline{Spec: spec}
	for _, link := range p.Links() {
		j := link.Table()
		list = append(list, catalog.Want{OID: j.OID, Schema: j.Schema, Name: j.Table})
	}
	return list
}

// Known reads the tables of configured pipelines together. It returns nil on an error: each is then read individually.
func Known(ctx context.Context, tx pgx.Tx, specs []pipeline.Spec) *catalog.Known {
	var list []catalog.Want
	for _, spec := range specs {
		list = append(list, wants(spec, nil)...)
	}
	return together(ctx, tx, list)
}

func together(ctx context.Context, tx pgx.Tx, list []catalog.Want) (known *catalog.Known) {
	_ = database.RolledBack(ctx, tx, func(tx pgx.Tx) (err error) {
		known, err = catalog.Look(ctx, tx, list...)
		return err
	})
	return known
}

// Inspect checks everything but privileges. stored is the pipeline's row if it has one. The table is then found by its
// OID, even after a rename, and what text and filter read is taken from the row.
func Inspect(ctx context.Context, tx pgx.Tx, spec pipeline.Spec, model catalog.Vectors, stored *Stored) (*Findings,
	error,
) {
	if problem := catalog.Malformed(spec); problem != "" {
		return nil, refusal.For(spec.Name, "", problem)
	}
	known := model.Known
	if known == nil {
		var err error
		if known, err = catalog.Look(ctx, tx, wants(spec, stored)...); err != nil {
			return nil, refusal.About(spec.Name, err)
		}
	}
	t, err := sourceTable(ctx, tx, spec, known, stored)
	if err != nil {
		return nil, err
	}
	if stored != nil && spec.IntoSchema == "" {
		spec.IntoSchema = spec.Schema // the embedding table did not move with the source
	}
	spec.Schema, spec.Table = t.Schema, t.Name
	byOutput, err := t.StrangersTypes(ctx, tx, t.Key)
	if err != nil {
		return nil, refusal.About(spec.Name, err)
	}
	err = t.MeantByStrangers(tx, byOutput, spec.Text, spec.Filter, spec.Chunking.Context, spec.PriorityBy)
	if err != nil {
		return nil, refusal.About(spec.Name, err)
	}
	f := &Findings{Table: t, known: known}
	p := &f.Pipeline
	if stored != nil {
		*p = stored.Pipeline
	}
	p.Spec, p.OID, p.Key, p.Partitioned, p.ByOutput, p.Triggers = spec, t.OID, t.Key, t.Kind == "p", byOutput, t.Triggers
	p.Status, p.TriggerMark, p.OwnerMark = pipeline.Active, t.TriggerMark, t.OwnerMark
	if t.Children {
		f.Warnings = append(f.Warnings, "tables that inherit from "+t.Quoted()+
			" are left out: only its own rows get a vector")
	}
	if stored == nil {
		if err := f.lookForOrder(ctx, tx); err != nil {
			return nil, err
		}
	}
	if err := f.readJoins(ctx, tx, stored != nil); err != nil {
		return nil, err
	}
	if f.Vector, err = known.Vector(ctx, tx, model.Promised); err != nil {
		return nil, refusal.About(spec.Name, err)
	}
	f.Pipeline.Extension = f.Vector.Extension()
	if stored != nil {
		err = f.recall(ctx, tx, stored)
	} else {
		err = f.readColumns(ctx, tx, model.Stored)
	}
	if err != nil {
		return nil, err
	}
	model.Known = known
	d, err := catalog.FindDestination(ctx, tx, spec, t, f.Vector, model)
	f.Destination, f.Pipeline.Form = d, d.Form
	if err != nil {
		return nil, refusal.Of(spec.Name, err)
	}
	if spec.InSource() && slices.Contains(slices.Concat(f.Reads, p.Watched), spec.IntoColumn) {
		return nil, refusal.For(spec.Name, "", fmt.Sprintf(
			"the text reads the destination %q: every vector would trigger another one", spec.IntoColumn))
	}
	f.Pipeline.Dims = cmp.Or(model.Dims, f.Destination.Dims)
	if f.Pipeline.Dims == 0 && !model.Unasked {
		return nil, refusal.For(spec.Name, "", fmt.Sprintf(
			"the width of the vectors is unknown: neither the model nor the destination %s defines it", spec.DestinationName()))
	}
	if err := unindexable(spec, f.Destination.Stored, f.Pipeline.Dims); err != nil {
		return nil, refusal.Of(spec.Name, err)
	}
	if err := otherIndex(ctx, tx, spec, f.Destination.Stored, f.Vector); err != nil {
		return nil, refusal.Of(spec.Name, err)
	}
	return f, nil
}

// sourceTable finds the table of a pipeline and checks that it can be embedded.
func sourceTable(ctx context.Context, tx pgx.Tx, spec pipeline.Spec, known *catalog.Known, stored *Stored) (
	t *catalog.Table, err error,
) {
	if stored != nil {
		t, err = known.TableByOID(ctx, tx, stored.OID)
	} else {
		t, err = known.TableByName(ctx, tx, spec.Schema, spec.Table)
	}
	if err != nil {
		return nil, refusal.About(spec.Name, err)
	}
	if err := t.Embeddable(); err != nil {
		return nil, refusal.Of(spec.Name, err)
	}
	if err := t.Named(); err != nil {
		return nil, err
	}
	unruly := t.Unruly
	if spec.InSource() {
		unruly = t.UnrulyIntoColumn
	}
	if err := unruly(ctx, tx); err != nil {
		return nil, refusal.About(spec.Name, err)
	}
	if err := t.CheckKey(); err != nil {
		return nil, refusal.Of(spec.Name, err)
	}
	if t.Kind == "p" {
		if err := t.CheckLeaves(ctx, tx); err != nil {
			return nil, refusal.Of(spec.Name, err)
		}
		if err := t.FindRoutes(ctx, tx); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// lookForOrder warns if no index has the order of the key, which paged scans need. That of a temporal key (WITHOUT
// OVERLAPS) does not.
func (f *Findings) lookForOrder(ctx context.Context, tx pgx.Tx) error {
	t := f.Table
	if len(t.Key) == 0 || !strings.HasSuffix(t.Key[len(t.Key)-1].Type, "range") {
		return nil
	}
	list, err := indexesOf(ctx, tx, t)
	keys := pipeline.KeyNames(t.Key)
	if err == nil && !slices.ContainsFunc(list, func(i index) bool {
		return len(i.Columns) >= len(keys) && slices.Equal(i.Columns[:len(keys)], keys)
	}) {
		f.Warnings = append(f.Warnings, fmt.Sprintf("%s has no index in the order of its key: each page of a comparison "+
			"reads all of it: CREATE INDEX CONCURRENTLY ON %[1]s (%s);", t.Quoted(), database.QuoteAll(keys)))
	}
	return err
}

// readColumns finds out which columns text and filter read. With stored, it does not check plain columns again.
func (f *Findings) readColumns(ctx context.Context, tx pgx.Tx, stored bool) error {
	p, t := &f.Pipeline, f.Table
	for i, c := range p.Columns {
		if _, ok := t.Column(c); !ok {
			return refusal.For(p.Name, "", fmt.Sprintf("table %s has no column %q", t.Quoted(), c),
				spelling.DidYouMean(c, t.ColumnNames())...)
		}
		if slices.Contains(p.Columns[:i], c) {
			return refusal.For(p.Name, "", fmt.Sprintf("column %q is named twice", c))
		}
	}
	text := p.Text
	if text == "" {
		own := *p // joins are not part of the row's own text
		own.Joins = nil
		text = own.TextExpression()
	}
	read, unknown := map[string]bool{}, false
	for _, j := range p.Joins {
		for _, on := range j.On {
			read[on.Of] = true
		}
	}
	for _, e := range []struct{ word, expression string }{
		{catalog.TextWord, text},
		{catalog.FilterWord, p.Filter},
		{catalog.ContextWord, p.Chunking.Context},
	} {
		if e.expression == "" && e.word != catalog.TextWord {
			continue
		}
		r, err := catalog.Reading{Columns: p.Columns}, error(nil)
		if !stored || e.word != catalog.TextWord || p.Text != "" || !t.Plain(p.Columns) {
			r, err = catalog.ReadExpression(ctx, tx, t, e.word, e.expression)
		}
		if err != nil {
			return refusal.Of(p.Name, err)
		}
		if r.Unknown && e.word == catalog.TextWord && p.Text == "" && !t.AnyGenerated(p.Columns) {
			r = catalog.Reading{Columns: p.Columns} // plain columns need no analysis
		}
		for _, c := range r.Columns {
			read[c] = true
		}
		unknown = unknown || r.Unknown
		f.Calls = append(f.Calls, r.Calls...)
		f.Warnings = append(f.Warnings, r.Warnings...)
	}
	if err := f.readIgnore(ctx, tx); err != nil {
		return err
	}
	slices.Sort(f.Calls)
	f.Calls = slices.Compact(f.Calls)
	if p.WatchAll = unknown; unknown {
		if !p.InSource() {
			return f.readPriority(ctx, tx)
		}
		var name, role string
		if err := tx.QueryRow(ctx, "SELECT current_database()::text, current_user::text").Scan(&name, &role); err != nil {
			return fmt.Errorf("look up role: %w", err)
		}
		return refusal.For(p.Name, "", "what its text and filter read cannot be found out without the privilege TEMPORARY on the database, and a vector written into the row might change it",
			"GRANT TEMPORARY ON DATABASE "+database.Quote(name)+" TO "+database.Quote(role)+"; (for init alone)",
			"or use an embedding table as destination")
	}
	f.watch(read)
	return f.readPriority(ctx, tx)
}

// watch sets the columns that are read and those that are watched.
func (f *Findings) watch(read map[string]bool) {
	p, t := &f.Pipeline, f.Table
	if len(read) == 0 {
		f.Warnings = append(f.Warnings, "neither text nor filter reads a column: every row has the same text")
	}
	keys := pipeline.KeyNames(t.Key)
	f.Reads = []string{}
	for _, c := range t.Columns {
		if !read[c.Name] {
			continue
		}
		f.Reads = append(f.Reads, c.Name)
		if !c.Generated && !slices.Contains(keys, c.Name) {
			p.Watched = append(p.Watched, c.Name)
		}
	}
	f.Looks = append([]string{}, f.Reads...)
}

// readIgnore checks the ignore expression. The functions that it calls count like those of the text: another function
// of that name can make other texts count as equal.
func (f *Findings) readIgnore(ctx context.Context, tx pgx.Tx) error {
	if f.Pipeline.Ignore == "" {
		return nil
	}
	r, err := catalog.ReadExpression(ctx, tx, f.Table, catalog.IgnoreWord, f.Pipeline.Ignore)
	if err != nil {
		return refusal.Of(f.Pipeline.Name, err)
	}
	f.Warnings = append(f.Warnings, r.Warnings...)
	f.Calls = append(f.Calls, r.Calls...)
	return nil
}

// readPriority adds the columns that the priority expression reads. A change of only these does not cause embedding,
// and the functions it calls do not affect the text.
func (f *Findings) readPriority(ctx context.Context, tx pgx.Tx) error {
	if f.Pipeline.PriorityBy == "" {
		return nil
	}
	r, err := catalog.ReadExpression(ctx, tx, f.Table, catalog.PriorityWord, f.Pipeline.PriorityBy)
	if err != nil {
		return refusal.Of(f.Pipeline.Name, err)
	}
	if r.Unknown || f.Looks == nil {
		f.Looks = nil
		return nil
	}
	f.Looks = lists.Add(f.Looks, r.Columns...)
	return nil
}

// Findings is the catalog's information about a pipeline.
type Findings struct {
	Pipeline    pipeline.Pipeline
	Table       *catalog.Table
	known       *catalog.Known
	Destination catalog.Destination
	Vector      catalog.VectorType
	Reads       []string // columns of text and filter, also generated ones, by attribute number; nil: unknown
	Looks       []string // the same and the columns of the priority; nil: unknown
	Calls       []string // user functions that text, filter, ignore and context call, sorted
	Joined      []Joined
	Warnings    []string
	Digest      string // of its configured definition
	Unproven    bool   // unknown whether the destination holds other programs' vectors
	Inherits    bool   // the pipeline takes over the existing vectors
	Kept        int32  // a removed pipeline with the same column, whose ledger was kept; 0: none
}
