// Package client gets vectors from servers over HTTP, in any of the dialects. It groups texts into requests,
// distributes them over several URLs, retries with backoff, finds the text that breaks a request, and validates every
// answer.
//
// It promises one answer for each text. A text gets an error of its own only if the server has also answered a harmless
// probe, so that the fault is the text's. No error contains a key or a piece of a text.
package client

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/plugins/remote/dialect"
	"github.com/embedsidecar/embedsidecar/plugins/sdk"
)

// DimsBy says what determines the dims of vectors.
type DimsBy string

// The values of DimsBy.
const (
	ByProvider DimsBy = "provider" // the request asks for them
	ByModel    DimsBy = "model"    // the model's own
	ByCut      DimsBy = "cut"      // the client truncates vectors, which only some models support
)

// Options configure a Client. Fields are required unless they say otherwise.
type Options struct {
	Dialect   *dialect.Dialect
	URLs      []*url.URL // checked by Network.CheckURL
	Model     string     // the provider's name; "" if the server has only one
	Dims      int        // 0: those of the probe's vector; required for a sparse dialect
	DimsBy    DimsBy
	Prefixes  [2]string         // for documents and queries; may be empty
	Fields    [2]map[string]any // merged into the requests of documents and queries; nil: none
	Truncate  dialect.Truncate
	MaxTokens int // of one text; 0: not known
	Normalize bool
	Float     bool
	Limits    dialect.Limits
	Batches   *dialect.Batches // nil: the provider has no batch jobs
	Most      int              // requests to a URL at a time
	Timeout   time.Duration    // of one request
	Pause     time.Duration    // after a failure; doubles with each further one
	Patience  time.Duration    // how long a request waits for a paused URL
	Key       func() (string, error)
	KeyHeader string // "": Authorization: Bearer
	// Sign signs a request with this body if there is no key; nil: requests are not signed.
	Sign       func(req *http.Request, body []byte) error
	Remembered string // file with the probe's vector of earlier runs; "": none
	UserAgent  string
	HTTP       *http.Client
	Log        *slog.Logger
}

// Client is safe for concurrent use.
type Client struct {
	o     Options
	pool  *pool
	sizes sizes

	mu     sync.Mutex
	model  *sdk.Model // nil before Describe
	canary []float32  // the probe's vector
	worked time.Time  // the last good answer
}

// New returns a Client. It sends no request.
func New(o Options) *Client {
	o.KeyHeader = cmp.Or(o.KeyHeader, o.Dialect.KeyHeader)
	c := &Client{o: o, pool: newPool(o.URLs, o.Most, o.Pause, o.Patience, o.Log)}
	c.sizes.limits = o.Limits
	return c
}

// Describe returns the description of the model, without a name. It asks a server for what is not configured. If dims
// are configured, it sends no request, unless the dialect has an InfoPath.
func (c *Client) Describe(ctx context.Context) (sdk.Model, error) {
	c.mu.Lock()
	known := c.model
	c.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	m := sdk.Model{
		Dims: c.o.Dims, MaxTokens: c.o.MaxTokens, Sparse: c.o.Dialect.Sparse, Reranks: c.o.Dialect.Reranks,
		Batches: c.o.Batches != nil,
		Symmetric: !c.o.Dialect.Kinds && c.o.Prefixes[0] == c.o.Prefixes[1] &&
			reflect.DeepEqual(c.o.Fields[0], c.o.Fields[1]),
	}
	identity := c.o.Model
	if c.o.Dialect.InfoPath != "" {
		info, f := c.info(ctx)
		if f != nil {
			return sdk.Model{}, f.call()
		}
		identity = info.Identity
		m.MaxTokens = cmp.Or(m.MaxTokens, info.MaxTokens)
		if info.MaxTexts > 0 {
			c.sizes.learn(info.MaxTexts)
		}
	}
	if m.Dims == 0 || c.o.Remembered != "" {
		if f := c.works(ctx, time.Now()); f != nil {
			return sdk.Model{}, f.call()
		}
		if !m.Sparse {
			c.mu.Lock()
			m.Dims = len(c.canary)
			c.mu.Unlock()
		}
	}
	m.Fingerprint = c.fingerprint(identity, m)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.model = &m
	return m, nil
}

// fingerprint covers everything known here that can change a vector. The servers' addresses are not part of it.
func (c *Client) fingerprint(identity string, m sdk.Model) string {
	truncate := c.o.Truncate
	own := 0 // the length to which the client cuts a text
	if !c.o.Dialect.CutsItself(truncate) && truncate != dialect.CutNever {
		own = m.MaxTokens
	}
	about := map[string]any{
		"dialect": c.o.Dialect.Name, "model": identity, "dims": m.Dims, "dims_by": c.o.DimsBy, "prefixes": c.o.Prefixes,
		"normalize": c.o.Normalize, "truncate": truncate, "cut_at": own, "kinds": c.o.Dialect.Kinds,
	}
	for i, name := range []string{"document_fields", "query_fields"} {
		if c.o.Fields[i] != nil { // models without fields keep their fingerprint
			about[name] = c.o.Fields[i]
		}
	}
	parts, err := json.Marshal(about)
	if err != nil {
		return "" // impossible for strings and numbers; the host refuses an empty one
	}
	sum := sha256.Sum256(parts)
	return "remote:1:" + hex.EncodeToString(sum[:])
}

