package search

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/base/spelling"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// Filter is a condition on a column: it has one of these values, as Postgres reads them, or it is NULL if that is
// among them.
type Filter struct {
	Values []string
	Null   bool
}

// Bounds of a filter. They keep a statement from growing without end.
const (
	MaxConditions = 16
	MaxValues     = 1000
)

// UnmarshalJSON reads a value, or a list of values any of which will do: strings, numbers, true, false and null. It
// keeps no more of them than a search takes.
func (f *Filter) UnmarshalJSON(b []byte) error {
	*f = Filter{}
	decoder := json.NewDecoder(bytes.NewReader(b))
	decoder.UseNumber()
	first, err := decoder.Token()
	if err != nil {
		return err
	}
	if first != json.Delim('[') {
		return f.take(first)
	}
	for decoder.More() {
		value, err := decoder.Token()
		if err != nil {
			return err
		}
		if len(f.Values) == MaxValues {
			return fmt.Errorf("a filter has more than %d values for a column", MaxValues)
		}
		if err := f.take(value); err != nil {
			return err
		}
	}
	return nil
}

func (f *Filter) take(value json.Token) error {
	switch v := value.(type) {
	case nil:
		f.Null = true
	case string:
		f.Values = append(f.Values, v)
	case json.Number:
		f.Values = append(f.Values, v.String())
	case bool:
		f.Values = append(f.Values, fmt.Sprint(v))
	default:
		return errors.New("a filter holds strings, numbers, true, false and null, or lists of these")
	}
	return nil
}

// filterable is a column of the source table as a condition needs it.
type filterable struct {
	Name  string
	Type  string // schema-qualified, without width: ready for a cast
	Equal string // the operator; "": it has none
}

// conditionsOf turns filters into SQL over a row, to be put behind an alias and a dot, and adds their parameters.
// Columns are those of the catalogue; nothing of what was asked for becomes part of the statement. Values that do not
// fit their columns are refused here: what fails afterwards is nothing that whoever asks has given.
func (s *statement) conditionsOf(ctx context.Context, tx pgx.Tx, p *pipeline.Pipeline, filter map[string]Filter,
	access *Access,
) ([]string, error) {
	if access == nil {
		access = &Access{}
	}
	if len(filter)+len(access.Fixed) == 0 {
		return nil, nil
	}
	if len(filter) > MaxConditions {
		return nil, bad("a filter may name %d columns, not %d", MaxConditions, len(filter))
	}
	columns, err := filterables(ctx, tx, p)
	if err != nil {
		return nil, err
	}
	conditions, err := s.equal(ctx, tx, p, columns, access.Fixed)
	if wrong, ok := errors.AsType[*BadRequestError](err); ok { // not that of whoever asks
		return nil, fmt.Errorf("the fixed filter of a token, pipeline %q: %s", p.Name, wrong.Problem)
	}
	if err != nil {
		return nil, err
	}
	if access.Columns != nil {
		barred := func(c filterable) bool { return !slices.Contains(access.Columns, c.Name) }
		for _, c := range columns {
			if _, asked := filter[c.Name]; asked && barred(c) {
				return nil, &BadRequestError{Problem: fmt.Sprintf("filter: column %q of %s is none to filter by", c.Name,
					p.Source()), Hint: []string{
					"the pipeline's configuration may name more: search: {filterable: [" + c.Name + "]}",
				}}
			}
		}
		columns = slices.DeleteFunc(columns, barred)
	}
	more, err := s.equal(ctx, tx, p, columns, filter)
	return append(conditions, more...), err
}

