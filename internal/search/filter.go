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
	"unicode/utf8"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/spelling"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// Filter is a condition on a column. All that is set must hold; values are read as Postgres reads them.
type Filter struct {
	Values  []string // it has one of these; given: Values is not nil
	Null    bool     // it is NULL
	Except  []string // it has a value, and none of these
	Present bool     // it is not NULL
	Bounds  []Bound  // it is beyond each of these
}

// Bound is a value with which one of a column is compared.
type Bound struct {
	Than  Strategy
	Value string
}

// Strategy is a comparison, by its number among those of a B-tree.
type Strategy int

// The comparisons.
const (
	Below   Strategy = 1
	AtMost  Strategy = 2
	Equal   Strategy = 3
	AtLeast Strategy = 4
	Above   Strategy = 5
)

// Bounds of a filter. They keep a statement from growing without end.
const (
	MaxConditions = 16
	MaxValues     = 1000
)

// Names of operators in a filter.
const (
	opEqual = "$eq"
	opNot   = "$ne"
	opIn    = "$in"
	opNotIn = "$nin"
)

// bounding are the operators that compare.
var bounding = map[string]Strategy{"$lt": Below, "$lte": AtMost, "$gte": AtLeast, "$gt": Above}

// operators lists the names of all.
var operators = []string{opEqual, opNot, opIn, opNotIn, "$gt", "$gte", "$lt", "$lte"}

// UnmarshalJSON reads a value, a list of values any of which will do, or an object of operators: {"$gte": 3, "$lt": 9}.
// Values are strings, numbers, true, false and null. It keeps no more of them than a search takes.
func (f *Filter) UnmarshalJSON(b []byte) error {
	*f = Filter{}
	decoder := json.NewDecoder(bytes.NewReader(b))
	decoder.UseNumber()
	first, err := decoder.Token()
	if err != nil {
		return err
	}
	if first != json.Delim('{') {
		values, null, err := operands(decoder, first)
		f.Values, f.Null = values, null
		return err
	}
	seen := map[string]bool{}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return err
		}
		operator := fmt.Sprint(name)
		if seen[operator] {
			return fmt.Errorf("a filter has the operator %s twice for a column", operator)
		}
		seen[operator] = true
		if err := f.operator(operator, decoder); err != nil {
			return err
		}
	}
	if len(seen) == 0 {
		return errors.New("a filter has no operator for a column: " + strings.Join(operators, ", "))
	}
	return nil
}

// operator reads what stands behind the name of one.
func (f *Filter) operator(name string, decoder *json.Decoder) error {
	than, bounds := bounding[name]
	if !bounds && !slices.Contains(operators, name) {
		return fmt.Errorf("a filter has no operator %q: there are %s", wording.Cut(name, 40), strings.Join(operators, ", "))
	}
	first, err := decoder.Token()
	if err != nil {
		return err
	}
	values, null, err := operands(decoder, first)
	if err != nil {
		return err
	}
	list := first == json.Delim('[')
	switch {
	case list != (name == opIn || name == opNotIn):
		return fmt.Errorf("a filter: %s and %s take a list, other operators one value", opIn, opNotIn)
	case bounds && null:
		return fmt.Errorf("a filter: nothing is more or less than null, so %s takes a value", name)
	case (name == opEqual || name == opIn) && (f.Values != nil || f.Null):
		return fmt.Errorf("a filter: %s and %s do not go together", opEqual, opIn)
	case bounds:
		f.Bounds = append(f.Bounds, Bound{than, values[0]})
	case name == opEqual || name == opIn:
		f.Values, f.Null = values, null
	default:
		f.Except, f.Present = append(f.Except, values...), f.Present || null
	}
	return nil
}

// operands reads a value or a list of values, of which the first token has been read. A list is not nil.
func operands(decoder *json.Decoder, first json.Token) (values []string, null bool, err error) {
	if first != json.Delim('[') {
		return operand(nil, first)
	}
	values = []string{}
	for decoder.More() {
		value, err := decoder.Token()
		if err != nil {
			return nil, false, err
		}
		if len(values) == MaxValues {
			return nil, false, fmt.Errorf("a filter has more than %d values for a column", MaxValues)
		}
		var none bool
		if values, none, err = operand(values, value); err != nil {
			return nil, false, err
		}
		null = null || none
	}
	_, err = decoder.Token() // the end of the list
	return values, null, err
}

// operand adds a value, unless it is null.
func operand(values []string, value json.Token) (all []string, null bool, err error) {
	switch v := value.(type) {
	case nil:
		return values, true, nil
	case string:
		return append(values, v), false, nil
	case json.Number:
		return append(values, v.String()), false, nil
	case bool:
		return append(values, fmt.Sprint(v)), false, nil
	}
	return nil, false, errors.New("a filter holds strings, numbers, true, false and null, lists of these, " +
		`or operators: {"$gte": 3}`)
}

// Texts returns all values of a filter.
func (f Filter) Texts() []string {
	texts := slices.Concat(f.Values, f.Except)
	for _, b := range f.Bounds {
		texts = append(texts, b.Value)
	}
	return texts
}

// ParseFilter reads the conditions of a filter in JSON.
func ParseFilter(text string) (map[string]Filter, error) {
	var f map[string]Filter
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		return nil, bad("filter: %v", err)
	}
	return f, nil
}

// filterable is a column of the source table as a condition needs it.
type filterable struct {
	Name string
	Type string // schema-qualified, without width: ready for a cast
	// by Strategy, from 1; empty: its values cannot be compared
	Operators []string
}

