package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
)

const (
	// maxAnswerBytes bounds the vectors of one call for plugins that describe no limit of their own.
	maxAnswerBytes = 16 << 20
	// healthTimeout is how long a plugin whose connection failed may take to say that it lives, and one that cannot be
	// reached to be gone. Most take a moment; but a busy machine may let it wait, and what is killed for that is called
	// dead though it is not.
	healthTimeout = 10 * time.Second
	// nextProcess is for how long a query whose process died waits for the next one.
	nextProcess = 3 * time.Second
)

// death is how a process ended by itself.
type death string

func (d death) Error() string { return string(d) }

// Embed implements embed.Embedder. A call that is larger than the plugin's limits (or 32 MiB of text, or 16 MiB of
// vectors) becomes several, one after the other; when one of them fails, so does the whole. Callers that want to keep
// partial work stay within the described MaxBatch and MaxBatchBytes.
//
// Errors of the whole call are *embed.Error:
//   - Transient "unavailable": the plugin is not running, is ending, or asked to be left alone for a while. RetryAfter says how long;
//   - Transient "circuit_open": it failed so often in a row that nothing is sent to it until RetryAfter is over;
//   - Transient "deadline": the plugin gave up on something it waited for. Transient "canceled": the caller gave up;
//   - Crash "crashed": the plugin died while it held these texts. Crash "deadline": it did not answer in time and was killed.
//     Crash "memory": these texts alone drove it over its memory limit, and it was killed.
//     Calls that were under way at a death all get it; those under way when another call's silence had the plugin killed do not;
//   - Data "wrong_count", "wrong_dims", "bad_answer", "message_size": its answer cannot be believed. Data "invalid",
//     "internal": it said that these texts are the matter. Halve the texts to find the one;
//   - Resource "resource": later, and with fewer texts;
//   - Configuration: as of Describe, and "misconfigured" when the plugin says so in a call.
//
// Errors of single texts are *embed.TextError: Data with the codes "zero_vector", "not_finite", "too_many_numbers",
// "too_long", "refused" and "invalid"; Transient "retry_later". When every text of a call is to be retried later, the
// call fails as a whole with Transient "unavailable" and the longest delay as RetryAfter.
//
// A query whose process dies is asked once more, of the next process: somebody waits for the answer.
//
// The vectors of one call share their memory: keeping one of them keeps them all.
func (h *Host) Embed(ctx context.Context, kind embed.Kind, texts []string) ([]embed.Result, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	results, err := h.embed(ctx, kind, texts)
	if _, died := errors.AsType[death](err); !died || kind != embed.Query {
		return results, err
	}
	for began := time.Now(); ; {
		results, err = h.embed(ctx, kind, texts)
		e, down := errors.AsType[*embed.Error](err) // the next process starts after a pause
		if !down || e.Code != "unavailable" || time.Since(began)+e.RetryAfter > nextProcess ||
			!sleep.For(ctx, max(e.RetryAfter, 10*time.Millisecond)) {
			return results, err
		}
	}
}

func (h *Host) embed(ctx context.Context, kind embed.Kind, texts []string) ([]embed.Result, error) {
	p, err := h.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { h.release(p) }()
	inst := p.inst
	if inst.desc.Reranks {
		return nil, configuration("reranker", fmt.Errorf("model %q is a reranker: it makes no vectors; "+
			"name it in search.rerank, and another one here", inst.desc.Model))
	}
	results := make([]embed.Result, len(texts))
	refused := func(at int, why error) error {
		results[at].Err = why
		return nil
	}
	err = limitsOf(inst.desc).inBatches(texts, refused, func(b *batch) error { return h.call(ctx, &p, kind, b, results) })
	if err != nil {
		return nil, err
	}
	return allLater(results)
}

// batch is what goes into one call.
type batch struct {
	texts []string
	at    []int // place of each text in the caller's list
	bytes int
}

func (b *batch) add(at int, text string) {
	b.texts, b.at, b.bytes = append(b.texts, text), append(b.at, at), b.bytes+len(text)
}

// limits are the largest call a plugin gets.
type limits struct{ texts, bytes int }

func limitsOf(d embed.Description) limits {
	l := limits{texts: max(1, maxAnswerBytes/VectorBytes(d)), bytes: pluginpb.MaxCallBytes}
	if d.MaxBatch > 0 {
		l.texts = min(l.texts, d.MaxBatch)
	}
	if d.MaxBatchBytes > 0 {
		l.bytes = min(l.bytes, d.MaxBatchBytes)
	}
	return l
}

func (l limits) fits(b *batch, text string) bool {
	return len(b.texts) < l.texts && b.bytes+len(text) <= l.bytes
}