// equal adds a condition for each column of a filter.
func (s *statement) equal(ctx context.Context, tx pgx.Tx, p *pipeline.Pipeline, columns []filterable,
	filter map[string]Filter,
) ([]string, error) {
	var (
		conditions []string
		fitting    pgx.Batch
		checked    []filterable
	)
	for _, name := range slices.Sorted(maps.Keys(filter)) {
		f := filter[name]
		at := slices.IndexFunc(columns, func(c filterable) bool { return c.Name == name })
		switch {
		case at < 0:
			return nil, &BadRequestError{
				Problem: fmt.Sprintf("filter: %s has no column %q", p.Source(), name),
				Hint:    spelling.DidYouMean(name, comparables(columns)),
			}
		case columns[at].Equal == "":
			return nil, bad("filter: column %q is of type %s, whose values cannot be compared", name, columns[at].Type)
		case len(f.Values) > MaxValues:
			return nil, bad("filter: column %q has %d values, %d are possible", name, len(f.Values), MaxValues)
		case len(f.Values) == 0 && !f.Null:
			return nil, bad("filter: column %q has no value to compare with", name)
		case len(f.Values) > 0 && f.Null:
			return nil, bad("filter: column %q: null goes without other values", name)
		}
		c := columns[at]
		if f.Null {
			conditions = append(conditions, quote(name)+" IS NULL")
			continue
		}
		k := pipeline.KeyColumn{Type: c.Type, ByInput: slices.Contains(p.ByOutput, name) && !strings.HasSuffix(c.Type, "[]")}
		values := k.ListOf(f.Values)
		fitting.Queue("SELECT CAST("+k.TypedList("$1")+" AS "+c.Type+"[]) IS NULL", values)
		checked = append(checked, c)
		s.args = append(s.args, values)
		// The alias comes before each condition, so a column comes first in it.
		conditions = append(conditions, quote(name)+" "+c.Equal+fmt.Sprintf(" ANY (CAST(%s AS %s[]))",
			k.TypedList(fmt.Sprintf("$%d", len(s.args))), c.Type))
	}
	at, err := fits(ctx, tx, &fitting)
	if database.Judge(err) == database.Data {
		return nil, bad("filter: a value for column %q does not fit its type, %s", checked[at].Name, checked[at].Type)
	}
	return conditions, err
}

// fits runs statements that read values which were given, and returns the place of the first that fails.
func fits(ctx context.Context, tx pgx.Tx, statements *pgx.Batch) (at int, err error) {
	results := tx.SendBatch(ctx, statements)
	for at = range statements.Len() {
		if _, err = results.Exec(); err != nil {
			_ = results.Close() // it says the same once more
			return at, err
		}
	}
	return 0, results.Close()
}

// fitsKey refuses a key that is none of the table's.
func fitsKey(ctx context.Context, tx pgx.Tx, p *pipeline.Pipeline, values []string) error {
	var fitting pgx.Batch
	for i, k := range p.Key {
		fitting.Queue("SELECT "+k.Param("$1")+" IS NULL", values[i])
	}
	at, err := fits(ctx, tx, &fitting)
	if database.Judge(err) == database.Data {
		return bad("key: what is given for column %q does not fit its type, %s", p.Key[at].Name, p.Key[at].Type)
	}
	return err
}

// comparables are the names of the columns that a filter can be about.
func comparables(columns []filterable) []string {
	var names []string
	for _, c := range columns {
		if c.Equal != "" {
			names = append(names, c.Name)
		}
	}
	return names
}

// filterables lists the columns of the source table with the equality of their types.
func filterables(ctx context.Context, tx pgx.Tx, p *pipeline.Pipeline) ([]filterable, error) {
	columns, err := database.Collect(ctx, tx, "filterable_columns", pgx.RowToStructByName[filterable],
		pgx.StrictNamedArgs{"table": p.OID})
	if err != nil {
		return nil, fmt.Errorf("look up columns of %s: %w", p.Source(), err)
	}
	return columns, nil
}

// language returns a text search configuration, quoted for SQL: that of a name, or the database's own.
func language(ctx context.Context, tx pgx.Tx, name string) (string, error) {
	var schema, config string
	err := tx.QueryRow(ctx, sqlfiles.Query("text_search_configuration"), pgx.StrictNamedArgs{"name": name}).
		Scan(&schema, &config)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", bad("there is no text search configuration %q: SELECT cfgname FROM pg_ts_config lists them", name)
	}
	if err != nil {
		return "", fmt.Errorf("look up text search configuration: %w", err)
	}
	return literal(quote(schema)+"."+quote(config)) + "::pg_catalog.regconfig", nil
}

// lexemes returns the words of a text as a tsquery of any of them; "" if it has none.
func lexemes(ctx context.Context, tx pgx.Tx, language, text string) (query string, err error) {
	// Quoted once more as lexemes: nothing in them can be an operator.
	err = tx.QueryRow(ctx, `SELECT coalesce(pg_catalog.string_agg('''' || pg_catalog.replace(pg_catalog.replace(w.lexeme,
		'\', '\\'), '''', '''''') || '''', ' | ')::pg_catalog.tsquery::text, '')
		FROM pg_catalog.unnest(pg_catalog.to_tsvector(`+language+`, $1::text)) AS w`, text).Scan(&query)
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == pgerrcode.ProgramLimitExceeded {
		return "", bad("text: it has too many words to search for")
	}
	if err != nil {
		return "", fmt.Errorf("read the words of the question: %w", err)
	}
	return query, nil
}
