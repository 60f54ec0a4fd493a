package resolve

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/spelling"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
)

// Joined is a joined table in the catalog.
type Joined struct {
	Table *catalog.Table
	Uses  []string // columns whose changes matter; nil: all
}

// readJoins confirms the joins of a pipeline. With known, they are stored together with what their texts read.
func (f *Findings) readJoins(ctx context.Context, tx pgx.Tx, known bool) error {
	p := &f.Pipeline
	if len(p.Joins) == 0 {
		return nil
	}
	p.Joins = p.Joins.Clone()
	if err := f.confirmJoins(ctx, tx, "joins", f.Table, p.Joins, known); err != nil {
		return refusal.Of(p.Name, err)
	}
	f.Table.Joined = p.Joins.Names()
	return nil
}

func (f *Findings) confirmJoins(ctx context.Context, tx pgx.Tx, path string, of *catalog.Table, joins pipeline.Joins,
	known bool,
) error {
	for i := range joins {
		at := fmt.Sprintf("%s[%d]", path, i)
		if err := f.confirmJoin(ctx, tx, at, of, &joins[i], known); err != nil {
			var wrong *refusal.ConfigError
			if missing, ok := errors.AsType[*refusal.MissingError](err); ok { // it is not the source that is missing
				wrong = &missing.ConfigError
			} else if !errors.As(err, &wrong) {
				return err
			}
			told := *wrong
			if !strings.HasPrefix(told.Problem, path) {
				told.Problem = at + ": " + told.Problem
			}
			return &told
		}
	}
	return nil
}

// confirmJoin confirms one join and then its nested ones. Its rows may reference those of the parent table, or be
// referenced by them.
func (f *Findings) confirmJoin(ctx context.Context, tx pgx.Tx, path string, of *catalog.Table, j *pipeline.Join,
	known bool,
) error {
	t, err := f.joinedTable(ctx, tx, j, known)
	if err != nil {
		return err
	}
	j.OID, j.Schema, j.Table = t.OID, t.Schema, t.Name
	if slices.Contains(of.ColumnNames(), j.As) {
		return refusal.Coded(code.Join, fmt.Sprintf("its text is called %q, as a column of %s is", j.As, of.Quoted()),
			"give it another name: as: NAME")
	}
	if err := joinColumns(ctx, tx, of, t, j); err != nil {
		return err
	}
	if err := namesOld(t, j); err != nil {
		return err
	}
	if err := f.confirmJoins(ctx, tx, path+".joins", t, j.Joins, known); err != nil {
		return err
	}
	t.As, t.Joined = j.As, j.Joins.Names()
	if !known {
		if err := f.readJoin(ctx, tx, of, t, j); err != nil {
			return err
		}
	}
	f.Joined = append(f.Joined, Joined{t, j.Uses})
	return nil
}

// joinedTable finds the table, and refuses one that cannot or must not be joined.
func (f *Findings) joinedTable(ctx context.Context, tx pgx.Tx, j *pipeline.Join, known bool) (t *catalog.Table,
	err error,
) {
	if known && j.OID != 0 {
		if t, err = f.known.TableByOID(ctx, tx, j.OID); err != nil {
			if _, gone := errors.AsType[*refusal.MissingError](err); gone {
				return nil, refusal.Coded(code.Join, "the table "+database.Quote(j.Schema, j.Table)+" was dropped")
			}
			return nil, err
		}
	} else if t, err = f.known.TableByName(ctx, tx, j.Schema, j.Table); err != nil {
		return nil, err
	}
	p := &f.Pipeline
	if err := t.Embeddable(); err != nil {
		return nil, err
	}
	switch {
	case t.Kind == "p":
		return nil, refusal.Coded(code.Join, t.Quoted()+" is partitioned: joined tables cannot be",
			"join its partitions, each with a name of its own (as: NAME)",
			"or have a trigger keep what the text needs in a plain table, and join that")
	case t.OID == f.Table.OID && p.InSource():
		return nil, refusal.Coded(code.Join, "a table is joined to itself, and its vectors go into a column of it: "+
			"each vector would count as a change of what is joined", "use an embedding table: into: {table: NAME}")
	case !p.InSource() && t.Quoted() == p.Into():
		return nil, refusal.Coded(code.Join, t.Quoted()+" is the embedding table of the pipeline itself")
	}
	if err := t.Named(); err != nil {
		return nil, err
	}
	if err := t.Unruly(ctx, tx); err != nil {
		return nil, err
	}
	foreign, err := t.StrangersTypes(ctx, tx, nil)
	if err != nil {
		return nil, err
	}
	return t, t.MeantByStrangers(tx, foreign, j.Text)
}