// inBatches sends texts in calls that the plugin takes, one after the other. refused is told of a text that cannot be
// sent at all; what it returns ends the whole.
func (l limits) inBatches(texts []string, refused func(at int, why error) error, send func(b *batch) error) error {
	var b batch
	for i, text := range texts {
		if why := l.refuse(text); why != nil {
			if err := refused(i, why); err != nil {
				return err
			}
			continue
		}
		if !l.fits(&b, text) {
			if err := send(&b); err != nil {
				return err
			}
			b = batch{}
		}
		b.add(i, text)
	}
	if len(b.texts) == 0 {
		return nil
	}
	return send(&b)
}

// invalid is the error of a call that fails as a whole for a text that cannot be sent.
func invalid(_ int, why error) error {
	return &embed.Error{Class: embed.Data, Code: "invalid", Err: why}
}

// refuse returns why a text cannot be sent at all, or nil.
func (l limits) refuse(text string) error {
	if len(text) > l.bytes {
		return &embed.TextError{
			Class: embed.Data, Code: "too_long",
			Message: fmt.Sprintf("%d bytes of text are more than the %d that the plugin takes in one call", len(text), l.bytes),
		}
	}
	if !utf8.ValidString(text) {
		return &embed.TextError{Class: embed.Data, Code: "invalid", Message: "the text is not valid UTF-8"}
	}
	return nil
}

// allLater turns answers that are all "retry later" into an error of the whole call: then it is the plugin that has
// no time. Of a text that was sent alone nobody knows whether it is the text.
func allLater(results []embed.Result) ([]embed.Result, error) {
	if len(results) < 2 {
		return results, nil
	}
	var longest time.Duration
	for _, r := range results {
		text, ok := errors.AsType[*embed.TextError](r.Err)
		if !ok || text.Class != embed.Transient {
			return results, nil
		}
		longest = max(longest, text.RetryAfter)
	}
	return nil, unavailable(longest, fmt.Errorf("the plugin asks for all %d texts to be tried again later", len(results)))
}

// call sends one batch and fills in its results.
func (h *Host) call(ctx context.Context, p *permit, kind embed.Kind, b *batch, results []embed.Result) error {
	inst := p.inst
	req := &pluginpb.EmbedRequest{Model: inst.desc.Model, Kind: pluginpb.Kind_KIND_DOCUMENT, Texts: b.texts}
	if kind == embed.Query {
		req.Kind = pluginpb.Kind_KIND_QUERY
	}
	var resp *pluginpb.EmbedResponse
	return h.exchange(ctx, p, exchange{
		batch: b, works: true,
		send: func(ctx context.Context) (err error) {
			resp, err = inst.rpc.Embed(ctx, req, grpc.MaxCallRecvMsgSize(answerLimit(len(b.texts), inst.desc)),
				atMost(len(b.texts)))
			return err
		},
		read: func() error { return readAnswer(resp, inst.desc, b, results) },
	})
}

// exchange is one call and its answer.
type exchange struct {
	*batch

	query string // read with each of the texts
	works bool   // it is counted, and a good answer proves that the plugin works
	send  func(ctx context.Context) error
	read  func() error
}

// exchange makes a call within the time that it may take beside the others under way, and judges what comes of it.
func (h *Host) exchange(ctx context.Context, p *permit, e exchange) error {
	inst, texts, bytes := p.inst, int64(len(e.texts)), int64(e.bytes+len(e.query)*len(e.texts))
	inFlight, inFlightBytes := inst.texts.Add(texts), inst.bytes.Add(bytes)
	defer func() { inst.texts.Add(-texts); inst.bytes.Add(-bytes) }()
	if e.works {
		h.stats.calls.Add(1)
		h.stats.texts.Add(uint64(texts))
	}
	call := sent{
		at: time.Now(), limit: inst.slot.opts.CallTimeout(int(inFlight), int(inFlightBytes)), memory: inst.memory.Load(),
		halved: len(e.texts) > 1 && e.query == "",
	}
	callCtx, cancel := context.WithTimeout(ctx, call.limit)
	err := e.send(callCtx)
	cancel()
	if err != nil {
		quotable := e.texts
		if e.query != "" {
			quotable = append(slices.Clip(quotable), e.query)
		}
		err = h.explainCall(ctx, inst, quotable, err, call)
	} else if err = e.read(); err != nil {
		h.answeredBadly(inst, call, err)
	}
	switch {
	case !e.works:
	case err != nil:
		h.stats.failed.Add(1)
	default:
		inst.bad.Store(0)
		inst.answered.Add(1)
		p.good = true
	}
	return err
}

