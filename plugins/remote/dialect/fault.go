package dialect

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// Class is what kind of failure a call had.
type Class int

// The classes of failures.
const (
	Overloaded    Class = iota // too many requests, or no room: later
	Down                       // it could not be reached, or did not answer in time
	Broken                     // it answered that something is wrong with itself, or with what cannot be believed
	Rejected                   // it does not take the request: the texts, or what was asked about them
	TooLarge                   // too much in one request, or one text that is too long
	Refused                    // its policy refuses a text
	Misconfigured              // a person must change something: key, model, address, bill
)

// Fault is what an error answer says. Message is the server's own: it may quote texts and keys.
type Fault struct {
	Class   Class
	Code    string // of the API, as "insufficient_quota"
	Message string
}

var (
	tooLong = regexp.MustCompile(`(?i)context.length|too (long|large|many)|must have less than \d+ tokens|exceed\w* .*(length|limit|tokens|batch|size)|` +
		`max\w* .*(tokens|batch size|input size)|batch size`)
	policy = regexp.MustCompile(`(?i)content (management )?policy|flagged|moderation`)
	// names are short words as APIs use them for codes and types of errors; whatever else stands there is not repeated.
	names = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,63}$`)
)

// Explain reads an answer whose status is not 200. Statuses alone are not enough: the same one means different things to
// different servers, so codes and messages are looked at, too.
func Explain(status int, body []byte) Fault {
	f := readFault(body)
	lower := strings.ToLower(f.Code)
	switch {
	case slices.Contains([]string{"insufficient_quota", "billing_not_active", "billing_hard_limit_reached"}, lower):
		f.Class = Misconfigured
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable, status == http.StatusTooEarly, status == 529:
		f.Class = Overloaded
	case status == http.StatusRequestTimeout, status == http.StatusBadGateway, status == http.StatusGatewayTimeout, status >= 520 && status <= 524:
		f.Class = Down
	case status >= 500, status == http.StatusFailedDependency:
		f.Class = Broken
	case status == http.StatusRequestEntityTooLarge:
		f.Class = TooLarge
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusPaymentRequired,
		status == http.StatusNotFound, status == http.StatusMethodNotAllowed, status == http.StatusGone, status == http.StatusProxyAuthRequired:
		f.Class = Misconfigured
	case status >= 400 && (lower == "content_filter" || lower == "content_policy_violation" || policy.MatchString(f.Message)):
		f.Class = Refused
	case status >= 400 && (lower == "context_length_exceeded" || lower == "string_above_max_length" || lower == "array_above_max_length" || tooLong.MatchString(f.Message)):
		f.Class = TooLarge
	case status >= 400:
		f.Class = Rejected
	case status >= 300:
		f.Class = Misconfigured
	default: // 201, 204: not what was asked for
		f.Class = Broken
	}
	return f
}

// readFault finds message and code in any of the forms that are in use.
func readFault(body []byte) Fault {
	var top struct {
		Error   json.RawMessage `json:"error"`
		Type    string          `json:"error_type"`
		Message string          `json:"message"`
		Detail  json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(body, &top) != nil {
		return Fault{}
	}
	f := Fault{Message: top.Message, Code: top.Type}
	var inner struct {
		Message string          `json:"message"`
		Type    string          `json:"type"`
		Code    json.RawMessage `json:"code"`
	}
	var list []struct {
		Message string `json:"msg"`
	}
	if text := textOf(top.Error) + textOf(top.Detail); text != "" {
		f.Message = text
	} else if json.Unmarshal(top.Error, &inner) == nil && inner.Message+inner.Type != "" {
		f.Message, f.Code = inner.Message, inner.Type
		if code := textOf(inner.Code); code != "" {
			f.Code = code
		}
	} else if json.Unmarshal(top.Detail, &list) == nil && len(list) > 0 {
		f.Message = list[0].Message
	}
	if !names.MatchString(f.Code) {
		f.Code = ""
	}
	return f
}

// textOf is the string that a JSON value is, or "".
func textOf(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return ""
	}
	return text
}
