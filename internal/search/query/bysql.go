package query

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/search"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// BySQL searches pipelines as an application does, through the functions of the schema embedsidecar, so it works for a
// role with no other rights. A running sidecar embeds the text. It returns *refusal.PermissionError if the role may not
// even do this.
func BySQL(ctx context.Context, pool *pgxpool.Pool, names []string, r search.Request) (hits []search.Hit, err error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	if err := maySearch(ctx, conn); err != nil {
		return nil, err
	}
	// Policies apply to a caller that searches by SQL. The session ends with the command.
	if _, err := conn.Exec(ctx, "SELECT set_config('row_security', 'on', false)"); err != nil {
		return nil, fmt.Errorf("enable row security: %w", err)
	}
	views := map[string]*view{}
	for _, name := range names {
		if views[name], err = viewOf(ctx, conn.Conn(), name, &r); err != nil {
			return nil, err
		}
	}
	args := pgx.StrictNamedArgs{
		"text": r.Text, "timeout": answerLimit, "rerank": r.Rerank, "filter": r.Filter.JSON(),
		"max_distance": r.MaxDistance, "fresh_only": r.FreshOnly,
	}
	if asks, err := asksFirst(ctx, conn.Conn()); err != nil {
		return nil, err
	} else if asks {
		for _, name := range names {
			args["pipeline"] = name
			if _, err := conn.Exec(ctx, "CALL embedsidecar.ask(@pipeline, @text, @timeout::text::interval, "+
				"nullif(@rerank::integer, 0), @filter::text::jsonb, @max_distance, @fresh_only)", args); err != nil {
				return nil, ofFunction(err)
			}
		}
	}
	args["pipeline"], args["k"], args["offset"] = names[0], r.Rows, r.Offset
	from := "'' AS pipeline, s.*, NULL::float8 AS score FROM embedsidecar.search(@pipeline, "
	if len(names) > 1 {
		args["pipeline"] = names
		from = "s.* FROM embedsidecar.search_across(@pipeline::text[], "
	}
	rows, _ := conn.Query(ctx, "SELECT "+from+"@text, @k, @timeout::text::interval, @filter::text::jsonb, @offset, "+
		"@max_distance, @fresh_only, nullif(@rerank::integer, 0)) AS s", args)
	hits, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (h search.Hit, err error) {
		var chunk *int
		var text *string
		err = row.Scan(&h.Pipeline, &h.Key, &h.Columns, &h.Distance, &chunk, &text, &h.Score)
		if text != nil {
			h.Text = *text
		}
		if chunk != nil {
			h.Chunk = &search.Chunk{Number: *chunk}
		}
		return h, err
	})
	if err != nil {
		return nil, ofFunction(err)
	}
	for i := range hits {
		name := cmp.Or(hits[i].Pipeline, names[0])
		if views[name] == nil {
			if views[name], err = viewOf(ctx, conn.Conn(), name, &r); err != nil {
				return nil, err
			}
		}
		if err := views[name].show(ctx, conn.Conn(), &hits[i], &r); err != nil {
			return nil, err
		}
	}
	return hits, nil
}

// view describes how a row of a pipeline is shown.
type view struct {
	text    string // the SQL of its text, of a key ($1) and a length ($2); an empty result if the role may not read it
	table   string
	only    string // "ONLY", before a table that others may inherit from
	columns []string
}

// viewOf returns how rows are shown with the rights of the role. It leaves out texts that the role may not read, unless
// the request wants passages of them.
func viewOf(ctx context.Context, conn *pgx.Conn, name string, r *search.Request) (*view, error) {
	var v view
	var role, noText, noColumns string
	err := conn.QueryRow(ctx, sqlfiles.Query("shown_by_sql"), pgx.StrictNamedArgs{
		"pipeline": name, "columns": append([]string{}, r.Columns...),
	}).Scan(&v.text, &v.table, &v.only, &role, &v.columns, &noText, &noColumns)
	at := slices.IndexFunc(r.Columns, func(c string) bool { return !slices.Contains(v.columns, c) })
	switch {
	case err != nil:
		return nil, ofFunction(err)
	case at >= 0:
		return nil, problem.New(problem.Usage, fmt.Errorf("columns: %s has no column %q", v.table, r.Columns[at]))
	case noColumns != "":
		return nil, &refusal.PermissionError{What: "return columns", Role: role, SQL: strings.Split(noColumns, "; ")}
	case noText != "" && r.Highlight:
		return nil, &refusal.PermissionError{What: "read the texts", Role: role, SQL: strings.Split(noText, "; ")}
	case noText != "" || v.text == "":
		v.text = "SELECT ''"
	}
	return &v, nil
}

