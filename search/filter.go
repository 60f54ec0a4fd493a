package search

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/pipeline"
)

// Filter is a condition on a column: it has one of these values, as Postgres reads them, or it is NULL if that is among them.
type Filter struct {
	Values []string
	Null   bool
}

// Bounds of a filter. They keep a statement from growing without end.
const (
	maxConditions = 16
	maxValues     = 1000
)

// UnmarshalJSON reads a value, or a list of values any of which will do: strings, numbers, true, false and null.
func (f *Filter) UnmarshalJSON(b []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(b))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return err
	}
	values, isList := value.([]any)
	if !isList {
		values = []any{value}
	}
	*f = Filter{}
	for _, v := range values {
		switch v := v.(type) {
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
	}
	return nil
}

// filterable is a column of the source table as a condition needs it.
type filterable struct {
	Name  string
	Type  string // schema-qualified, without width: ready for a cast
	Equal string // the operator; "": it has none
}

// conditions turns a filter into SQL over a row, to be put behind an alias and a dot, and adds its parameters. Columns are those of the
// catalogue; nothing of what was asked for becomes part of the statement.
func (s *statement) conditions(ctx context.Context, tx pgx.Tx, p *pipeline.Pipeline, filter map[string]Filter) ([]string, error) {
	if len(filter) == 0 {
		return nil, nil
	}
	if len(filter) > maxConditions {
		return nil, bad("a filter may name %d columns, not %d", maxConditions, len(filter))
	}
	columns, err := filterables(ctx, tx, p)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(filter))
	for name := range filter {
		names = append(names, name)
	}
	slices.Sort(names)
	var conditions []string
	for _, name := range names {
		f := filter[name]
		at := slices.IndexFunc(columns, func(c filterable) bool { return c.Name == name })
		switch {
		case at < 0:
			return nil, &BadRequestError{Problem: fmt.Sprintf("filter: %s has no column %q", p.Source(), name), Hint: pipeline.DidYouMean(name, comparables(columns))}
		case columns[at].Equal == "":
			return nil, bad("filter: column %q is of type %s, whose values cannot be compared", name, columns[at].Type)
		case len(f.Values) > maxValues:
			return nil, bad("filter: column %q has %d values, %d are possible", name, len(f.Values), maxValues)
		case len(f.Values) == 0 && !f.Null:
			return nil, bad("filter: column %q has no value to compare with", name)
		}
		c := columns[at]
		// The alias comes before each condition, so a column comes first in it.
		condition := quote(name) + " " + c.Equal + fmt.Sprintf(" ANY (CAST($%d::text[] AS %s[]))", len(s.args)+1, c.Type)
		switch {
		case len(f.Values) == 0:
			condition = quote(name) + " IS NULL"
		case f.Null:
			return nil, bad("filter: column %q: null goes without other values", name)
		default:
			s.args = append(s.args, f.Values)
		}
		conditions = append(conditions, condition)
	}
	return conditions, nil
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
	rows, err := tx.Query(ctx, `SELECT a.attname::text AS name, format_type(t.base, -1) AS type,
			coalesce('OPERATOR("' || replace(n.nspname, '"', '""') || '".' || e.oprname || ')', '') AS equal
		FROM pg_attribute a
		CROSS JOIN LATERAL (SELECT coalesce(nullif(y.typbasetype, 0), y.oid) AS base, y.typtype FROM pg_type y WHERE y.oid = a.atttypid) AS t
		LEFT JOIN pg_type b ON b.oid = t.base
		LEFT JOIN LATERAL (SELECT o.* FROM pg_opclass o WHERE o.opcdefault AND o.opcmethod = (SELECT m.oid FROM pg_am m WHERE m.amname = 'btree')
			AND (o.opcintype = t.base OR o.opcintype = 'anyenum'::regtype AND b.typtype = 'e'
				OR EXISTS (SELECT FROM pg_cast c WHERE c.castsource = t.base AND c.casttarget = o.opcintype AND c.castmethod = 'b' AND c.castcontext = 'i'))
			ORDER BY o.opcintype = t.base DESC, o.opcintype LIMIT 1) AS o ON true
		LEFT JOIN pg_amop ea ON ea.amopfamily = o.opcfamily AND ea.amoplefttype = o.opcintype AND ea.amoprighttype = o.opcintype AND ea.amopstrategy = 3
		LEFT JOIN pg_operator e ON e.oid = ea.amopopr LEFT JOIN pg_namespace n ON n.oid = e.oprnamespace
		WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`, p.OID)
	if err != nil {
		return nil, fmt.Errorf("look up columns of %s: %w", p.Source(), err)
	}
	columns, err := pgx.CollectRows(rows, pgx.RowToStructByName[filterable])
	if err != nil {
		return nil, fmt.Errorf("look up columns of %s: %w", p.Source(), err)
	}
	return columns, nil
}

// language returns a text search configuration, quoted for SQL: that of a name, or the database's own.
func language(ctx context.Context, tx pgx.Tx, name string) (string, error) {
	var schema, config string
	err := tx.QueryRow(ctx, `SELECT n.nspname::text, c.cfgname::text FROM pg_ts_config c JOIN pg_namespace n ON n.oid = c.cfgnamespace
		WHERE CASE WHEN $1 = '' THEN c.oid = get_current_ts_config() ELSE c.cfgname = $1 END
		ORDER BY n.nspname = 'pg_catalog' DESC, n.nspname LIMIT 1`, name).Scan(&schema, &config)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", bad("there is no text search configuration %q", name)
	}
	if err != nil {
		return "", fmt.Errorf("look up text search configuration: %w", err)
	}
	return literal(quote(schema)+"."+quote(config)) + "::pg_catalog.regconfig", nil
}

// rephrase turns what the server says of a value into a bad request. Its message is not passed on: it may quote the value.
func rephrase(err error) error {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err
	}
	if strings.HasPrefix(pg.Code, "22") || pg.Code == pgerrcode.DatatypeMismatch || pg.Code == pgerrcode.ProgramLimitExceeded {
		return bad("a value of the key or the filter does not fit its column (SQLSTATE %s)", pg.Code)
	}
	return err
}
