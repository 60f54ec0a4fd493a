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

// Class is the kind of a failure.
type Class int

// The classes of failures.
const (
	Overloaded    Class = iota // too many requests, or no capacity: retry later
	Down                       // unreachable, or no answer in time
	Broken                     // a server error, or an invalid answer
	Rejected                   // the server refuses the texts or the request
	TooLarge                   // too much in one request, or one text that is too long
	Refused                    // its policy refuses a text
	Misconfigured              // a user must change something: key, model, address, billing
)

// Fault is the content of an error answer. Message is the server's own, which may quote texts and keys.
type Fault struct {
	Class   Class
	Code    string // the API's error code, as "insufficient_quota"
	Message string
	// Tokens is the account's limit of tokens a minute, if a request alone was above it; the class is then TooLarge.
	Tokens int
}

var (
	tooLong = regexp.MustCompile(`(?i)context.length|too (long|large|many)|must have less than \d+ tokens|exceed\w* .*(length|limit|tokens|batch|size)|` +
		`max\w* .*(tokens|batch size|input size)|maxlength|batch size`)
	// longer matches messages about one text that is too long in an answer with a 5xx status.
	longer = regexp.MustCompile(`(?i)context.(length|size)|too (long|large) to process`)
	policy = regexp.MustCompile(`(?i)content (management )?policy|flagged|moderation`)
	// above matches OpenAI's message about a request with more tokens than the account may use in a minute. Its status
	// is that of too many requests, but it never gets through.
	above = regexp.MustCompile(`(?i)tokens per min.{0,40}\blimit:? (\d+), requested:? (\d+)`)
	// names matches the identifiers that APIs use as codes and types of errors. Other values are not repeated.
	names = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,63}$`)
)

// Explain reads an answer whose status is not 200. Servers use the same status for different errors, so it also
// examines codes and messages.
func Explain(status int, body []byte) Fault {
	f := readFault(body)
	lower := strings.ToLower(f.Code)
	if status == http.StatusTooManyRequests {
		f.Tokens = requestAbove(f.Message)
	}
	switch {
	case slices.Contains([]string{"insufficient_quota", "billing_not_active", "billing_hard_limit_reached"}, lower):
		f.Class = Misconfigured
	case f.Tokens > 0:
		f.Class = TooLarge
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
	default: // 201, 204 and the like are unexpected
		f.Class = Broken
	}
	return f
}

// requestAbove returns the limit of tokens that a request alone was above; 0: the message is about something else.
func requestAbove(message string) int {
	found := above.FindStringSubmatch(message)
	if found == nil {
		return 0
	}
	limit, _ := strconv.Atoi(found[1])
	if asked, _ := strconv.Atoi(found[2]); asked <= limit {
		return 0
	}
	return limit
}

// counts matches servers' messages about the limit of texts in one request: OpenAI-like ones, TEI, Cohere, Gemini ("at
// most 100 requests can be in one batch"), Cloudflare ("'maxItems' is 100"), Mistral and others.
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

// ofTokens matches messages about tokens, characters or bytes.
var ofTokens = regexp.MustCompile(`(?i)token|character|byte|context|physical batch size`)

// MostTexts reads a server's limit of texts in one request from a message about a request that is too large. most is
// less than sent; 0: not reported. byCount: the message is about the number of texts.
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

// RefusesDims reports whether a message, such as vLLM's, says that the model's dims cannot be changed.
func RefusesDims(message string) bool { return ofDims.MatchString(message) }

var ofDims = regexp.MustCompile(`(?i)matryoshka|not support\w* .{0,40}dimension|dimension\w* .{0,40}not support`)

// Inside finds an error in an answer with status 200, as gateways send it, and returns the status it should have had.
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
	_ = json.Unmarshal(top.Error, &inner) // it may be a string
	for _, raw := range []json.RawMessage{inner.Code, inner.Status} {
		if code, err := strconv.Atoi(string(raw)); err == nil && code >= 400 && code <= 599 {
			return code, true
		}
	}
	if Explain(http.StatusBadRequest, body).Class != Rejected {
		return http.StatusBadRequest, true // Explain reads its message
	}
	return http.StatusInternalServerError, true
}

// readFault finds message and code in any of the common forms.
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

// plain is a message that is not JSON. HTML pages are ignored.
func plain(body []byte) string {
	const most = 1000
	if len(body) == 0 || len(body) > most || body[0] == '<' || body[0] == '{' || body[0] == '[' || !utf8.Valid(body) {
		return ""
	}
	return string(body)
}

// bare is a body without a byte order mark and surrounding white space.
func bare(body []byte) []byte {
	return bytes.TrimSpace(bytes.TrimPrefix(bytes.TrimSpace(body), []byte("\xef\xbb\xbf")))
}

// textOf returns a JSON string's value, or "".
func textOf(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return ""
	}
	return text
}