// show reads the contents of a row with the rights and the policies of the role.
func (v *view) show(ctx context.Context, conn *pgx.Conn, h *search.Hit, r *search.Request) error {
	length, marked, values := 200, "''", "" // as in a search by the program
	if r.Highlight {
		length, marked = 65536, "embedsidecar.highlight(shown.text, given.question, given.language::regconfig)"
	}
	if len(v.columns) > 0 {
		var keys map[string]json.RawMessage
		if err := json.Unmarshal(h.Columns, &keys); err != nil {
			return fmt.Errorf("read the key %q: %w", h.Key, err)
		}
		same := lists.Map(slices.Sorted(maps.Keys(keys)), func(c string) string {
			return "r." + database.Quote(c) + " = k." + database.Quote(c)
		})
		pairs := lists.Map(v.columns, func(c string) string { return database.Literal(c) + ", r." + database.Quote(c) })
		values = " || coalesce((SELECT jsonb_build_object(" + strings.Join(pairs, ", ") + ") FROM " + v.only + v.table +
			" AS r, jsonb_populate_record(NULL::" + v.table + ", given.key) AS k WHERE " + strings.Join(same, " AND ") +
			"), '{}')"
	}
	// The line break ends a comment in the text expression.
	err := conn.QueryRow(ctx, "SELECT given.key"+values+", coalesce(shown.text, ''), "+marked+
		" FROM (SELECT $1::jsonb, $2::integer, $3::text, $4::text, $5::text) AS given (key, length, chunk, question, "+
		"language), LATERAL (SELECT coalesce(given.chunk, ("+v.text+"\n))) AS shown (text)",
		h.Columns, length, database.Given(h.Text), r.Text, database.Given(r.Language)).
		Scan(&h.Columns, &h.Text, &h.Highlight)
	switch {
	case database.HasCode(err, pgerrcode.UndefinedObject): // the language is unknown
		return problem.New(problem.Usage, err)
	case database.RowsFault(err):
		h.Problem, err = fmt.Sprintf("the contents of this row cannot be computed (%s)", database.SQLState(err)), nil
	}
	return wrap.Errorf(err, "show row %q", h.Key)
}

// ofFunction classifies an error raised by the functions of the schema embedsidecar.
func ofFunction(err error) error {
	e := &problem.Error{Class: problem.Usage, Err: wrap.Errorf(err, "search by SQL"), Hint: problem.Hints(err)}
	switch {
	case database.HasCode(err, pgerrcode.UndefinedObject):
		e.Code = code.NoPipeline
	case database.HasCode(err, pgerrcode.ObjectNotInPrerequisiteState, pgerrcode.ExternalRoutineException):
		e.Class = problem.Failed // no sidecar runs, or its embedder fails
	case !database.HasCode(err, pgerrcode.InvalidParameterValue, pgerrcode.UndefinedColumn,
		pgerrcode.ProgramLimitExceeded, pgerrcode.NullValueNotAllowedDataException):
		return e.Err
	}
	return e
}

// asksFirst reports whether the server needs a procedure to ask the sidecar, because its functions cannot.
func asksFirst(ctx context.Context, conn *pgx.Conn) (bool, error) {
	const asksByItself = 17 // from this major on, a function can
	var major int
	err := conn.QueryRow(ctx, "SELECT current_setting('server_version_num')::int / 10000").Scan(&major)
	return major < asksByItself, err
}

// maySearch returns an error, with the missing grants, if the role may not search by SQL.
func maySearch(ctx context.Context, conn *pgxpool.Conn) error {
	var may bool
	var groups []string
	err := conn.QueryRow(ctx, sqlfiles.Query("may_search")).Scan(&may, &groups)
	if err != nil || may {
		return wrap.Errorf(err, "check the rights to search")
	}
	role := conn.Conn().Config().User
	sql := []string{"-- embedsidecar roles prints the statements that create the groups; then:", "GRANT embedsidecar_searcher TO " +
		database.Quote(role) + ";"}
	if len(groups) > 0 {
		sql = []string{"GRANT " + database.Quote(groups[0]) + " TO " + database.Quote(role) + ";"}
	}
	return &refusal.PermissionError{What: "search", Role: role, SQL: sql}
}
