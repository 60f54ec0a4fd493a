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

// Filters are conditions on columns, all of which must hold.
type Filters map[string]Filter

// Filter is what must hold of one column.
type Filter []Condition

// Condition compares a column with values. PostgreSQL parses the values.
type Condition struct {
	Operator string   // "": equal to one of the values, like $eq and $in
	Values   []string // all values but null
	Null     bool     // whether null is among the values
}

// Limits of a filter. They bound the length of a statement.
const (
	MaxConditions = 16
	MaxValues     = 1000
)

// operators maps the operators of a filter to the numbers of their B-tree strategies.
var operators = map[string]int{
	"": equals, "$eq": equals, "$in": equals, opNot: equals, opNotIn: equals, "$lt": 1, "$lte": 2, "$gte": 4, "$gt": 5,
}

const (
	equals         = 3
	comparisons    = 5 // number of B-tree strategies
	opNot, opNotIn = "$ne", "$nin"
	operatorNames  = "$eq, $ne, $in, $nin, $gt, $gte, $lt, $lte"
)

// JSON encodes conditions in the form that ParseFilter and the SQL functions read; nil: no conditions.
func (f Filters) JSON() *string {
	if len(f) == 0 {
		return nil
	}
	all := map[string]map[string]any{}
	for column, conditions := range f {
		all[column] = map[string]any{}
		for _, c := range conditions {
			values := lists.Map(c.Values, func(v string) any { return v })
			if c.Null {
				values = append(values, nil)
			}
			switch c.Operator {
			case "", "$in":
				all[column]["$in"] = values
			case opNotIn:
				all[column][opNotIn] = values
			default:
				all[column][c.Operator] = values[0]
			}
		}
	}
	b, _ := json.Marshal(all) //nolint:errchkjson // of texts alone
	text := string(b)
	return &text
}

// UnmarshalJSON reads an object of conditions. It rejects more conditions than a search accepts.
func (f *Filters) UnmarshalJSON(b []byte) error {
	*f = Filters{}
	decoder := json.NewDecoder(bytes.NewReader(b))
	begin, err := decoder.Token()
	if err != nil || begin == nil {
		return err
	}
	if begin != json.Delim('{') {
		return errors.New("filter: expected an object of columns and values")
	}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return err
		}
		if len(*f) == MaxConditions {
			return fmt.Errorf("a filter may name at most %d columns", MaxConditions)
		}
		var one Filter
		if err := decoder.Decode(&one); err != nil {
			return err
		}
		(*f)[fmt.Sprint(name)] = one
	}
	return nil
}

// UnmarshalJSON reads a value, a list of alternative values, or an object of operators: {"$gte": 3, "$lt": 9}. Values
// are strings, numbers, true, false and null. It rejects more values than a search accepts.
func (f *Filter) UnmarshalJSON(b []byte) error {
	*f = Filter{}
	decoder := json.NewDecoder(bytes.NewReader(b))
	decoder.UseNumber()
	first, err := decoder.Token()
	if err != nil {
		return err
	}
	if first != json.Delim('{') {
		return f.read("", first, decoder)
	}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return err
		}
		if first, err = decoder.Token(); err != nil {
			return err
		}
		if err := f.read(fmt.Sprint(name), first, decoder); err != nil {
			return err
		}
	}
	if len(*f) == 0 {
		return errors.New("a filter has no operator for a column; operators are " + operatorNames)
	}
	return nil
}

// read reads the operand of an operator: a value or a list. Its first token has been read already.
func (f *Filter) read(operator string, first json.Token, decoder *json.Decoder) (err error) {
	than, known := operators[operator]
	list, c := first == json.Delim('['), Condition{Operator: operator}
	switch {
	case !known:
		return fmt.Errorf("a filter has no operator %q; operators are %s", wording.Cut(operator, 40), operatorNames)
	case operator != "" && list != (operator == "$in" || operator == opNotIn):
		return errors.New("a filter: $in and $nin take a list, other operators one value")
	case operator == "$eq" || operator == "$in":
		c.Operator = ""
	}
	if slices.ContainsFunc(*f, func(o Condition) bool { return o.Operator == c.Operator }) {
		return fmt.Errorf("a filter has the operator %s twice for a column ($eq and $in are one)", operator)
	}
	if !list {
		err = c.take(first)
	}
	for list && err == nil && decoder.More() {
		var value json.Token
		if value, err = decoder.Token(); err == nil {
			err = c.take(value)
		}
	}
	if list && err == nil {
		_, err = decoder.Token() // its end
	}
	if err == nil && c.Null && than != equals {
		err = fmt.Errorf("a filter: %s cannot compare with null", operator)
	}
	*f = append(*f, c)
	return err
}

