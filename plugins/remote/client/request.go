package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/net/http2"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/plugins/remote/dialect"
)

// Bounds of answers.
const (
	maxErrorBody = 64 << 10
	maxProbeBody = 4 << 20
	bodySlack    = 64 << 10
	numberBytes  = 32 // a number with its comma and spaces, in its longest form
)

// request makes one call. asked is a reranker's query; wait is the pause that the server asks for. width 0: not known
// yet.
func (c *Client) request(ctx context.Context, l *lease, query bool, asked string, texts []string,
	width int) (a dialect.Answer, wait time.Duration, f *fault,
) {
	defer func() {
		if f != nil {
			l.fault = f
		}
	}()
	body, err := c.body(query, asked, texts)
	if err != nil {
		return a, 0, &fault{class: dialect.Rejected, err: errors.New("the texts cannot be written as JSON")}
	}
	limit := int64(maxProbeBody)
	if width > 0 {
		switch {
		case c.o.Dialect.Sparse:
			width = 2 * min(width, embed.MaxSparseNumbers) // with their indices
		case c.o.DimsBy == ByCut:
			width = 16000
		}
		limit = int64(len(texts))*int64(width)*numberBytes + int64(6*len(body)) + bodySlack // some servers repeat the texts
	}
	count := len(texts)
	if asked != "" { // the answer may quote it, too
		texts = append(texts[:count:count], asked)
	}
	answer, wait, f := c.exchange(ctx, l, http.MethodPost, c.o.Dialect.PathOf(c.o.Model), body, limit, texts)
	if f != nil {
		return a, wait, f
	}
	if a, err = c.o.Dialect.Decode(answer, count); err != nil {
		if status, ok := dialect.Inside(answer); ok {
			key, err := c.o.Key()
			if err != nil {
				return a, 0, &fault{class: dialect.Misconfigured, err: err}
			}
			return a, 0, c.explain(l, status, answer, nil, key, texts)
		}
		return a, 0, &fault{class: dialect.Broken, err: fmt.Errorf("%s: %w", l.name, err)}
	}
	return a, 0, nil
}

// body is the request for vectors or scores of texts.
func (c *Client) body(query bool, asked string, texts []string) ([]byte, error) {
	r := dialect.Request{
		Model: c.o.Model, Query: query, Asked: asked, Texts: texts, Truncate: c.o.Truncate, Normalize: c.o.Normalize,
		Float: c.o.Float,
	}
	if c.o.DimsBy == ByProvider {
		r.Dims = c.o.Dims
	}
	fields := c.o.Fields[0]
	if query {
		fields = c.o.Fields[1]
	}
	return dialect.Write(c.o.Dialect.Body(r), fields)
}

// exchange sends a body to a path of a URL and returns the body of an answer with status 200.
func (c *Client) exchange(ctx context.Context, l *lease, method, path string, body []byte, limit int64,
	texts []string,
) ([]byte, time.Duration, *fault) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.o.Timeout, fmt.Errorf("no answer within %s", c.o.Timeout))
	defer cancel()
	resp, wait, f := c.send(ctx, l, call{method: method, path: path, kind: "application/json", body: body}, texts)
	if f != nil {
		return nil, wait, f
	}
	defer func() { _ = resp.Body.Close() }() // it was read, or it is not wanted
	data, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil:
		key, _ := c.o.Key() // it was there a moment ago
		return nil, 0, c.unreached(ctx, l, err, key, texts)
	case int64(len(data)) > limit:
		return nil, 0, &fault{class: dialect.Broken, err: fmt.Errorf("%s: the answer to %d texts is longer than %d bytes",
			l.name, len(texts), limit)}
	}
	return data, 0, nil
}

// call is one HTTP request.
type call struct {
	method, before, path, query string // before: precedes the URL's own path
	kind                        string // of the body
	body                        []byte
}

