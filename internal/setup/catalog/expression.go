package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// The names of a user's expressions in messages.
const (
	TextWord    = "text"
	FilterWord  = "filter"
	ContextWord = "chunking context"
	// IgnoreWord names the expression that selects what counts of a text.
	IgnoreWord = "ignore"
	// JoinWord names the text of a joined table.
	JoinWord = "text of a join"
	// JoinsWord names all joins of a pipeline.
	JoinsWord = "joins"
	// PriorityWord names the expression that computes a row's priority.
	PriorityWord = "priority"
)

// Reading says what an expression reads, with warnings.
type Reading struct {
	Columns  []string // by attribute number; nil when Unknown
	Unknown  bool     // the role may not analyze it
	Calls    []string // functions outside pg_catalog, schema-qualified and quoted
	Warnings []string
	Grouped  bool // it has an aggregate, as the text of a join may
}

// ReadExpression checks that an expression is a single expression over one row of the table, or over a text, and finds
// out what it reads. It returns *ConfigError for mistakes of the user. It changes nothing in the database.
func ReadExpression(ctx context.Context, tx pgx.Tx, t *Table, word, expression string) (r Reading, err error) {
	if err := database.RolledBack(ctx, tx, func(tx pgx.Tx) error {
		return ParseExpression(ctx, tx, t, word, expression)
	}); err != nil {
		return r, err
	}
	var mayTemp bool
	if err := tx.QueryRow(ctx, "SELECT has_database_privilege(current_database(), 'TEMPORARY')").Scan(
		&mayTemp); err != nil {
		return r, fmt.Errorf("look up privilege: %w", err)
	}
	var problem string
	err = database.RolledBack(ctx, tx, func(tx pgx.Tx) error {
		if mayTemp {
			r, problem, err = analyse(ctx, tx, t, word, expression)
		} else {
			r.Unknown = true
			r.Warnings = []string{"the role has no privilege TEMPORARY on the database, so it is unknown what " + word +
				" reads and calls: every UPDATE counts as a change, and a function that is replaced goes unnoticed until embedsidecar backfill"}
			problem, r.Grouped, err = explain(ctx, tx, t, word, expression)
		}
		return err
	})
	if err == nil && problem != "" {
		err = refusal.Coded(code.Expression, word+" "+problem)
	}
	for i, w := range r.Warnings {
		if !r.Unknown {
			r.Warnings[i] = word + " " + w
		}
	}
	return r, err
}

// over is what an expression is evaluated over: a row of the table, or its text.
func over(word string, t *Table) string {
	if word == IgnoreWord {
		return " FROM (SELECT NULL::text AS text) AS r"
	}
	from := " FROM " + t.Quoted() + " AS " + database.Quote(cmp.Or(t.As, "r"))
	if word == TextWord || word == JoinWord {
		from += pipeline.JoinedNames(t.Joined)
	}
	return from
}

// ParseExpression makes Postgres parse the expression in round and in square brackets. Text that closes a bracket it
// did not open cannot pass both, so what passes is a single expression. It returns *ConfigError for anything else.
func ParseExpression(ctx context.Context, tx pgx.Tx, t *Table, word, expression string) error {
	if strings.TrimSpace(expression) == "" {
		return refusal.Coded(code.Expression, word+" is blank")
	}
	if strings.ContainsRune(expression, 0) {
		return refusal.Coded(code.Expression, word+" contains a NUL character")
	}
	if err := strangersNamed(ctx, tx, t, word, expression, 0, nil); err != nil { // the parser runs types' input functions
		return err
	}
	from := over(word, t)
	conn := tx.Conn().PgConn()
	round, err := conn.Prepare(ctx, "", "SELECT "+pipeline.Enclose(expression)+from, nil)
	if err != nil {
		return BadExpression(word, err)
	}
	if len(round.ParamOIDs) > 0 {
		return refusal.Coded(code.Expression, word+" contains a parameter such as $1")
	}
	if len(round.Fields) != 1 {
		return refusal.Coded(code.Expression, fmt.Sprintf("%s is %d expressions, want one", word, len(round.Fields)))
	}
	var category, name string
	oid := round.Fields[0].DataTypeOID
	if err := tx.QueryRow(ctx, "SELECT typcategory::text, format_type(oid, -1) FROM pg_type WHERE oid = $1",
		oid).Scan(&category, &name); err != nil {
		return fmt.Errorf("look up type of %s: %w", word, err)
	}
	switch {
	case word == FilterWord && name != "boolean":
		return refusal.Coded(code.Expression, fmt.Sprintf("%s is of type %s, want boolean", word, name))
	case word != FilterWord && category != "S":
		return refusal.Coded(code.Expression, fmt.Sprintf("%s is of type %s, want text", word, name), "cast it: (...)::text")
	}
	if _, err := conn.Prepare(ctx, "", "SELECT ARRAY[\n"+expression+"\n]"+from, nil); err != nil {
		return BadExpression(word, err)
	}
	return nil
}

