package serve

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/search"
)

// problemOf turns any error into what a client may see of it, or nil when there is no client any more. What is ours to
// know is logged.
func (a *api) problemOf(ctx context.Context, err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	if wrong, ok := errors.AsType[*search.BadRequestError](err); ok {
		return &problem{
			status: http.StatusBadRequest, kind: invalidRequest, code: "invalid_value",
			message: strings.Join(append([]string{wrong.Problem}, wrong.Hint...), ": "),
		}
	}
	if errors.Is(err, search.ErrNoRow) {
		return &problem{
			status: http.StatusNotFound, kind: invalidRequest, code: "row_not_found", param: "key",
			message: err.Error(),
		}
	}
	if off, ok := errors.AsType[*search.UnavailableError](err); ok {
		return &problem{
			status: http.StatusServiceUnavailable, kind: serverError, code: "unavailable", message: off.Problem,
			after: 5 * time.Second,
		}
	}
	switch {
	case ctx.Err() != nil:
		return nil // the client has gone
	case errors.Is(err, errTooSlow), errors.Is(err, context.DeadlineExceeded):
		return &problem{
			status: http.StatusGatewayTimeout, kind: serverError, code: "timeout",
			message: "the request took longer than " + a.Limits.Time.String(), after: time.Second,
		}
	}
	ofDB := ofDatabase(err)
	if barred, ok := errors.AsType[*search.RowSecurityError](err); ok {
		a.warn(ctx, barred, barred.Hints())
		return &problem{
			status: http.StatusForbidden, kind: permissionError, code: "row_security",
			message: "the table of this pipeline has row level security, whose policies would not hold for this search: the log of the server says what to do",
		}
	}
	if barred, ok := errors.AsType[*search.RoleError](err); ok {
		a.warn(ctx, errors.New("search as the database role of a token: "+strconv.Quote(barred.Role)), barred.Hints())
		return &problem{
			status: http.StatusForbidden, kind: permissionError, code: "database_role",
			message: "the database role of this token cannot be taken: the log of the server says why",
		}
	}
	if a.Log != nil {
		var said any = err
		if pg, ok := errors.AsType[*pgconn.PgError](err); ok { // its message may hold a row's text
			said = "SQLSTATE " + pg.Code
		}
		a.Log.WarnContext(ctx, "query failed", "error", said)
	}
	if ofDB != nil {
		return ofDB
	}
	if whole, ok := errors.AsType[*embed.Error](err); ok {
		return ofEmbedder(whole)
	}
	return &problem{
		status: http.StatusInternalServerError, kind: serverError, code: "internal",
		message: "the request failed; the log of the server says why",
	}
}

// warn logs an error with its ways out.
func (a *api) warn(ctx context.Context, err error, hints []string) {
	if a.Log != nil {
		a.Log.WarnContext(ctx, "query refused", "error", err, "hint", strings.Join(hints, "; "))
	}
}

// ofDatabase tells a client why the database did not answer, as far as that is known and a client may know, or returns
// nil.
func ofDatabase(err error) *problem {
	p := &problem{status: http.StatusServiceUnavailable, kind: serverError, code: "unavailable", after: 5 * time.Second}
	fault := database.Judge(err)
	_, connecting := errors.AsType[*database.Error](err)
	switch {
	case fault == database.Canceled:
		p.status, p.code, p.after = http.StatusGatewayTimeout, "timeout", time.Second
		p.message = "the database gave the search up: it takes longer than statement_timeout there; an index makes it faster"
	case fault == database.Schema:
		p.message = "what this pipeline is made of is not in the database any more: embedsidecar check tells what is missing, init makes it again"
	case fault == database.Forbidden:
		p.message = "the server's role may not read what this pipeline is made of: embedsidecar roles prints the grants"
	case fault == database.Locked || fault == database.Conflict:
		p.after = time.Second
		p.message = "somebody else holds what the search reads, a lock as of a migration: come again"
	case connecting || database.IsTransient(err):
		p.message = "the database does not answer: come again"
	default:
		return nil
	}
	return p
}

// ofEmbedder tells a client whether to come again.
func ofEmbedder(e *embed.Error) *problem {
	p := &problem{
		status: http.StatusServiceUnavailable, kind: serverError, code: e.Code,
		after: max(e.RetryAfter, time.Second),
	}
	switch e.Class {
	case embed.Configuration:
		p.status, p.after = http.StatusInternalServerError, 0
		p.message = "the model cannot be used before somebody mends its configuration; the log of the server says why"
	case embed.Data:
		p.status, p.kind, p.after = http.StatusBadRequest, invalidRequest, 0
		p.message = "the model cannot embed these texts"
	case embed.Transient, embed.Resource, embed.Crash:
		p.message = "the model did not answer: come again"
	}
	return p
}