// send sends a request to a path of a URL and returns an answer with status 200. The caller closes its body.
func (c *Client) send(ctx context.Context, l *lease, what call, texts []string) (*http.Response, time.Duration,
	*fault,
) {
	key, err := c.o.Key()
	if err != nil {
		return nil, 0, &fault{class: dialect.Misconfigured, err: err}
	}
	target := *l.url
	target.Path = what.before + strings.TrimSuffix(target.Path, "/") + what.path
	target.RawPath = ""
	if c.o.Dialect.Signed { // the signature covers the escaped path: colons and slashes of a model's name
		target.RawPath = strings.Replace(target.Path, "/"+c.o.Model+"/", "/"+escaped(c.o.Model)+"/", 1)
	}
	if what.query != "" {
		target.RawQuery = what.query
	}
	req, err := http.NewRequestWithContext(ctx, what.method, target.String(), bytes.NewReader(what.body))
	if err != nil {
		return nil, 0, &fault{class: dialect.Misconfigured, err: fmt.Errorf("%s: invalid URL", l.name)}
	}
	req.Header.Set("User-Agent", c.o.UserAgent)
	req.Header.Set("Accept", "application/json")
	if len(what.body) > 0 {
		req.Header.Set("Content-Type", what.kind)
	}
	if key != "" {
		if c.o.KeyHeader == "" {
			req.Header.Set("Authorization", "Bearer "+key)
		} else {
			req.Header.Set(c.o.KeyHeader, key)
		}
	} else if c.o.Sign != nil {
		if err := c.o.Sign(req, what.body); err != nil {
			return nil, 0, &fault{class: dialect.Misconfigured, err: fmt.Errorf("%s: sign the request: %w", l.name, err)}
		}
	}
	resp, err := c.o.HTTP.Do(req)
	if err != nil {
		return nil, 0, c.unreached(ctx, l, err, key, texts)
	}
	if resp.StatusCode != http.StatusOK {
		defer func() { _ = resp.Body.Close() }() // what is wanted of it was read
		said, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
		if err != nil {
			said = nil // the status says enough
		}
		return nil, retryAfter(resp.Header, time.Now()), c.explain(l, resp.StatusCode, said, resp.Header, key, texts)
	}
	return resp, 0, nil
}

func escaped(model string) string { return strings.ReplaceAll(url.PathEscape(model), ":", "%3A") }

// unreached classifies an error of the connection. The library's errors contain the URL, whose query may be secret, and
// quote servers that do not speak HTTP.
func (c *Client) unreached(ctx context.Context, l *lease, err error, key string, texts []string) *fault {
	if ctx.Err() != nil {
		return &fault{class: dialect.Down, err: fmt.Errorf("%s: %w", l.name, context.Cause(ctx))}
	}
	if outer, ok := errors.AsType[*url.Error](err); ok {
		err = outer.Err
	}
	said := c.words(err.Error(), key, texts)
	if ofNetwork(err) {
		said = quiet(err.Error(), key, texts)
	} else if ended := ofStream(err); ended != "" {
		said = ended
	}
	f := &fault{class: dialect.Down, err: fmt.Errorf("%s: %s", l.name, said)}
	noName, _ := errors.AsType[*net.DNSError](err)
	switch {
	case errors.Is(err, errProxyAuth), is[*addressError](err), is[x509.UnknownAuthorityError](err),
		is[x509.HostnameError](err), is[x509.CertificateInvalidError](err), is[tls.AlertError](err):
		f.class = dialect.Misconfigured
	case noName != nil && noName.IsNotFound:
		f.err = fmt.Errorf("%s: there is no such host", l.name)
	}
	return f
}

// is reports whether an error is one of type E.
func is[E error](err error) bool {
	_, yes := errors.AsType[E](err)
	return yes
}

// ofNetwork reports whether an error is a network or TLS error, which does not quote the server.
func ofNetwork(err error) bool {
	for _, known := range []error{io.EOF, io.ErrUnexpectedEOF, http.ErrSchemeMismatch, errProxyAuth} {
		if errors.Is(err, known) {
			return true
		}
	}
	return is[net.Error](err) || is[syscall.Errno](err) || is[*addressError](err) || is[tls.RecordHeaderError](err) ||
		is[tls.AlertError](err) || is[*tls.CertificateVerificationError](err)
}

// goAway matches the library's error for a connection that the server ended. The text after the code is the server's.
var goAway = regexp.MustCompile(
	`http2: server sent GOAWAY and closed the connection; LastStreamID=\d+, ErrCode=([A-Z0-9_]+)`)

// ofStream returns the HTTP/2 error code with which a server ended a request or a connection, without the server's
// text; "": it did not.
func ofStream(err error) string {
	if stream, ok := errors.AsType[http2.StreamError](err); ok {
		return fmt.Sprintf("the server ended the request (HTTP/2: %s)", stream.Code)
	}
	if code := goAway.FindStringSubmatch(err.Error()); code != nil {
		return fmt.Sprintf("the server ended the connection (HTTP/2 GOAWAY: %s)", code[1])
	}
	return ""
}

