package admin

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/code"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/problem"
)

// Problem is an answer that is an error, as RFC 9457 has it.
type Problem struct { //nolint:errname // the RFC's word
	Title  string    `json:"title" doc:"What the status means"`
	Status int       `json:"status"`
	Detail string    `json:"detail" doc:"What is the matter, in a sentence"`
	Reason string    `json:"reason" doc:"In a word that never changes, for programs"`
	Code   code.Code `json:"code,omitempty" doc:"Of the command line's errors: embedsidecar explain-error tells more"`
	Hints  []string  `json:"hints,omitempty" doc:"Ways out"`
	Errors []Mistake `json:"errors,omitempty" doc:"What is wrong with a request, and where"`

	after time.Duration // when to come again; 0: not said
}

// Mistake is something that is wrong with a request.
type Mistake struct {
	Location string `json:"location" doc:"Such as query.limit, or body.keys[3]"`
	Message  string `json:"message"`
}

func (p *Problem) Error() string { return p.Detail }

// GetStatus implements huma.StatusError.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType implements huma.ContentTypeFilter.
func (*Problem) ContentType(string) string { return problemType }

// GetHeaders implements huma.HeadersError.
func (p *Problem) GetHeaders() http.Header {
	if p.after == 0 {
		return nil
	}
	return http.Header{"Retry-After": {strconv.Itoa(int((p.after + time.Second - 1) / time.Second))}}
}

const problemType = "application/problem+json"

// write answers a request with it.
func (p *Problem) write(w http.ResponseWriter) {
	p.entitle()
	body, err := json.Marshal(p)
	if err != nil {
		body = []byte(`{"title":"Internal Server Error","status":500,"detail":"the error cannot be shown","reason":"internal"}`)
	}
	maps.Copy(w.Header(), p.GetHeaders())
	w.Header().Set("Content-Type", problemType)
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n')) // a client that has gone misses nothing
}

// entitle fills in what follows from the rest.
func (p *Problem) entitle() {
	if p.Title == "" {
		p.Title = http.StatusText(p.Status)
	}
	if p.Code == "" {
		p.Code = codes[p.Status]
	}
}

// codes are those of problems that are found here.
var codes = map[int]code.Code{
	http.StatusBadRequest: code.Usage, http.StatusUnauthorized: code.Permission, http.StatusForbidden: code.Permission,
	http.StatusNotFound: code.NoMatch, http.StatusMethodNotAllowed: code.Usage, http.StatusConflict: code.Conflict,
	http.StatusRequestEntityTooLarge: code.Usage, http.StatusUnsupportedMediaType: code.Usage,
	http.StatusUnprocessableEntity: code.Usage, http.StatusInternalServerError: code.Internal,
	http.StatusGatewayTimeout: code.Timeout,
}

// unknown is the answer for somebody without a token.
func unknown(detail string) *Problem {
	if detail == "" {
		detail = "a token is missing: send it as Authorization: Bearer TOKEN"
	}
	return &Problem{
		Status: http.StatusUnauthorized, Reason: "token", Detail: detail,
		Hints: []string{"embedsidecar token create NAME --role viewer makes one"},
	}
}

// wrong is the answer to a request that is wrong.
func wrong(location, detail string, hints ...string) *Problem {
	p := &Problem{Status: http.StatusBadRequest, Reason: "usage", Detail: detail, Hints: hints}
	if location != "" {
		p.Errors = []Mistake{{location, detail}}
	}
	return p
}

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

// tell turns what huma finds wrong with a request into a Problem.
func tell(_ huma.Context, _ string, v any) (any, error) {
	if p, ok := v.(*Problem); ok {
		p.entitle()
		return p, nil
	}
	found, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	p := &Problem{Status: found.Status, Reason: "usage", Detail: found.Detail}
	for _, e := range found.Errors {
		p.Errors = append(p.Errors, Mistake{e.Location, e.Message}) // the value stays away: it may be anything
	}
	if len(p.Errors) > 0 {
		p.Detail = strings.TrimPrefix(p.Errors[0].Location+": ", ": ") + p.Errors[0].Message
	}
	p.entitle()
	return p, nil
}
