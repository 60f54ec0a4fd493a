package gate

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/fault/code"
)

// Problem is an error answer according to RFC 9457.
type Problem struct { //nolint:errname // the RFC's word
	Title  string    `json:"title" doc:"Meaning of the status"`
	Status int       `json:"status"`
	Detail string    `json:"detail" doc:"The error in a sentence"`
	Reason string    `json:"reason" doc:"Stable word for programs"`
	Code   code.Code `json:"code,omitempty" doc:"Error code of the command line; embedsidecar help CODE explains it"`
	Hints  []string  `json:"hints,omitempty" doc:"Possible fixes"`
	Errors []Mistake `json:"errors,omitempty" doc:"The invalid parts of the request"`

	after time.Duration // value of Retry-After; 0: none
}

// Mistake is an error in a part of a request.
type Mistake struct {
	Location string `json:"location" doc:"Such as query.limit, or body.keys[3]"`
	Message  string `json:"message"`
}

func (p *Problem) Error() string { return p.Detail }

// GetStatus implements huma.StatusError.
func (p *Problem) GetStatus() int { return p.Status }

// GetHeaders implements huma.HeadersError.
func (p *Problem) GetHeaders() http.Header {
	h := http.Header{}
	if p.after > 0 {
		h.Set("Retry-After", strconv.Itoa(int((p.after+time.Second-1)/time.Second)))
	}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="embedsidecar"`)
	}
	if p.Status == http.StatusUnauthorized || p.Status == http.StatusTooManyRequests {
		h.Set("Connection", "close") // clients without access do not keep their connection
	}
	return h
}

// Refuse makes a Problem.
func Refuse(status int, reason, detail string, hints ...string) *Problem {
	return &Problem{Status: status, Reason: reason, Detail: detail, Hints: hints}
}

// Wrong is the answer to an invalid request.
func Wrong(location, detail string, hints ...string) *Problem {
	return Mistaken("usage", location, detail, hints...)
}

// Mistaken is the answer to an invalid request, with its own reason.
func Mistaken(reason, location, detail string, hints ...string) *Problem {
	return Refuse(http.StatusBadRequest, reason, detail, hints...).At(location)
}

// At sets the part of the request that is wrong; "": no specific part.
func (p *Problem) At(location string) *Problem {
	if location != "" {
		p.Errors = []Mistake{{location, p.Detail}}
	}
	return p
}

// Overloaded is the answer if the client should retry after a while.
func Overloaded(detail string, after time.Duration) *Problem {
	return Refuse(http.StatusServiceUnavailable, "overloaded", detail).After(after)
}

// After sets the time until a retry.
func (p *Problem) After(d time.Duration) *Problem {
	p.after = d
	return p
}

// Unknown is the answer to a request without a valid token.
func Unknown(detail string) *Problem {
	detail = cmp.Or(detail, "a token is missing: send it as Authorization: Bearer TOKEN")
	return Refuse(http.StatusUnauthorized, "token", detail, "embedsidecar token create NAME --role ROLE makes one")
}

// entitle sets title and code from the status, unless they are set.
func (p *Problem) entitle() {
	p.Title = cmp.Or(p.Title, http.StatusText(p.Status))
	p.Code = cmp.Or(p.Code, codes[p.Status])
}

// codes are the error codes by status.
var codes = map[int]code.Code{
	http.StatusBadRequest: code.Usage, http.StatusUnauthorized: code.Permission, http.StatusForbidden: code.Permission,
	http.StatusNotFound: code.NoMatch, http.StatusMethodNotAllowed: code.Usage, http.StatusConflict: code.Conflict,
	http.StatusRequestEntityTooLarge: code.Usage, http.StatusUnsupportedMediaType: code.Usage,
	http.StatusUnprocessableEntity: code.Usage, http.StatusInternalServerError: code.Internal,
	http.StatusGatewayTimeout: code.Timeout,
}

// Form is the format of error answers on a listener.
type Form struct {
	kind   string // content type
	schema any    // schema in the document
	of     func(*Problem) any
}

// RFC9457 is the form of application/problem+json.
var RFC9457 = Form{"application/problem+json", Problem{}, func(p *Problem) any {
	p.entitle()
	return p
}}

// OpenAI is the form of OpenAI's API; its clients branch on the status.
var OpenAI = Form{"application/json", OpenAIProblem{}, func(p *Problem) any {
	b := OpenAIError{Message: strings.Join(append([]string{p.Detail}, p.Hints...), ": "), Code: p.Reason}
	if b.Code == "token" {
		b.Code = "invalid_api_key"
	}
	if len(p.Errors) > 0 {
		param := strings.TrimPrefix(p.Errors[0].Location, "body.")
		b.Param = &param
	}
	switch {
	case p.Status == http.StatusUnauthorized:
		b.Type = "authentication_error"
	case p.Status == http.StatusForbidden:
		b.Type = "permission_error"
	case p.Status >= http.StatusInternalServerError || p.Status == http.StatusTooManyRequests:
		b.Type = "server_error"
	default:
		b.Type = "invalid_request_error"
	}
	return OpenAIProblem{b}
}}

// OpenAIProblem is an error answer in OpenAI's format.
type OpenAIProblem struct {
	Error OpenAIError `json:"error"`
}

// OpenAIError describes the error.
type OpenAIError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param" doc:"The invalid part of the request"`
	Code    string  `json:"code" doc:"Stable word for programs"`
}

// formed is a Problem in the format of a listener.
type formed struct {
	*Problem

	form Form
}

func (f *formed) ContentType(string) string { return f.form.kind }

func (f *formed) MarshalJSON() ([]byte, error) { return json.Marshal(f.form.of(f.Problem)) }
