package gate

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/spend"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/search"
)

// Judge turns errors into what the caller may see of them. It logs what only the operator may know.
type Judge struct {
	Inside bool                // callers are administrators, who may see what the command line shows
	Redact func(string) string // removes secrets from a text. nil: none
	Log    *slog.Logger
}

// Problem converts an error.
func (j *Judge) Problem(ctx context.Context, err error) *Problem {
	p, ok := errors.AsType[*Problem](err)
	if !ok {
		p = j.judged(ctx, err)
		if j.Redact != nil {
			p.Detail = j.Redact(p.Detail)
			for i := range p.Hints {
				p.Hints[i] = j.Redact(p.Hints[i])
			}
		}
	}
	p.entitle()
	return p
}

// overBudget is the answer if the budget of a model is spent. It does not tell its size.
func overBudget(spent *spend.SpentError) *Problem {
	p := Refuse(http.StatusTooManyRequests, "budget_spent",
		"the budget of this model is spent; work continues when it is raised")
	switch {
	case !spent.Ended:
		p.Detail = "calls in progress are expected to spend the rest of the budget of this model"
		return p.After(5 * time.Second)
	case spent.After > 0:
		p.Detail = "the budget of this model is spent; work continues at " +
			time.Now().Add(spent.After).UTC().Format(time.RFC3339)
		return p.After(spent.After)
	}
	return p
}

func (j *Judge) judged(ctx context.Context, err error) *Problem {
	if wrong, ok := errors.AsType[*search.BadRequestError](err); ok {
		return Refuse(http.StatusBadRequest, "invalid_value", wrong.Problem, wrong.Hint...)
	}
	if off, ok := errors.AsType[*search.UnavailableError](err); ok {
		return Refuse(http.StatusServiceUnavailable, "unavailable", off.Problem).After(5 * time.Second)
	}
	if spent, ok := errors.AsType[*spend.SpentError](err); ok {
		return overBudget(spent)
	}
	if barred, ok := errors.AsType[*search.RowSecurityError](err); ok {
		if j.Inside {
			return Refuse(http.StatusForbidden, "row_security", barred.Error(), barred.Hints()[1:]...)
		}
		j.warn(ctx, barred, barred.Hints())
		return Refuse(http.StatusForbidden, "row_security", "the table of this pipeline has row level security, whose "+
			"policies would not apply to this search: the server's log says what to do")
	}
	if barred, ok := errors.AsType[*search.RoleError](err); ok {
		j.warn(ctx, errors.New("search as the database role of a token: "+strconv.Quote(barred.Role)), barred.Hints())
		return Refuse(http.StatusForbidden, "database_role",
			"this token's database role cannot be used: the server's log says why")
	}
	if barred, ok := errors.AsType[*search.DeniedError](err); ok && !j.Inside {
		j.warn(ctx, barred, barred.Hints())
	}
	switch {
	case errors.Is(err, search.ErrNoRow):
		p := Mistaken("row_not_found", "body.key", err.Error())
		p.Status = http.StatusNotFound
		return p
	case errors.Is(ctx.Err(), context.Canceled):
		p := Refuse(statusGone, "gone", "the client has gone")
		p.Title = "Client Closed Request"
		return p
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return tooSlow()
	}
	p := j.outside(err)
	if j.Inside {
		p = j.inside(err)
	}
	if p.Status >= http.StatusInternalServerError || !j.Inside {
		j.Log.WarnContext(ctx, "request failed", "error", said(err))
	}
	return p
}

// statusGone is for the metrics: no client reads the answer.
const statusGone = 499

func tooSlow() *Problem {
	return Refuse(http.StatusGatewayTimeout, "timeout", "the request took too long").After(time.Second)
}

func (j *Judge) warn(ctx context.Context, err error, hints []string) {
	j.Log.WarnContext(ctx, "request refused", "error", err, "hint", wording.Joined(hints))
}

// statuses maps the classes of problem to HTTP statuses.
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