// take adds a value to the condition.
func (c *Condition) take(value json.Token) error {
	if len(c.Values) == MaxValues {
		return fmt.Errorf("a filter has more than %d values for a column", MaxValues)
	}
	switch v := value.(type) {
	case nil:
		c.Null = true
	case string, json.Number, bool:
		c.Values = append(c.Values, fmt.Sprint(v))
	default:
		return errors.New("a filter holds strings, numbers, true, false and null, lists of these, " +
			`or operators: {"$gte": 3}`)
	}
	return nil
}

// Texts returns all values of a filter.
func (f Filter) Texts() (texts []string) {
	for _, c := range f {
		texts = append(texts, c.Values...)
	}
	return texts
}

// ParseFilter reads the conditions of a filter in JSON.
func ParseFilter(text string) (Filters, error) {
	var f Filters
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		return nil, bad("filter: %v", err)
	}
	return f, nil
}

// filterable describes a column of the source table for use in a condition.
type filterable struct {
	Name string
	Type string // schema-qualified, without width: usable in a cast
	// <, <=, =, >= and >; empty: values of the type cannot be compared
	Operators []string
}

// conditionsOf turns filters into SQL conditions on a row and adds their parameters. The caller puts an alias and a dot
// before each condition. Column names come from the catalog; no text of the request becomes part of the statement.
// Values that do not fit their columns are rejected here, so a later failure is not the caller's fault.
func (s *statement) conditionsOf(ctx context.Context, tx pgx.Tx, p *pipeline.Pipeline, filter Filters,
	access *Access,
) ([]string, error) {
	if access == nil {
		access = &Access{}
	}
	if len(filter)+len(access.Fixed) == 0 {
		return nil, nil
	}
	if len(filter) > MaxConditions {
		return nil, bad("a filter may name at most %d columns, not %d", MaxConditions, len(filter))
	}
	columns, err := filterables(ctx, tx, p)
	if err != nil {
		return nil, err
	}
	conditions, err := s.compare(ctx, tx, p, columns, access.Fixed)
	if wrong, ok := errors.AsType[*BadRequestError](err); ok { // a fixed filter is not the caller's
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

// shared returns the columns that an access allows a request to use. It rejects a request that uses others.
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
				Problem: fmt.Sprintf("%s: column %q of %s cannot be used in a filter or returned", what, c.Name, p.Source()),
				Hint:    []string{"allow it in the pipeline's configuration: search: {filterable: [" + c.Name + "]}"},
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

// check rejects a filter that is invalid for the column.
func (f Filter) check(c filterable) error {
	texts := f.Texts()
	switch {
	case len(c.Operators) != comparisons:
		return bad("filter: column %q is of type %s, whose values cannot be compared", c.Name, c.Type)
	case len(texts) > MaxValues:
		return bad("filter: column %q has %d values, more than %d", c.Name, len(texts), MaxValues)
	case len(f) == 0, slices.ContainsFunc(f, func(c Condition) bool { return len(c.Values) == 0 && !c.Null }):
		return bad("filter: column %q has no value to compare with", c.Name)
	case slices.ContainsFunc(texts, func(v string) bool { return strings.ContainsRune(v, 0) || !utf8.ValidString(v) }):
		return bad("filter: column %q: a value must be UTF-8 without NUL characters", c.Name)
	case len(texts) > 0 && slices.ContainsFunc(f, func(c Condition) bool { return c.Operator == "" && c.Null }):
		return bad("filter: column %q: null cannot be combined with other values", c.Name)
	}
	return nil
}

// compare returns the conditions of a filter.
func (s *statement) compare(ctx context.Context, tx pgx.Tx, p *pipeline.Pipeline, columns []filterable,
	filter Filters,
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
		for _, o := range f {
			// The caller puts the alias before each condition, so a condition starts with a column.
			not, is := "", ""
			if o.Operator == opNot || o.Operator == opNotIn {
				not, is = "NOT ", " IS FALSE"
			}
			if o.Null {
				conditions = append(conditions, database.Quote(name)+" IS "+not+"NULL")
			}
			if len(o.Values) == 0 {
				continue
			}
			list := k.ListOf(o.Values)
			fitting.Queue("SELECT CAST("+k.TypedList("$1")+" AS "+c.Type+"[]) IS NULL", list)
			checked = append(checked, c)
			s.args = append(s.args, list)
			conditions = append(conditions, database.Quote(name)+" "+c.Operators[operators[o.Operator]-1]+
				fmt.Sprintf(" ANY (CAST(%s AS %s[]))", k.TypedList(fmt.Sprintf("$%d", len(s.args))), c.Type)+is)
		}
	}
	at, err := fits(ctx, tx, &fitting)
	if database.Judge(err) == database.Data {
		return nil, bad("filter: a value for column %q does not fit its type, %s", checked[at].Name, checked[at].Type)
	}
	return conditions, err
}

// fits runs statements that parse given values, and returns the index of the first that fails.
func fits(ctx context.Context, tx pgx.Tx, statements *pgx.Batch) (at int, err error) {
	results := tx.SendBatch(ctx, statements)
	for at = range statements.Len() {
		if _, err = results.Exec(); err != nil {
			_ = results.Close() // it returns the same error again
			return at, err
		}
	}
	return 0, results.Close()
}

// fitsKey rejects a key whose values do not fit the key columns of the table.
func fitsKey(ctx context.Context, tx pgx.Tx, p *pipeline.Pipeline, values []string) error {
	var fitting pgx.Batch
	for i, k := range p.Key {
		fitting.Queue("SELECT "+k.Param("$1")+" IS NULL", values[i])
	}
	at, err := fits(ctx, tx, &fitting)
	if database.Judge(err) == database.Data {
		return bad("key: the value for column %q does not fit its type, %s", p.Key[at].Name, p.Key[at].Type)
	}
	return err
}

// filterables lists the columns of the source table with the comparison operators of their types.
func filterables(ctx context.Context, tx pgx.Tx, p *pipeline.Pipeline) ([]filterable, error) {
	columns, err := database.Collect(ctx, tx, "filterable_columns", pgx.RowToStructByName[filterable],
		pgx.StrictNamedArgs{"table": p.OID})
	return columns, wrap.Errorf(err, "look up columns of %s", p.Source())
}

// language returns a text search configuration as an SQL literal: the named one, or the default of the database.
func language(ctx context.Context, tx pgx.Tx, name string) (string, error) {
	var schema, config string
	err := tx.QueryRow(ctx, sqlfiles.Query("text_search_configuration"), pgx.StrictNamedArgs{"name": name}).
		Scan(&schema, &config)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", bad("there is no text search configuration %q: SELECT cfgname FROM pg_ts_config lists them", name)
	}
	return database.Literal(database.Quote(schema)+"."+database.Quote(config)) + "::pg_catalog.regconfig",
		wrap.Errorf(err, "look up text search configuration")
}

// lexemes returns a tsquery that matches any word of a text; "" if the text has no words.
func lexemes(ctx context.Context, tx pgx.Tx, language, text string) (query string, err error) {
	// Each lexeme is quoted, so none of them can act as an operator.
	err = tx.QueryRow(ctx, `SELECT coalesce(pg_catalog.string_agg('''' || pg_catalog.replace(pg_catalog.replace(w.lexeme,
		'\', '\\'), '''', '''''') || '''', ' | ')::pg_catalog.tsquery::text, '')
		FROM pg_catalog.unnest(pg_catalog.to_tsvector(`+language+`, $1::text)) AS w`, text).Scan(&query)
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == pgerrcode.ProgramLimitExceeded {
		return "", bad("text: too many words to search for")
	}
	return query, wrap.Errorf(err, "read the words of the question")
}
