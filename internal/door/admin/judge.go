package admin

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/search"
)

// statuses are those of the classes of problem.
var statuses = map[problem.Class]struct {
	status int
	reason string
}{
	problem.Internal:   {http.StatusInternalServerError, "internal"},
	problem.Usage:      {http.StatusBadRequest, "usage"},
	problem.NotSetUp:   {http.StatusServiceUnavailable, "not_set_up"},
	problem.Failed:     {http.StatusConflict, "failed"},
	problem.Connect:    {http.StatusServiceUnavailable, "database"},
	problem.Permission: {http.StatusForbidden, "database_role"},
	problem.Conflict:   {http.StatusConflict, "conflict"},
	problem.NoMatch:    {http.StatusNotFound, "no_match"},
	problem.Timeout:    {http.StatusGatewayTimeout, "timeout"},
}

// ProblemOf turns any error into what somebody who asked may see of it. What is ours to know is logged.
func (s *Service) ProblemOf(ctx context.Context, err error) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		p.entitle()
		return p
	}
	p := s.judged(ctx, err)
	for i := range p.Hints {
		p.Hints[i] = s.o.Redact(p.Hints[i])
	}
	p.Detail = s.o.Redact(p.Detail)
	p.entitle()
	return p
}

func (s *Service) judged(ctx context.Context, err error) *Problem {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return &Problem{
			Status: http.StatusGatewayTimeout, Reason: "timeout", Detail: "the request took too long", after: time.Second,
		}
	}
	if barred, ok := errors.AsType[*search.RowSecurityError](err); ok {
		return &Problem{
			Status: http.StatusForbidden, Reason: "row_security", Detail: barred.Error(), Hints: barred.Hints()[1:],
		}
	}
	class := problem.Of(err)
	of := statuses[class]
	p := &Problem{
		Status: of.status, Reason: of.reason, Code: problem.Code(err), Detail: err.Error(),
		Hints: slices.Clone(problem.Hints(err)),
	}
	pg, ofServer := errors.AsType[*pgconn.PgError](err)
	switch {
	case ofServer && slices.Contains([]string{"22", "54"}, pg.Code[:min(2, len(pg.Code))]): // what was given is wrong
		p.Status, p.Reason, p.Code = http.StatusBadRequest, "usage", code.Usage
	case ofServer && pg.Code == readOnly:
		p.Status, p.Reason, p.Code = http.StatusConflict, "standby", code.Standby
	case class == problem.Connect, database.IsTransient(err):
		p.Status, p.Reason, p.after = http.StatusServiceUnavailable, "database", 2*time.Second
		p.Detail = "the database does not answer: come again"
		if p.Code == code.Internal { // a connection that broke in the middle
			p.Code = code.NoAnswer
		}
	case class == problem.Internal:
		p.Detail = "the request failed; the log of the sidecar says why"
	}
	if p.Status >= http.StatusInternalServerError {
		s.o.Log.WarnContext(ctx, "request of an administrator failed", "error", said(err))
	}
	if ofServer && p.Status < http.StatusInternalServerError {
		p.Detail = ofFunction(pg)
		if pg.Hint != "" && !slices.Contains(p.Hints, pg.Hint) {
			p.Hints = append(p.Hints, pg.Hint)
		}
	}
	return p
}

const readOnly = "25006"

// ofFunction is what the server says, as far as that comes from our functions: the rest may hold values of a row.
func ofFunction(pg *pgconn.PgError) string {
	if pg.Routine == "exec_stmt_raise" || strings.HasPrefix(pg.Code, "42") {
		return pg.Message
	}
	return "the server refuses what was given: SQLSTATE " + pg.Code
}

// said is an error for the log, where no text of a row may stand.
func said(err error) any {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return "SQLSTATE " + pg.Code
	}
	return err
}