// Embed embeds texts. The error is one of package sdk's classes.
func (c *Client) Embed(ctx context.Context, kind sdk.Kind, texts []string) ([]sdk.Answer, error) {
	ctx, cancel := early(ctx)
	defer cancel()
	return c.answer(ctx, &job{client: c, query: kind == sdk.Query}, c.o.Prefixes[kind], texts)
}

// early returns a context that ends before the deadline: the host kills a plugin that misses it, so unfinished texts
// are left for another call.
func early(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, deadline.Add(-min(time.Until(deadline)/5, 10*time.Second)))
}

func (c *Client) answer(ctx context.Context, j *job, prefix string, texts []string) ([]sdk.Answer, error) {
	j.texts, j.answers = make([]string, len(texts)), make([]sdk.Answer, len(texts))
	var places []int
	for i, text := range texts {
		if strings.TrimSpace(text) == "" {
			j.answers[i].Empty = true // providers refuse empty texts in different ways
			continue
		}
		j.texts[i] = prefix + text
		places = append(places, i)
	}
	all := batches(j.texts, places, tokens(j.asked), c.sizes.get())
	return c.gather(j, all, j.solveAll(ctx, all))
}

// gather combines the results of the requests. If none was answered, the call fails. Otherwise only texts without an
// answer are retried later: the others are paid for, even if the configuration is wrong now, as when no quota is left.
// A reranker's scores count only together.
func (c *Client) gather(j *job, all [][]int, faults []*fault) ([]sdk.Answer, error) {
	var worst *fault
	failed := 0
	for _, f := range faults {
		if f == nil {
			continue
		}
		failed++
		switch {
		case worst == nil, f.class == dialect.Misconfigured && worst.class != dialect.Misconfigured,
			f.class == worst.class && f.after > worst.after:
			worst = f
		}
	}
	paid := slices.ContainsFunc(j.answers, func(a sdk.Answer) bool { return a.Vector != nil })
	if worst != nil && (c.o.Dialect.Reranks || !paid && (failed == len(all) || worst.class == dialect.Misconfigured)) {
		return nil, worst.call()
	}
	for n, f := range faults {
		if f == nil {
			continue
		}
		for _, i := range all[n] {
			if a := &j.answers[i]; a.Vector == nil && a.Err == nil { // not answered by another half
				a.Err = &sdk.TextError{Class: sdk.RetryLater, Delay: f.after, Message: f.Error()}
			}
		}
	}
	return j.answers, nil
}

// accept validates one vector and converts it to an answer. width 0: any width.
func (c *Client) accept(v dialect.Vector, width int) ([]float32, error) {
	if c.o.Dialect.Sparse {
		return acceptSparse(v, width)
	}
	if width > 0 && c.o.DimsBy == ByCut && len(v) > width {
		v = v[:width:width]
	}
	if c.o.Dialect.Reranks {
		if x := float64(v[0]); math.IsNaN(x) || math.IsInf(x, 0) {
			return nil, errors.New("the server returned a score that is not finite")
		}
		return v, nil
	}
	if width > 0 && len(v) != width {
		return nil, &widthError{got: len(v), want: width}
	}
	var sum float64
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	switch {
	case math.IsNaN(sum) || math.IsInf(sum, 0):
		return nil, errors.New("the server returned a vector with a number that is not finite")
	case sum == 0:
		return nil, errors.New("the server returned a vector of zeros")
	}
	if c.o.Normalize || c.o.DimsBy == ByCut {
		scale := 1 / math.Sqrt(sum)
		for i, x := range v {
			v[i] = float32(float64(x) * scale)
		}
	}
	return v, nil
}

// acceptSparse is accept for a sparse vector.
func acceptSparse(v dialect.Vector, width int) ([]float32, error) {
	if len(v) == 0 {
		return nil, errors.New("the server returned a vector of zeros")
	}
	if last := int(v[len(v)-2]); last >= width {
		return nil, &widthError{got: last + 1, want: width}
	}
	err := embed.CheckPairs(v, width)
	return v, wrap.Errorf(err, "the server returned an invalid sparse vector")
}

// widthError says that a vector has the wrong width.
type widthError struct{ got, want int }

func (e *widthError) Error() string {
	return fmt.Sprintf("the server returns %d dims, want %d", e.got, e.want)
}

// Rerank scores texts by how well they answer a query. A score is treated as a vector of width 1, so requests, retries
// and the search for a bad text are those of Embed. Empty texts are not sent, because providers refuse them; they get
// the worst score of the others.
func (c *Client) Rerank(ctx context.Context, query string, texts []string) ([]float32, error) {
	ctx, cancel := early(ctx)
	defer cancel()
	answers, err := c.answer(ctx, &job{client: c, query: true, asked: query}, "", texts)
	if err != nil {
		return nil, err
	}
	worst := float32(math.MaxFloat32)
	for i := range answers {
		if failed := answers[i].Err; failed != nil {
			return nil, status.Errorf(codes.InvalidArgument, "text %d: %s", i, failed.Message)
		}
		if !answers[i].Empty {
			worst = min(worst, answers[i].Vector[0])
		}
	}
	scores := make([]float32, len(answers))
	for i, a := range answers {
		switch {
		case !a.Empty:
			scores[i] = a.Vector[0]
		case worst < math.MaxFloat32:
			scores[i] = worst
		}
	}
	return scores, nil
}
