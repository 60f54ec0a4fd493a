package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/plugins/remote/dialect"
	"github.com/embedsidecar/embedsidecar/plugins/sdk"
)

// maxTries is how often a request is tried before its texts are left for later.
const maxTries = 3

// fault is why a request has no answer.
type fault struct {
	class   dialect.Class
	status  int           // of the answer; 0: there was none
	after   time.Duration // retry delay; 0: none given
	byCount bool          // TooLarge: the number of texts is too large
	most    int           // TooLarge: the server's limit of texts; 0: none given
	tokens  int           // TooLarge: the account's limit of tokens a minute; 0: it is not about that
	err     error         // without secrets or texts
}

func (f *fault) Error() string { return f.err.Error() }

func (f *fault) call() error {
	switch f.class {
	case dialect.Misconfigured, dialect.Rejected, dialect.TooLarge, dialect.Refused:
		return sdk.Misconfigured(f.err)
	case dialect.Overloaded:
		return sdk.OutOfResources(f.err, f.after)
	case dialect.Down, dialect.Broken:
	}
	return sdk.Again(f.err, f.after)
}

// filtered reports whether what lies before a server may have refused the texts: a firewall that takes one for an
// attack answers as if the configuration were wrong.
func (f *fault) filtered() bool {
	return f.class == dialect.Misconfigured && (f.status == http.StatusForbidden ||
		f.status == http.StatusMethodNotAllowed || f.status >= 300 && f.status < 400)
}

// job is one call of the host. Each index of texts and answers belongs to one batch, and so to one goroutine.
type job struct {
	client  *Client
	query   bool
	asked   string // a reranker's query
	texts   []string
	answers []sdk.Answer
}

// solve gets the vectors of a batch, in as many requests as necessary. It returns a fault that the texts did not cause;
// texts without vector or error are then left for later.
func (j *job) solve(ctx context.Context, batch []int) *fault {
	c := j.client
	began := time.Now()
	f := j.try(ctx, batch)
	if f == nil {
		return nil
	}
	switch f.class {
	case dialect.TooLarge:
		if f.tokens > 0 {
			if c.sizes.atMost(f.tokens); len(batch) == 1 { // it fits the model, so it is not cut for the account's sake
				f.class = dialect.Overloaded
				return f
			}
		}
		if f.most > 0 && f.most < len(batch) {
			return j.divide(ctx, batch, f.most)
		}
		if len(batch) > 1 {
			return j.split(ctx, batch, f)
		}
		if probe := c.works(ctx, began); probe != nil { // even the probe is too large, so the text is not to blame
			return probe
		}
		return j.shorten(ctx, batch, f)
	case dialect.Refused:
		if len(batch) > 1 {
			return j.split(ctx, batch, f)
		}
		j.blame(batch[0], sdk.Refused, f)
		return nil
	case dialect.Rejected, dialect.Broken:
		// The probe shows whether these texts or all texts fail. A misspelt model must not make a dead letter of every
		// row.
		if probe := c.works(ctx, began); probe != nil {
			if probe.class == dialect.Rejected {
				return f // the fault of the texts is more precise than that of the probe
			}
			return probe
		}
		if len(batch) > 1 {
			return j.split(ctx, batch, f)
		}
		j.blame(batch[0], sdk.Invalid, f)
		return nil
	case dialect.Overloaded, dialect.Down, dialect.Misconfigured:
	}
	return f
}

func (j *job) blame(i int, class sdk.ErrorClass, f *fault) {
	j.answers[i] = sdk.Answer{Err: &sdk.TextError{Class: class, Message: f.Error()}}
}

// divide splits a batch by the server's reported limit of texts, and remembers the limit.
func (j *job) divide(ctx context.Context, batch []int, most int) *fault {
	j.client.sizes.learn(most)
	return firstOf(j.solveAll(ctx, slices.Collect(slices.Chunk(batch, most))))
}

// solveAll solves batches concurrently, and returns the fault of each.
func (j *job) solveAll(ctx context.Context, batches [][]int) []*fault {
	faults := make([]*fault, len(batches))
	var wg sync.WaitGroup
	for n, batch := range batches {
		wg.Go(func() { faults[n] = j.solve(ctx, batch) })
	}
	wg.Wait()
	return faults
}

func firstOf(faults []*fault) *fault {
	for _, f := range faults {
		if f != nil {
			return f
		}
	}
	return nil
}