// joinColumns checks that the join columns exist and can be compared.
func joinColumns(ctx context.Context, tx pgx.Tx, of, t *catalog.Table, j *pipeline.Join) error {
	var columns, others []string
	for _, on := range j.On {
		for _, c := range []struct {
			table *catalog.Table
			name  string
		}{{t, on.Column}, {of, on.Of}} {
			if _, ok := c.table.Column(c.name); !ok {
				return refusal.Coded(code.Join, fmt.Sprintf("on: table %s has no column %q", c.table.Quoted(), c.name),
					append(spelling.DidYouMean(c.name, c.table.ColumnNames()),
						"on: {COLUMN OF THE JOINED TABLE: COLUMN OF THE ROW}")...)
			}
		}
		columns, others = append(columns, on.Column), append(others, on.Of)
	}
	type pair struct {
		Type, Other            string
		Fits, Exact, Generated bool
	}
	pairs, err := database.Collect(ctx, tx, "joined_columns", pgx.RowToStructByName[pair], pgx.StrictNamedArgs{
		"joined": t.OID, "table": of.OID, "columns": columns, "of": others,
	})
	if err != nil {
		return fmt.Errorf("look up how %s is joined: %w", t.Quoted(), err)
	}
	for i, found := range pairs {
		on := &j.On[i]
		switch {
		case found.Generated:
			return refusal.Coded(code.Join, fmt.Sprintf("on: %q or %q is generated, so the WAL may not have it", on.Column,
				on.Of))
		case !found.Fits:
			return refusal.Coded(code.Join, fmt.Sprintf("on: %q is of type %s, and %q of type %s: they must have the same "+
				"built-in type and collation", on.Column, found.Type, on.Of, found.Other),
				"give one of the columns the type of the other")
		}
		on.Type, on.Exact = found.Type, found.Exact
	}
	return nil
}

// namesOld checks that the WAL of an UPDATE or DELETE contains the join columns of the old row.
func namesOld(t *catalog.Table, j *pipeline.Join) error {
	if t.Identity == "f" {
		return nil
	}
	var named []string
	if t.Identity != "n" {
		named = pipeline.KeyNames(t.Key) // a column list must include them
	}
	for _, on := range j.On {
		if !slices.Contains(named, on.Column) {
			hints := []string{"ALTER TABLE " + t.Quoted() + " REPLICA IDENTITY FULL;"}
			if t.AnyGenerated(t.ColumnNames()) { // with it, UPDATEs would fail on PostgreSQL 18
				hints = nil
			}
			return refusal.Coded(code.Join, fmt.Sprintf("the WAL does not have the old value of column %q when a row of %s "+
				"is changed or deleted", on.Column, t.Quoted()),
				append(hints, "with a unique index over NOT NULL columns with "+database.QuoteAll(onColumns(j))+" among them: ALTER TABLE "+
					t.Quoted()+" REPLICA IDENTITY USING INDEX ...;")...)
		}
	}
	return nil
}

func onColumns(j *pipeline.Join) []string {
	return lists.Map(j.On, func(on pipeline.On) string { return on.Column })
}

