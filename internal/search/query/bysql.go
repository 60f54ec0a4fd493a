package query

import (
	"context"
	"fmt"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/search"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// BySQL searches pipelines as an application does, by the functions of the schema embedsidecar: for a role that may do
// no more than that. A sidecar that runs embeds the text. It returns *refusal.PermissionError for a role that may not
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
	// Policies hold for who searches by SQL. The session ends with the command.
	if _, err := conn.Exec(ctx, "SELECT set_config('row_security', 'on', false)"); err != nil {
		return nil, fmt.Errorf("have policies hold: %w", err)
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
	return hits, ofFunction(err)
}

// ofFunction classifies an error that our functions have raised.
func ofFunction(err error) error {
	e := &problem.Error{Class: problem.Usage, Err: wrap.Errorf(err, "search by SQL"), Hint: database.Hint(err)}
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

// asksFirst reports whether the server is one whose functions cannot ask the sidecar: then a procedure does.
func asksFirst(ctx context.Context, conn *pgx.Conn) (bool, error) {
	const asksByItself = 17 // from there on a function can
	var major int
	err := conn.QueryRow(ctx, "SELECT current_setting('server_version_num')::int / 10000").Scan(&major)
	return major < asksByItself, err
}

// maySearch returns the error of a role that may not search by SQL, with what lets it.
func maySearch(ctx context.Context, conn *pgxpool.Conn) error {
	var may bool
	var groups []string
	err := conn.QueryRow(ctx, sqlfiles.Query("may_search")).Scan(&may, &groups)
	if err != nil || may {
		return wrap.Errorf(err, "look whether the role may search")
	}
	role := conn.Conn().Config().User
	sql := []string{"-- embedsidecar roles prints what makes the groups; then:", "GRANT embedsidecar_searcher TO " +
		database.Quote(role) + ";"}
	if len(groups) > 0 {
		sql = []string{"GRANT " + database.Quote(groups[0]) + " TO " + database.Quote(role) + ";"}
	}
	return &refusal.PermissionError{What: "search", Role: role, SQL: sql}
}