// split solves the halves of a batch.
func (j *job) split(ctx context.Context, batch []int, f *fault) *fault {
	half := len(batch) / 2
	if of := firstOf(j.solveAll(ctx, [][]int{batch[:half], batch[half:]})); of != nil {
		return of
	}
	if f.class == dialect.TooLarge {
		bytes := 0
		for _, i := range batch {
			if j.answers[i].Err != nil || j.answers[i].Truncated {
				return nil // one text was too long, not the whole batch
			}
			bytes += len(j.texts[i])
		}
		j.client.sizes.tooMuch(len(batch), bytes, f.byCount)
	}
	return nil
}

// shorten cuts a single text that is too long. This also happens with servers that cut texts themselves: some do not
// count their special tokens.
func (j *job) shorten(ctx context.Context, batch []int, f *fault) *fault {
	i, c := batch[0], j.client
	how := c.o.Truncate
	if how == dialect.CutNever {
		j.blame(i, sdk.TooLong, f)
		return nil
	}
	const enough = 40 // each try keeps three quarters: from 1 MB to some bytes
	most := len(j.texts[i])
	// If the server cuts texts itself, MaxTokens is not part of the fingerprint.
	if c.o.MaxTokens > 0 && !c.o.Dialect.CutsItself(how) {
		most = min(most, c.o.MaxTokens*8)
	}
	for range enough {
		most = min(most, len(j.texts[i])*3/4)
		cut := cutTo(j.texts[i], most, how)
		if strings.TrimSpace(cut) == "" {
			break
		}
		j.texts[i] = cut
		again := j.try(ctx, batch)
		if again == nil {
			j.answers[i].Truncated = true
			return nil
		}
		if again.class != dialect.TooLarge {
			return again
		}
	}
	j.blame(i, sdk.TooLong, f)
	return nil
}