// inOrder finds aggregates whose value depends on the order of the rows, together with their ORDER BY.
var (
	ordered = regexp.MustCompile(`(?i)\b(string|array|jsonb?|xml)(_object)?_?agg\s*\(`)
	inOrder = regexp.MustCompile(`(?i)\border\s+by\b`)
)

// readJoin finds out what the text of a join reads, and checks that there is one text per row.
func (f *Findings) readJoin(ctx context.Context, tx pgx.Tx, of, t *catalog.Table, j *pipeline.Join) error {
	r, err := catalog.ReadExpression(ctx, tx, t, catalog.JoinWord, j.Text)
	if err != nil {
		return err
	}
	f.Calls = append(f.Calls, r.Calls...)
	f.Warnings = append(f.Warnings, r.Warnings...)
	warn := func(format string, args ...any) {
		f.Warnings = append(f.Warnings, "join "+j.As+": "+fmt.Sprintf(format, args...))
	}
	if ordered.MatchString(j.Text) && !inOrder.MatchString(j.Text) {
		warn("the text depends on the order of rows, which has no ORDER BY: it may differ each time it is read")
	}
	on := onColumns(j)
	ofColumns := lists.Map(j.On, func(o pipeline.On) string { return o.Of })
	unique, found, err := indexed(ctx, tx, t, on)
	if err != nil {
		return err
	}
	if !r.Grouped && !unique {
		return refusal.Coded(code.Join, fmt.Sprintf("several rows of %s may have the same %s, and the text is of one row",
			t.Quoted(), database.QuoteAll(on)), "use an aggregate: string_agg("+"..., ', ' ORDER BY ...)",
			"or make a unique index over "+database.QuoteAll(on))
	}
	const slow = "%s has no index that begins with %s: each %s reads all of it: CREATE INDEX CONCURRENTLY ON %[1]s (%[2]s);"
	if !found {
		warn(slow, t.Quoted(), database.QuoteAll(on), "text")
	}
	if _, found, err = indexed(ctx, tx, of, ofColumns); err != nil {
		return err
	} else if !found {
		warn(slow, of.Quoted(), database.QuoteAll(ofColumns), "change of "+t.Quoted())
	}
	if j.Uses = nil; r.Unknown {
		return nil
	}
	j.Uses = slices.Concat(on, r.Columns)
	for _, below := range j.Joins {
		for _, o := range below.On {
			j.Uses = append(j.Uses, o.Of)
		}
	}
	slices.Sort(j.Uses)
	j.Uses = slices.Compact(j.Uses)
	return nil
}

// index is an index without a predicate: its columns, in its order.
type index struct {
	Columns []string
	Unique  bool
}

func indexesOf(ctx context.Context, tx pgx.Tx, t *catalog.Table) ([]index, error) {
	list, err := database.Collect(ctx, tx, "table_indexes", pgx.RowToStructByName[index],
		pgx.StrictNamedArgs{"table": t.OID})
	return list, wrap.Errorf(err, "look up indexes of %s", t.Quoted())
}

// indexed reports whether columns identify at most one row of a table, and whether an index supports the lookup.
func indexed(ctx context.Context, tx pgx.Tx, t *catalog.Table, columns []string) (unique, found bool, err error) {
	list, err := indexesOf(ctx, tx, t)
	if err != nil {
		return false, false, err
	}
	for _, i := range list {
		found = found || slices.Contains(columns, i.Columns[0])
		outside := func(c string) bool { return !slices.Contains(columns, c) }
		unique = unique || i.Unique && !slices.ContainsFunc(i.Columns, outside)
	}
	return unique, found, nil
}

// parseJoins makes the server parse the texts of stored joins without running them.
func (f *Findings) parseJoins(ctx context.Context, tx pgx.Tx) error {
	for _, link := range f.Pipeline.Links() {
		j := link.Table()
		for _, known := range f.Joined {
			if known.Table.As != j.As {
				continue
			}
			if err := catalog.ParseExpression(ctx, tx, known.Table, catalog.JoinWord, j.Text); err != nil {
				return err
			}
		}
	}
	return nil
}