// inside returns the text of the command line, for administrators.
func (*Judge) inside(err error) *Problem {
	class := problem.Of(err)
	of := statuses[class]
	p := Refuse(of.status, of.reason, err.Error(), slices.Clone(problem.Hints(err))...)
	p.Code = problem.Code(err)
	pg, ofServer := errors.AsType[*pgconn.PgError](err)
	switch {
	case ofServer && slices.Contains([]string{"22", "54"}, pg.Code[:min(2, len(pg.Code))]): // the given value is wrong
		p.Status, p.Reason, p.Code = http.StatusBadRequest, "usage", code.Usage
	case ofServer && pg.Code == readOnly:
		p.Status, p.Reason, p.Code = http.StatusConflict, "standby", code.Standby
	case class == problem.Connect, database.IsTransient(err):
		p.Status, p.Reason, p.Detail = http.StatusServiceUnavailable, "database", noAnswer
		p.after = 2 * time.Second
		if p.Code == code.Internal { // a connection broke during the request
			p.Code = code.NoAnswer
		}
	case class == problem.Internal:
		p.Detail = "the request failed; the log of the sidecar says why"
	}
	switch {
	case !ofServer || p.Status >= http.StatusInternalServerError:
	case !withoutValues(pg):
		p.Detail = "the server rejected the value: SQLSTATE " + pg.Code
	default:
		p.Detail = pg.Message
		if pg.Hint != "" && !slices.Contains(p.Hints, pg.Hint) {
			p.Hints = append(p.Hints, pg.Hint)
		}
	}
	return p
}

const (
	readOnly = "25006"
	noAnswer = "the database does not answer: retry later"
)

// outside tells a client why the database or a model did not answer, without internal details.
func (*Judge) outside(err error) *Problem {
	later := func(detail string) *Problem {
		return Refuse(http.StatusServiceUnavailable, "unavailable", detail).After(5 * time.Second)
	}
	_, connecting := errors.AsType[*database.Error](err)
	switch fault := database.Judge(err); {
	case fault == database.Canceled:
		p := tooSlow()
		p.Detail = "the search exceeded the database's statement_timeout; an index would make it faster"
		return p
	case fault == database.Schema:
		return later("tables or columns of this pipeline no longer exist: " +
			"embedsidecar check shows what is missing, init creates it again")
	case fault == database.Forbidden:
		return later("the server's role lacks rights on this pipeline's tables: embedsidecar roles prints the grants")
	case fault == database.Locked || fault == database.Conflict:
		return later("another session locks a table that the search reads: retry later").After(time.Second)
	case connecting || database.IsTransient(err):
		return later(noAnswer)
	}
	e, ok := errors.AsType[*embed.Error](err)
	if !ok {
		return Refuse(http.StatusInternalServerError, "internal", "the request failed; the log of the server says why")
	}
	switch e.Class {
	case embed.Configuration:
		return Refuse(http.StatusInternalServerError, e.Code,
			"the model's configuration is wrong; the log of the server has the reason")
	case embed.Data:
		return Refuse(http.StatusBadRequest, e.Code, "the model cannot embed these texts")
	case embed.Transient, embed.Resource, embed.Crash:
	}
	return Refuse(http.StatusServiceUnavailable, e.Code, "the model did not answer: retry later").
		After(max(e.RetryAfter, time.Second))
}

// withoutValues reports whether a function of this program raised a server's error, or the server that of a class that
// is about names: other messages may hold values of a row, and functions of users may raise any.
func withoutValues(pg *pgconn.PgError) bool {
	by, _, _ := strings.Cut(pg.Where, "\n") // its words depend on the server's language
	ours := strings.Contains(by, " embedsidecar.")
	return ours && pg.Routine == "exec_stmt_raise" ||
		(ours || by == "") && strings.HasPrefix(pg.Code, "42") && !database.AboutSyntaxOfValue(pg)
}

// said returns an error for the log, which must not hold text of a row.
func said(err error) any {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return "SQLSTATE " + pg.Code
	}
	return err
}
