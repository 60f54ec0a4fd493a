package admin

import (
	"encoding/json"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/embedsidecar/embedsidecar/internal/fault/code"
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