// answerLimit is the largest answer to so many texts: twice the vectors, and room for messages.
func answerLimit(texts int, d embed.Description) int {
	return 2*texts*VectorBytes(d) + texts*(maxMessage+64) + 64<<10
}

// VectorBytes is how large a vector in an answer is, or may be.
func VectorBytes(d embed.Description) int {
	if d.Sparse {
		return 8*min(d.Dims, pluginpb.MaxSparseNumbers) + 3
	}
	return 4 * d.Dims
}

// answeredBadly counts an answer that cannot be believed and restarts a plugin that gives nothing else. A text that
// spoils the answer to each half that it is in is held against the plugin once.
func (h *Host) answeredBadly(inst *instance, call sent, err error) {
	h.stats.bad.Add(1)
	if call.halved {
		return
	}
	if n := inst.bad.Add(1); n >= int64(inst.slot.opts.MaxBadAnswers) {
		inst.slot.opts.Log.Warn("plugin restarted for its bad answers", "pid", inst.process.pid, "in_a_row", n, "last", err)
		reason := fmt.Sprintf("it gave %d bad answers in a row", n)
		inst.process.kill(reason)
		h.trip(reason)
	}
}

// sent is what is known of a call from before it was sent.
type sent struct {
	at     time.Time
	limit  time.Duration
	memory int64 // of the process then, in bytes; 0: not measured
	halved bool  // when it fails, for the text that is the matter
}

// explainCall classes a failed call, and kills the plugin when it hangs.
func (h *Host) explainCall(ctx context.Context, inst *instance, texts []string, err error, call sent) error {
	p := inst.process
	code := status.Code(err)
	if cause := callerGaveUp(ctx, code); cause != nil && !p.gone() {
		h.mu.Lock()
		inst.restless = time.Now().Add(call.limit)
		h.mu.Unlock()
		return &embed.Error{Class: embed.Transient, Code: "canceled", Err: cause}
	}
	// A plugin that gives up at the very deadline has not answered either; its text would be tried again for ever.
	if code == codes.DeadlineExceeded && time.Since(call.at) > call.limit-call.limit/10 {
		if p.killedFor() == "" {
			h.stats.hangs.Add(1)
		}
		p.kill(fmt.Sprintf("no answer within %s", call.limit))
		waitExit(p)
		h.retire(inst)
		return &embed.Error{
			Class: embed.Crash, Code: "deadline",
			Err: fmt.Errorf("plugin %q did not answer %d texts within %s and was killed", inst.slot.opts.Name, len(texts),
				call.limit),
		}
	}
	// Only the plugin itself says when to come again: then it lives.
	if (code == codes.Unavailable || code == codes.Canceled) && retryDelay(status.Convert(err)) == 0 {
		if !inst.alive(ctx) {
			h.retire(inst)
			return explainEnd(inst, len(texts), call)
		}
	}
	whole := fromStatus(err, texts)
	if whole.Code == "internal" || whole.Code == "message_size" {
		h.answeredBadly(inst, call, whole)
	}
	return whole
}

// callerGaveUp returns why the caller no longer wants the answer, or nil. The plugin knows the caller's deadline and
// may give up a moment before the context here does.
func callerGaveUp(ctx context.Context, code codes.Code) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	const moment = 100 * time.Millisecond
	if deadline, ok := ctx.Deadline(); ok && code == codes.DeadlineExceeded && time.Until(deadline) < moment {
		return context.DeadlineExceeded
	}
	return nil
}

// alive finds out whether a failed call was the plugin's answer or the end of the plugin. One that is there but
// cannot be reached is killed.
func (i *instance) alive(ctx context.Context) bool {
	if i.process.gone() {
		return false
	}
	// The caller may have gone; the plugin is asked all the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), healthTimeout)
	defer cancel()
	_, err := i.rpc.Health(ctx, &pluginpb.HealthRequest{})
	switch status.Code(err) {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
	default:
		return true // whatever it said, it said something
	}
	timer := time.NewTimer(healthTimeout)
	defer timer.Stop()
	select {
	case <-i.process.exited:
	case <-timer.C:
		i.process.kill("it could not be reached any more")
		waitExit(i.process)
	}
	return false
}

// retire notes the end of a process that is seen by a call first.
func (h *Host) retire(inst *instance) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if inst.process.gone() {
		h.retireLocked(inst)
	}
}