// unknownColumn finds the column's name in a server's message. It works only in English.
var unknownColumn = regexp.MustCompile(`^column "([^".]+)" does not exist$`)

// BadExpression turns the parser's error about a user's expression into *ConfigError.
func BadExpression(word string, err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || database.Denied(err) {
		return fmt.Errorf("parse %s: %w", word, err)
	}
	// Class 42 is syntax and names, 0A unsupported features, 22 an invalid constant.
	if class := pg.Code[:2]; class != "42" && class != "0A" && class != "22" {
		return fmt.Errorf("parse %s: %w", word, err)
	}
	var hint []string
	if pg.Hint != "" {
		hint = append(hint, pg.Hint)
	}
	if name := unknownColumn.FindStringSubmatch(pg.Message); pg.Code == pgerrcode.UndefinedColumn && name != nil {
		if word == IgnoreWord {
			hint = append(hint, "it is over the text that is embedded, which is called text, as in lower(text)")
		}
		hint = append(hint, fmt.Sprintf("a value is written in single quotes, a name without: if %s is a value, write '%s'",
			name[1], name[1]))
	}
	if strings.Contains(pg.Message, "function") || strings.Contains(pg.Message, "type") || strings.Contains(pg.Message,
		"operator") {
		hint = append(hint, "search_path is pg_catalog: what is elsewhere needs its schema in front, as in public.unaccent(title)")
	}
	return refusal.Coded(code.Expression, word+" is not an expression over "+overWhat(word)+": "+pg.Message, hint...)
}

func overWhat(word string) string {
	if word == IgnoreWord {
		return "the text"
	}
	return "a row of the table"
}

// ruleOf makes a temporary view of the expression, and returns the OID and the tree of its rule. The caller must roll
// it back: the view would block the user's DROP COLUMN. The expression is not a column of the view, because a column
// cannot have an ambiguous collation.
func ruleOf(ctx context.Context, tx pgx.Tx, t *Table, word, expression string) (rule uint32, tree string, err error) {
	const name = "embedsidecar_probe"
	if err := database.Extended(ctx, tx, "CREATE TEMPORARY VIEW "+name+" AS SELECT "+
		pipeline.Enclose(expression)+" IS NULL AS e"+over(word, t)); err != nil {
		return 0, "", fmt.Errorf("make temporary view: %w", err)
	}
	err = tx.QueryRow(ctx, "SELECT oid, ev_action::text FROM pg_rewrite WHERE ev_class = ('pg_temp."+name+
		"')::regclass").Scan(&rule, &tree)
	return rule, tree, wrap.Errorf(err, "read temporary view")
}

// analyse asks Postgres what the expression reads: the dependencies of a view of it.
func analyse(ctx context.Context, tx pgx.Tx, t *Table, word, expression string) (r Reading, problem string, err error) {
	rule, tree, err := ruleOf(ctx, tx, t, word, expression)
	if err != nil {
		return r, "", err
	}
	r.Grouped = strings.Contains(tree, ":hasAggs true")
	if problem := forbidden(tree, word); problem != "" {
		return r, problem, nil
	}
	if err := trusted(ctx, tx, t, word, tree); err != nil {
		return r, "", err
	}
	called := functionsIn(tree)
	if ofUsers.MatchString(tree) {
		if err := strangersNamed(ctx, tx, t, word, expression, rule, called); err != nil {
			return r, "", err
		}
	}
	if word == IgnoreWord {
		if problem, err = volatile(ctx, tx, tree, called); err != nil || problem != "" {
			return r, problem, err
		}
	}
	if r.Warnings, err = unsteady(ctx, tx, tree, called); err != nil {
		return r, "", err
	}
	if r.Calls, err = namesOf(ctx, tx, called); err != nil {
		return r, "", err
	}
	// Not every version writes generated columns to the WAL, so this returns the columns they are computed from.
	r.Columns, err = database.Collect(ctx, tx, "expression_columns", pgx.RowTo[string],
		pgx.StrictNamedArgs{"rule": rule, "table": t.OID})
	return r, "", wrap.Errorf(err, "look up what the expression reads")
}

// The node text in pg_rewrite escapes spaces and braces in names and writes constants as bytes, so these patterns
// cannot match a user's name.
var (
	wholeRow     = regexp.MustCompile(`:varattno 0 `)
	systemColumn = regexp.MustCompile(`:varattno -\d`)
	function     = regexp.MustCompile(`:(?:funcid|opfuncid|aggfnoid) (\d+)`)
	ofUsers      = regexp.MustCompile(`:(?:\w*type(?:id)?|funcid|opfuncid|aggfnoid) \d{5,} `)
	clock        = regexp.MustCompile(`(?:^|[^\\])\{SQLVALUEFUNCTION `)
	// nameOfCatalog matches casts to regclass, its siblings, and arrays of them: they look in the catalog, and an error
	// about a name that is not there quotes the value.
	nameOfCatalog = regexp.MustCompile(`:resulttype (?:24|1008|220[2-9]|221[01]|373[45]|3769|3770|4089|409[067]|419[12]) `)
)

