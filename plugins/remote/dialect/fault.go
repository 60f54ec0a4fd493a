package dialect

import (
	"bytes"
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
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
		`max\w* .*(tokens|batch size|input size)|maxlength|batch size`)
	// longer is what servers say of one text that is too long in an answer that blames themselves.
	longer = regexp.MustCompile(`(?i)context.(length|size)|too (long|large) to process`)
	policy = regexp.MustCompile(`(?i)content (management )?policy|flagged|moderation`)
	// names are short words as APIs use them for codes and types of errors; whatever else stands there is not repeated.
	names = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,63}$`)
)

// Explain reads an answer whose status is not 200. Statuses alone are not enough: the same one means different things
// to different servers, so codes and messages are looked at, too.
func Explain(status int, body []byte) Fault {
	f := readFault(body)
	lower := strings.ToLower(f.Code)
	switch {
	case slices.Contains([]string{"insufficient_quota", "billing_not_active", "billing_hard_limit_reached"}, lower):
		f.Class = Misconfigured
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable, status == http.StatusTooEarly,
		status == 529:
		f.Class = Overloaded
	case status == http.StatusRequestTimeout, status == http.StatusBadGateway, status == http.StatusGatewayTimeout,
		status >= 520 && status <= 524:
		f.Class = Down
	case status == http.StatusInternalServerError && longer.MatchString(f.Message):
		f.Class = TooLarge
	case status >= 500, status == http.StatusFailedDependency:
		f.Class = Broken
	case status == http.StatusRequestEntityTooLarge:
		f.Class = TooLarge
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusPaymentRequired,
		status == http.StatusNotFound, status == http.StatusMethodNotAllowed, status == http.StatusGone,
		status == http.StatusProxyAuthRequired:
		f.Class = Misconfigured
	case status >= 400 && (lower == "content_filter" || lower == "content_policy_violation" ||
		policy.MatchString(f.Message)):
		f.Class = Refused
	case status >= 400 && (lower == "context_length_exceeded" || lower == "string_above_max_length" ||
		lower == "array_above_max_length" || tooLong.MatchString(f.Message)):
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

// counts is how servers say how many texts they take in one request: OpenAI-like ones, TEI, Cohere, Gemini ("at most
// 100 requests can be in one batch"), Cloudflare ("'maxItems' is 100"), Mistral and others.
var counts = []*regexp.Regexp{
	regexp.MustCompile(`(?i)at most (\d+)\b`),
	regexp.MustCompile(`(?i)max[_ ]?items\W+(?:is |of )?(\d+)\b`),
	regexp.MustCompile(`(?i)(?:not be |no )?(?:larger|more|greater|longer) than (\d+)\b`),
	regexp.MustCompile(`(?i)batch size[^0-9]* (\d+)\s*>\s*\D*(\d+)`),
	regexp.MustCompile(`(?i)max\w* (?:allowed )?(?:client )?batch size\D{0,12}(\d+)\b`),
	regexp.MustCompile(`(?i)batch size\D{0,24}(?:limit|max\w*)\D{0,12}(\d+)\b`),
	regexp.MustCompile(`(?i)max\w*\D{0,24}(\d+) (?:texts|inputs|items|documents|requests)`),
	regexp.MustCompile(`(?i)max\w*\D{0,24}(?:texts|inputs|items|documents|requests)\D{0,12}(\d+)\b`),
}

// ofTokens tells messages that count tokens, characters or bytes.
var ofTokens = regexp.MustCompile(`(?i)token|character|byte|context|physical batch size`)

// MostTexts reads from a message about too much how many texts the server takes in one request, less than the number
// that it was sent; 0: it does not say. byCount: the message is about the number of texts.
func MostTexts(message string, sent int) (most int, byCount bool) {
	lower := strings.ToLower(message)
	byCount = strings.Contains(lower, "batch size") && !strings.Contains(lower, "physical batch size")
	if ofTokens.MatchString(message) {
		return 0, byCount
	}
	for _, form := range counts {
		found := form.FindStringSubmatch(message)
		if found == nil {
			continue
		}
		if n, err := strconv.Atoi(found[len(found)-1]); err == nil && n > 0 && n < sent {
			return n, true
		}
	}
	return 0, byCount
}

// RefusesDims reports whether a message, such as vLLM's, says that the width of this model's vectors cannot be asked
// for.
func RefusesDims(message string) bool { return ofDims.MatchString(message) }

var ofDims = regexp.MustCompile(`(?i)matryoshka|not support\w* .{0,40}dimension|dimension\w* .{0,40}not support`)

// Inside finds the error that gateways like to put into an answer of status 200, and the status that it should have
// had.
func Inside(body []byte) (status int, found bool) {
	var top struct {
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(bare(body), &top) != nil || len(top.Error) == 0 || string(top.Error) == "null" {
		return 0, false
	}
	var inner struct {
		Code   json.RawMessage `json:"code"`
		Status json.RawMessage `json:"status"`
	}
	_ = json.Unmarshal(top.Error, &inner) // it may be a text
	for _, raw := range []json.RawMessage{inner.Code, inner.Status} {
		if code, err := strconv.Atoi(string(raw)); err == nil && code >= 400 && code <= 599 {
			return code, true
		}
	}
	if Explain(http.StatusBadRequest, body).Class != Rejected {
		return http.StatusBadRequest, true // its words say more
	}
	return http.StatusInternalServerError, true
}

// readFault finds message and code in any of the forms that are in use.
func readFault(body []byte) Fault {
	var top struct {
		Error   json.RawMessage `json:"error"`
		Type    string          `json:"error_type"`
		Message string          `json:"message"`
		Detail  json.RawMessage `json:"detail"`
		Errors  []struct {
			Message string `json:"message"`
		} `json:"errors"`
	}
	body = bare(body)
	var several []json.RawMessage
	if json.Unmarshal(body, &several) == nil && len(several) > 0 {
		body = several[0]
	}
	if json.Unmarshal(body, &top) != nil {
		return Fault{Message: plain(body)}
	}
	if len(top.Errors) > 0 && top.Message == "" {
		top.Message = top.Errors[0].Message
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
	} else if json.Unmarshal(top.Error, &inner) == nil && inner.Message+inner.Type+textOf(inner.Code) != "" {
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

// plain is a message that is no JSON; pages in HTML are for people.
func plain(body []byte) string {
	const most = 1000
	if len(body) == 0 || len(body) > most || body[0] == '<' || body[0] == '{' || body[0] == '[' || !utf8.Valid(body) {
		return ""
	}
	return string(body)
}

// bare is a body without the mark that some put before JSON, and without white space around it.
func bare(body []byte) []byte {
	return bytes.TrimSpace(bytes.TrimPrefix(bytes.TrimSpace(body), []byte("\xef\xbb\xbf")))
}

// textOf is the string that a JSON value is, or "".
func textOf(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return ""
	}
	return text
}
