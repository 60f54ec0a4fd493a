package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Kinds of problems, as OpenAI names them; its clients branch on the status.
const (
	invalidRequest  = "invalid_request_error"
	authError       = "authentication_error"
	permissionError = "permission_error"
	serverError     = "server_error"
)

// problem is an answer that is an error, in OpenAI's form.
type problem struct {
	status  int
	kind    string
	code    string // short and fixed
	param   string // the part of the request that is the matter; "": none in particular
	message string
	after   time.Duration // when to come again; 0: not said
}

func (p *problem) Error() string { return p.message }

// refuse makes the problem of a request that is wrong.
func refuse(param, code, format string, args ...any) error {
	return &problem{
		status: http.StatusBadRequest, kind: invalidRequest, code: code, param: param,
		message: fmt.Sprintf(format, args...),
	}
}

func (p *problem) write(w http.ResponseWriter) {
	type body struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	}
	b := body{Message: p.message, Type: p.kind}
	if p.param != "" {
		b.Param = &p.param
	}
	if p.code != "" {
		b.Code = &p.code
	}
	data, err := json.Marshal(map[string]body{"error": b})
	if err != nil {
		data = []byte(`{"error":{"message":"the error cannot be shown","type":"server_error","param":null,"code":null}}`)
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	if p.after > 0 {
		header.Set("Retry-After", strconv.Itoa(int((p.after+time.Second-1)/time.Second)))
	}
	w.WriteHeader(p.status)
	_, _ = w.Write(append(data, '\n')) // a client that has gone misses nothing
}

var errTooSlow = errors.New("the request took too long")