// explainEnd says how the plugin ended in the middle of a call. Only a plugin that died by itself, and after the call
// had begun, is held against the texts, or one that this call alone drove over its memory limit.
func explainEnd(inst *instance, texts int, call sent) error {
	p, name := inst.process, inst.slot.opts.Name
	if !p.gone() {
		return unavailable(0, fmt.Errorf("plugin %q does not end though it was killed", name))
	}
	state, died := p.ending()
	reason := p.killedFor()
	switch {
	case reason != "" && p.greedy() && call.memory > 0 && call.memory <= int64(inst.slot.opts.MemoryLimit/2):
		return &embed.Error{
			Class: embed.Crash, Code: "memory",
			Err: fmt.Errorf("plugin %q was ended while it held %d texts: %s", name, texts, reason),
		}
	case reason != "":
		return unavailable(0, fmt.Errorf("plugin %q was ended during the call: %s", name, reason))
	case died.Before(call.at):
		return unavailable(0, fmt.Errorf("plugin %q had just ended: %w", name, death(state.String())))
	}
	return &embed.Error{Class: embed.Crash, Code: "crashed", Err: fmt.Errorf("plugin %q died while it held %d texts: %w",
		name, texts, death(state.String()))}
}

var _ embed.Tokenizer = (*Host)(nil)

// Tokenize implements embed.Tokenizer. It splits calls as Embed does and has the same errors; embed.ErrNoTokens is
// the cause of the Configuration error "no_tokens" of a plugin without that method. A text that cannot be sent at all
// fails the whole call.
func (h *Host) Tokenize(ctx context.Context, texts []string) (embed.Tokens, error) {
	all := embed.Tokens{Ends: make([][]int, 0, len(texts))}
	if len(texts) == 0 {
		return all, nil
	}
	p, err := h.acquire(ctx)
	if err != nil {
		return embed.Tokens{}, err
	}
	defer func() { h.release(p) }()
	err = limitsOf(p.inst.desc).inBatches(texts, invalid, func(b *batch) error {
		part, err := h.tokenize(ctx, &p, b)
		all.Ends, all.Around = append(all.Ends, part.Ends...), part.Around
		return err
	})
	if err != nil {
		return embed.Tokens{}, err
	}
	return all, nil
}

// tokenize sends one batch and checks its answer, which does not prove that the plugin can embed: no failure is
// forgotten for it.
func (h *Host) tokenize(ctx context.Context, p *permit, b *batch) (tokens embed.Tokens, err error) {
	inst := p.inst
	var resp *pluginpb.TokenizeResponse
	var unknown bool
	err = h.exchange(ctx, p, exchange{
		batch: b,
		send: func(ctx context.Context) (err error) {
			resp, err = inst.rpc.Tokenize(ctx, &pluginpb.TokenizeRequest{Model: inst.desc.Model, Texts: b.texts},
				grpc.MaxCallRecvMsgSize(tokensLimit(b)), atMost(len(b.texts)))
			unknown = status.Code(err) == codes.Unimplemented
			return err
		},
		read: func() (err error) { tokens, err = readTokens(resp, b.texts); return err },
	})
	if unknown {
		err = configuration("no_tokens", fmt.Errorf("plugin %q: %w", inst.slot.opts.Name, embed.ErrNoTokens))
	}
	return tokens, err
}

// maxTokensPerByte is what the contract allows.
const maxTokensPerByte = 4

// tokensLimit is the largest answer in bytes that can be to the point: a token a byte, in five bytes each.
func tokensLimit(b *batch) int { return 5*b.bytes + 64*len(b.texts) + 64<<10 }

// readTokens checks an answer.
func readTokens(resp *pluginpb.TokenizeResponse, texts []string) (embed.Tokens, error) {
	if n := len(resp.GetTokens()); n != len(texts) {
		return embed.Tokens{}, badAnswer("wrong_count", "the plugin told the tokens of %d texts, want %d", n, len(texts))
	}
	tokens := embed.Tokens{Ends: make([][]int, len(texts)), Around: int(min(resp.GetAround(), maxInt32))}
	for i, text := range texts {
		told := resp.GetTokens()[i].GetEnds()
		if n := len(told); n > maxTokensPerByte*len(text) {
			return embed.Tokens{}, badAnswer("bad_answer", "the plugin told of %d tokens in a text of %d bytes", n, len(text))
		}
		ends, last := make([]int, len(told)), 0
		for k, end := range told {
			if int64(end) < int64(last) || int64(end) > int64(len(text)) {
				return embed.Tokens{}, badAnswer("bad_answer",
					"the plugin told of a token that ends at byte %d, after one that ends at %d, in a text of %d bytes", end, last,
					len(text))
			}
			last = int(end)
			ends[k] = last
		}
		tokens.Ends[i] = ends
	}
	return tokens, nil
}