// forbidden returns why a rule's tree is not an expression over one row, or "".
func forbidden(tree, word string) string {
	switch {
	case strings.Contains(tree, ":hasSubLinks true"):
		return "has a sub-select: a change of what it reads would go unnoticed"
	case word != JoinWord && strings.Contains(tree, ":hasAggs true"):
		return "has an aggregate: a text is made of one row"
	case strings.Contains(tree, ":hasWindowFuncs true"):
		return "has a window function: a text is made of one row"
	case strings.Contains(tree, ":hasTargetSRFs true"):
		return "has a function that returns a set: a row has one text"
	case wholeRow.MatchString(tree):
		return "names the whole row, and so the embedding too: name its columns"
	case systemColumn.MatchString(tree):
		return "names a system column, which changes with every write"
	}
	return ""
}

// functionsIn returns the functions that a rule's tree calls, by name, as an operator or as a cast.
func functionsIn(tree string) []uint32 {
	var oids []uint32
	for _, m := range function.FindAllStringSubmatch(tree, -1) {
		n, err := strconv.ParseUint(m[1], 10, 32)
		if err == nil && n != 0 && !slices.Contains(oids, uint32(n)) {
			oids = append(oids, uint32(n))
		}
	}
	return oids
}

// namesOf returns the names of those functions that a user may replace. It returns names rather than OIDs, because a
// function that is recreated, or hidden by another of its name, changes the meaning of the expression.
func namesOf(ctx context.Context, q database.Querier, oids []uint32) ([]string, error) {
	args := pgx.StrictNamedArgs{"functions": oids}
	names, err := database.Collect(ctx, q, "replaceable_functions", pgx.RowTo[string], args)
	return names, wrap.Errorf(err, "look up functions")
}

// unsteady warns of calls that may return another text for the same row.
func unsteady(ctx context.Context, q database.Querier, tree string, oids []uint32) ([]string, error) {
	var warnings []string
	if clock.MatchString(tree) {
		warnings = append(warnings, "depends on the current time or user: the text is only computed again when the row changes")
	}
	more, err := database.Collect(ctx, q, "unsteady_functions", pgx.RowTo[string],
		pgx.StrictNamedArgs{"functions": oids})
	return append(warnings, more...), wrap.Errorf(err, "look up functions")
}

// volatile returns why a rule's tree may return different values for the same text, or "". Such an expression would
// make it random whether an edit counts.
func volatile(ctx context.Context, q database.Querier, tree string, oids []uint32) (problem string, err error) {
	if clock.MatchString(tree) {
		return "depends on the current time or user, and so may give another value for the same text each time", nil
	}
	var name *string
	err = q.QueryRow(ctx, sqlfiles.Query("volatile_function"), pgx.StrictNamedArgs{"functions": oids}).Scan(&name)
	if err != nil {
		return "", fmt.Errorf("look up functions: %w", err)
	}
	if name != nil {
		return "calls " + *name + ", which may give another value for the same text each time", nil
	}
	return "", nil
}

// explain does the checks of forbidden with the plan, for a role that may not make a temporary view.
func explain(ctx context.Context, tx pgx.Tx, t *Table, word, expression string) (problem string, grouped bool,
	err error,
) {
	rows, err := tx.Query(ctx, "EXPLAIN (VERBOSE, COSTS OFF) SELECT "+pipeline.Enclose(expression)+over(word, t),
		pgx.QueryExecModeExec)
	if err != nil {
		return "", false, fmt.Errorf("explain expression: %w", err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if database.Denied(err) {
		return "", false, nil // missing privileges are reported elsewhere
	}
	if err != nil {
		return "", false, fmt.Errorf("explain expression: %w", err)
	}
	for _, line := range lines {
		node := strings.TrimLeft(line, " ->")
		output, isOutput := strings.CutPrefix(node, "Output: ")
		switch {
		case strings.HasPrefix(node, "SubPlan"), strings.HasPrefix(node, "InitPlan"):
			return "has a sub-select: a change of what it reads would go unnoticed", false, nil
		case strings.HasPrefix(node, "Aggregate") && word == JoinWord:
			grouped = true
		case strings.HasPrefix(node, "Aggregate"):
			return "has an aggregate: a text is made of one row", false, nil
		case strings.HasPrefix(node, "WindowAgg"):
			return "has a window function: a text is made of one row", false, nil
		case strings.HasPrefix(node, "ProjectSet"):
			return "has a function that returns a set: a row has one text", false, nil
		case isOutput && strings.Contains(withoutQuotes(output), ".*"):
			return "names the whole row, and so the embedding too: name its columns", false, nil
		}
	}
	return "", grouped, nil
}

var quoted = regexp.MustCompile(`"(?:[^"]|"")*"|'(?:[^']|'')*'`)

// withoutQuotes removes string constants and quoted names.
func withoutQuotes(s string) string { return quoted.ReplaceAllString(s, "") }