func (c filterable) comparable() bool { return len(c.Operators) == int(Above) }

// conditionsOf turns filters into SQL over a row, to be put behind an alias and a dot, and adds their parameters.
// Columns are those of the catalogue; nothing of what was asked for becomes part of the statement. Values that do not
// fit their columns are refused here: what fails afterwards is nothing that the caller has given.
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
	conditions, err := s.compare(ctx, tx, p, columns, access.Fixed)
	if wrong, ok := errors.AsType[*BadRequestError](err); ok { // not that of the caller
		return nil, fmt.Errorf("the fixed filter of a token, pipeline %q: %s", p.Name, wrong.Problem)
	}
	if err != nil {
		return nil, err
	}
	if columns, err = shared(p, columns, access, "filter", slices.Sorted(maps.Keys(filter))); err != nil {
		return nil, err
	}
	more, err := s.compare(ctx, tx, p, columns, filter)
	return append(conditions, more...), err
}

// shared returns the columns that an access lets a request be about, and refuses one that names others.
func shared(p *pipeline.Pipeline, columns []filterable, access *Access, what string, asked []string) ([]filterable,
	error,
) {
	if access == nil || access.Columns == nil {
		return columns, nil
	}
	barred := func(c filterable) bool { return !slices.Contains(access.Columns, c.Name) }
	for _, c := range columns {
		if slices.Contains(asked, c.Name) && barred(c) {
			return nil, &BadRequestError{
				Problem: fmt.Sprintf("%s: column %q of %s is none to filter by or to return", what, c.Name, p.Source()),
				Hint:    []string{"the pipeline's configuration may name more: search: {filterable: [" + c.Name + "]}"},
			}
		}
	}
	return slices.DeleteFunc(columns, barred), nil
}

func column(p *pipeline.Pipeline, columns []filterable, what, name string) (filterable, error) {
	at := slices.IndexFunc(columns, func(c filterable) bool { return c.Name == name })
	if at < 0 {
		names := lists.Map(columns, func(c filterable) string { return c.Name })
		return filterable{}, &BadRequestError{
			Problem: fmt.Sprintf("%s: %s has no column %q", what, p.Source(), name),
			Hint:    spelling.DidYouMean(name, names),
		}
	}
	return columns[at], nil
}

// check refuses a condition that makes no sense for the column.
func (f Filter) check(c filterable) error {
	values := len(f.Values) + len(f.Except) + len(f.Bounds)
	switch {
	case !c.comparable():
		return bad("filter: column %q is of type %s, whose values cannot be compared", c.Name, c.Type)
	case values > MaxValues:
		return bad("filter: column %q has %d values, %d are possible", c.Name, values, MaxValues)
	case values == 0 && !f.Null && !f.Present, f.Values != nil && len(f.Values) == 0 && !f.Null:
		return bad("filter: column %q has no value to compare with", c.Name)
	case slices.ContainsFunc(f.Texts(), func(v string) bool { return strings.ContainsRune(v, 0) || !utf8.ValidString(v) }):
		return bad("filter: column %q: a value cannot hold a NUL character, nor anything but UTF-8", c.Name)
	case f.Null && values > 0:
		return bad("filter: column %q: null goes without other values", c.Name)
	}
	return nil
}

// compare adds the conditions of a filter.
func (s *statement) compare(ctx context.Context, tx pgx.Tx, p *pipeline.Pipeline, columns []filterable,
	filter map[string]Filter,
) ([]string, error) {
	var (
		conditions []string
		fitting    pgx.Batch
		checked    []filterable
	)
	for _, name := range slices.Sorted(maps.Keys(filter)) {
		f := filter[name]
		c, err := column(p, columns, "filter", name)
		if err == nil {
			err = f.check(c)
		}
		if err != nil {
			return nil, err
		}
		k := pipeline.KeyColumn{Type: c.Type, ByInput: slices.Contains(p.ByOutput, name) && !strings.HasSuffix(c.Type, "[]")}
		// The alias comes before each condition, so a column comes first in it.
		add := func(than Strategy, values []string, is string) {
			if len(values) == 0 {
				return
			}
			list := k.ListOf(values)
			fitting.Queue("SELECT CAST("+k.TypedList("$1")+" AS "+c.Type+"[]) IS NULL", list)
			checked = append(checked, c)
			s.args = append(s.args, list)
			conditions = append(conditions, quote(name)+" "+c.Operators[than-1]+fmt.Sprintf(" ANY (CAST(%s AS %s[]))",
				k.TypedList(fmt.Sprintf("$%d", len(s.args))), c.Type)+is)
		}
		add(Equal, f.Values, "")
		add(Equal, f.Except, " IS FALSE")
		for _, b := range f.Bounds {
			add(b.Than, []string{b.Value}, "")
		}
		if f.Null {
			conditions = append(conditions, quote(name)+" IS NULL")
		}
		if f.Present {
			conditions = append(conditions, quote(name)+" IS NOT NULL")
		}
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

// filterables lists the columns of the source table with the comparisons of their types.
func filterables(ctx context.Context, tx pgx.Tx, p *pipeline.Pipeline) ([]filterable, error) {
	columns, err := database.Collect(ctx, tx, "filterable_columns", pgx.RowToStructByName[filterable],
		pgx.StrictNamedArgs{"table": p.OID})
	return columns, wrap.Errorf(err, "look up columns of %s", p.Source())
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
	return query, wrap.Errorf(err, "read the words of the question")
}