// cutTo keeps at most n bytes of a text, in whole characters.
func cutTo(text string, n int, how dialect.Truncate) string {
	if len(text) <= n {
		return text
	}
	if how == dialect.CutStart {
		at := len(text) - n
		for at < len(text) && !utf8.RuneStart(text[at]) {
			at++
		}
		return text[at:]
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// try makes one request, with retries.
func (j *job) try(ctx context.Context, batch []int) *fault {
	texts := lists.Map(batch, func(i int) string { return j.texts[i] })
	var (
		f     *fault
		avoid *endpoint
	)
	for n := range maxTries {
		if f != nil && f.class == dialect.Broken && !sleep.For(ctx, j.client.o.Pause<<n/2) {
			return f
		}
		l, err := j.client.pool.acquire(ctx, j.query, avoid)
		if err != nil {
			return j.client.noPlace(err, f)
		}
		avoid = l.endpoint
		f = nil
		if !l.proven { // a failed probe releases the lease
			f = j.client.probe(ctx, l)
		}
		if f == nil {
			f = j.once(ctx, l, batch, texts)
		}
		if f == nil || ctx.Err() != nil {
			return f
		}
		switch f.class {
		case dialect.Overloaded, dialect.Down, dialect.Broken:
		case dialect.Misconfigured:
			if len(j.client.o.URLs) == 1 {
				return f
			}
		case dialect.Rejected, dialect.TooLarge, dialect.Refused:
			return f
		}
	}
	return f
}

// noPlace says why no URL was available; earlier is the fault of the previous try, if any.
func (c *Client) noPlace(err error, earlier *fault) *fault {
	var paused *pausedError
	after := time.Duration(0)
	if errors.As(err, &paused) {
		after = max(paused.after, c.o.Pause)
	}
	if earlier != nil {
		return &fault{class: earlier.class, err: earlier.err, after: max(after, earlier.after)}
	}
	if paused != nil {
		class := dialect.Overloaded
		if paused.why != nil {
			class = paused.why.class
		}
		return &fault{class: class, err: paused, after: after}
	}
	return &fault{class: dialect.Down, err: fmt.Errorf("no request could be made in time: %w", err)}
}

// once makes one request at one URL and fills in the answers.
func (j *job) once(ctx context.Context, l *lease, batch []int, texts []string) *fault {
	c := j.client
	width := c.o.Dims
	c.mu.Lock()
	if c.model != nil {
		width = c.model.Dims
	}
	c.mu.Unlock()
	a, asked, f := c.request(ctx, l, j.query, j.asked, texts, width)
	if f != nil && f.filtered() {
		if probe := c.probe(ctx, l); probe != nil { // it releases the lease
			return probe
		}
		f.class, f.err = dialect.Refused, fmt.Errorf("%s answered %d, and answers other texts: what lies before it, such as "+
			"a firewall, refuses this one", l.name, f.status)
	}
	if f != nil {
		c.pool.release(l, outcomeOf(ctx, f), asked)
		return f
	}
	answers := make([]sdk.Answer, len(batch))
	wrong := 0
	for k := range batch {
		v, err := c.accept(a.Vectors[k], width)
		var wide *widthError
		switch {
		case errors.As(err, &wide):
			wrong++
			f = &fault{class: dialect.Broken, err: fmt.Errorf("%s: %w", l.name, err)}
		case err != nil:
			answers[k].Err = &sdk.TextError{Class: sdk.Invalid, Message: fmt.Sprintf("%s: %s", l.name, err)}
		default:
			if answers[k].Vector = v; c.o.Dialect.Sparse {
				answers[k].Indices, answers[k].Vector = embed.SplitPairs(v)
			}
		}
	}
	if f != nil {
		c.pool.release(l, broken, 0)
		if wrong == len(batch) || c.o.Dialect.Sparse { // most sparse vectors have no number at the last indices
			f.class = dialect.Misconfigured
			f.err = fmt.Errorf("%w: did the model change? see dims and dims_by", f.err)
		}
		return f
	}
	c.pool.release(l, answered, 0)
	c.good()
	share(a.Tokens, texts, answers)
	for k, i := range batch {
		j.answers[i] = answers[k]
	}
	return nil
}

// share distributes the server's token count over the texts of a request, in proportion to their estimates. The host
// refuses answers with more tokens than a text can have, such as those of a server that counts padding.
func share(total int, texts []string, answers []sdk.Answer) {
	sum, bytes := 0, 0
	for _, text := range texts {
		sum, bytes = sum+tokens(text), bytes+len(text)
	}
	const mostPerByte = 4
	total = min(total, mostPerByte*bytes)
	given := 0
	for k, text := range texts {
		n := total * tokens(text) / sum
		if k == len(texts)-1 {
			n = total - given
		}
		answers[k].Tokens = n
		given += n
	}
}

// outcomeOf is the outcome of a fault for the URL.
func outcomeOf(ctx context.Context, f *fault) outcome {
	if ctx.Err() != nil && f.class == dialect.Down {
		return neutral // the call's own deadline expired
	}
	switch f.class {
	case dialect.Overloaded:
		return overloaded
	case dialect.Down:
		return down
	case dialect.Broken:
		return broken
	case dialect.Misconfigured:
		return unfit
	case dialect.Rejected, dialect.TooLarge, dialect.Refused:
	}
	return neutral
}

// tokens is an upper estimate of a text's tokens: one for every three and a half bytes of ASCII, and one for each other
// character. If the estimate is too low, the server refuses the request, which is then halved.
func tokens(text string) int {
	ascii, other := 0, 0
	for i := range len(text) {
		switch b := text[i]; {
		case b < 0x80:
			ascii++
		case b >= 0xC0:
			other++
		}
	}
	return ascii*2/7 + other + 2
}

// sizes are the limits of one request. They shrink when a server refuses a request as too large.
type sizes struct {
	mu     sync.Mutex
	limits dialect.Limits
}

func (s *sizes) get() dialect.Limits {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limits
}

// learn records the server's reported limit of texts.
func (s *sizes) learn(most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limits.Texts = min(s.limits.Texts, most)
}

// atMost records the account's limit of tokens.
func (s *sizes) atMost(tokens int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limits.Tokens = min(s.limits.Tokens, tokens)
}

// tooMuch records that a request was too large, though its halves were not.
func (s *sizes) tooMuch(texts, bytes int, byCount bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if byCount {
		s.limits.Texts = min(s.limits.Texts, max(1, (texts+1)/2))
		return
	}
	s.limits.Bytes = min(s.limits.Bytes, max(1, (bytes+1)/2))
}

// batches groups the indices of texts into requests. A text above the limits is sent alone, and the server decides.
// beside is the number of tokens that are read with each text.
func batches(texts []string, places []int, beside int, limits dialect.Limits) [][]int {
	var (
		all        [][]int
		now        []int
		sum, bytes int
	)
	for _, i := range places {
		t, b := tokens(texts[i])+beside, len(texts[i])
		if len(now) > 0 && (len(now) >= limits.Texts || sum+t > limits.Tokens || bytes+b > limits.Bytes) {
			all, now, sum, bytes = append(all, now), nil, 0, 0
		}
		now, sum, bytes = append(now, i), sum+t, bytes+b
	}
	if len(now) > 0 {
		all = append(all, now)
	}
	return all
}