// words returns a server's message if the request was a probe. For a request with rows it returns only the length,
// because the message may quote them in any form.
func (c *Client) words(message, key string, texts []string) string {
	ofRows := slices.ContainsFunc(texts, func(text string) bool { return text != c.o.Prefixes[0]+probeText })
	if message == "" || !ofRows {
		return quiet(message, key, texts)
	}
	return fmt.Sprintf("(message of %d bytes withheld: it may quote a text)", len(message))
}

// explain reads an error answer.
func (c *Client) explain(l *lease, status int, body []byte, header http.Header, key string, texts []string) *fault {
	said := dialect.Explain(status, body)
	f := &fault{class: said.Class, status: status, tokens: said.Tokens, after: retryAfter(header, time.Now())}
	msg := fmt.Sprintf("%s answered %d", l.name, status)
	if said.Code != "" && quiet(said.Code, key, texts) == said.Code {
		msg += " " + said.Code
	}
	switch status {
	// these messages often repeat the key
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired:
		msg += ": the key is missing, wrong, or not good for this model"
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect,
		http.StatusPermanentRedirect:
		msg += ": it sends elsewhere, which is not followed: give the URL that answers itself"
	default:
		if m := c.words(said.Message, key, texts); m != "" {
			msg += ": " + m
		} else if len(body) > 0 && said.Code == "" {
			msg += ": no message"
		}
	}
	if said.Class == dialect.Rejected && c.o.DimsBy == ByProvider && c.o.Dims > 0 && dialect.RefusesDims(said.Message) {
		f.class = dialect.Misconfigured
		msg += fmt.Sprintf("; the model has fixed dims: leave out dims, or set dims to its width and dims_by: model"+
			" (where the model was made for it, dims_by: cut keeps the first %d)", c.o.Dims)
	}
	if said.Class == dialect.TooLarge || said.Class == dialect.Rejected {
		if f.most, f.byCount = dialect.MostTexts(said.Message, len(texts)); f.most > 0 && f.class == dialect.Rejected {
			f.class = dialect.TooLarge
		}
	}
	f.err = errors.New(msg)
	return f
}

// retryAfter reads a server's retry delay: Retry-After in seconds or as a date, or the variant in milliseconds. 0:
// none.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(strings.TrimSpace(h.Get("Retry-After-Ms")), 64); err == nil && ms > 0 && ms < 1e9 {
		return bounded(time.Duration(ms * float64(time.Millisecond)))
	}
	value := strings.TrimSpace(h.Get("Retry-After"))
	if value == "" {
		return 0
	}
	if seconds, err := strconv.ParseFloat(value, 64); err == nil {
		if seconds > 0 && seconds < 1e9 {
			return bounded(time.Duration(seconds * float64(time.Second)))
		}
		return 0
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	// The server's clock may differ; its current time is in Date.
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return bounded(at.Sub(now))
}

func bounded(d time.Duration) time.Duration { return min(max(d, 0), maxAsked) }

// The shortest pieces of a text and of a key that a message must not repeat.
const (
	textPiece = 12
	keyPiece  = 5
	mostKept  = 200 // bytes of a message
)

// quiet makes a server's message safe to show: one printable line, withheld if it repeats a piece of a text or of the
// key.
func quiet(message, key string, texts []string) string {
	message = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(message, "?"), func(r rune) bool {
		return r <= ' ' ||
			r == 0x7f
	}), " ")
	if message == "" {
		return ""
	}
	if repeats(message, []string{key}, keyPiece) {
		return "(message withheld: it repeats a part of the key)"
	}
	if repeats(message, texts, textPiece) {
		return "(message withheld: it repeats a part of a text)"
	}
	return wording.Cut(message, mostKept)
}

// repeats reports whether a message contains n consecutive bytes of one of the texts, or all of a shorter one. It
// ignores white space.
func repeats(message string, texts []string, n int) bool {
	message = squeeze(message)
	pieces := map[string]bool{}
	for i := 0; i+n <= len(message); i++ {
		pieces[message[i:i+n]] = true
	}
	for _, text := range texts {
		text = squeeze(text)
		if len(text) < n {
			if len(text) >= 4 && strings.Contains(message, text) {
				return true
			}
			continue
		}
		for i := 0; i+n <= len(text); i++ {
			if pieces[text[i:i+n]] {
				return true
			}
		}
	}
	return false
}

var escapes = strings.NewReplacer(`\n`, "", `\t`, "", `\r`, "")

// squeeze removes white space and escapes of quoted text.
func squeeze(s string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r == '\\' || r == '"' {
			return -1
		}
		return r
	}, escapes.Replace(s))
}
