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
	// maxAnswerBytes bounds the vectors of one call.
	maxAnswerBytes = 16 << 20
	// healthTimeout is the limit of the health check after a failed connection, and of the wait for the exit of an
	// unreachable plugin. Both usually take milliseconds. The limit is generous because a plugin on a busy machine must
	// not be taken for dead.
	healthTimeout = 10 * time.Second
	// nextProcess is how long a query waits for the next process after its own died.
	nextProcess = 3 * time.Second
)

// death is the exit state of a process that the host did not end.
type death string

func (d death) Error() string { return string(d) }

// Embed implements embed.Embedder. A call larger than the plugin's limits (or 32 MiB of text, or 16 MiB of vectors) is
// split into several, sent one after the other. If one of them fails, the whole call fails. Callers that want to keep
// partial results stay within the described MaxBatch and MaxBatchBytes.
//
// Errors of the whole call are *embed.Error:
//   - Transient "unavailable": the plugin is not running, is ending, or asked for a pause. RetryAfter is how long to
//     wait;
//   - Transient "circuit_open": it failed repeatedly, so nothing is sent to it until RetryAfter is over;
//   - Transient "deadline": something that the plugin waited for timed out. Transient "canceled": the caller gave up;
//   - Crash "crashed": the plugin died while it held these texts; every call under way gets this error. Crash
//     "deadline": it did not answer in time and was killed; other calls under way do not get this error. Crash
//     "memory": these texts alone drove it over its memory limit, and it was killed;
//   - Data "wrong_count", "wrong_dims", "bad_answer", "message_size": the answer breaks the contract. Data "invalid",
//     "internal": the plugin blames these texts. Halve the batch to find the one;
//   - Resource "resource": retry later with fewer texts;
//   - Configuration: the codes of Describe, and "misconfigured" if the plugin reports it in a call.
//
// Errors of single texts are *embed.TextError: Data with the codes "zero_vector", "not_finite", "too_many_numbers",
// "too_long", "refused" and "invalid"; Transient "retry_later". If all of several texts have "retry_later", the call
// fails with Transient "unavailable" and the longest delay as RetryAfter.
//
// If a process dies during a query, the query is retried once on the next process, because a user waits for the answer.
//
// The vectors of one call share one allocation: a reference to one keeps all of them in memory.
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

// batch holds the texts of one call.
type batch struct {
	texts []string
	at    []int // index of each text in the caller's list
	bytes int
}

func (b *batch) add(at int, text string) {
	b.texts, b.at, b.bytes = append(b.texts, text), append(b.at, at), b.bytes+len(text)
}

func batchOf(texts []string) *batch {
	b := &batch{}
	for at, text := range texts {
		b.add(at, text)
	}
	return b
}

// limits bound one call to a plugin.
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

// inBatches sends the texts in batches within the limits, one after the other. It calls refused for a text that cannot
// be sent, and stops if that returns an error.
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

// invalid fails the whole call because of a text that cannot be sent.
func invalid(_ int, why error) error {
	return &embed.Error{Class: embed.Data, Code: "invalid", Err: why}
}

// refuse returns why a text cannot be sent, or nil.
func (l limits) refuse(text string) error {
	if len(text) > l.bytes {
		return &embed.TextError{
			Class: embed.Data, Code: "too_long",
			Message: fmt.Sprintf("%d bytes of text are more than the plugin's limit of %d per call", len(text), l.bytes),
		}
	}
	if !utf8.ValidString(text) {
		return &embed.TextError{Class: embed.Data, Code: "invalid", Message: "the text is not valid UTF-8"}
	}
	return nil
}

// allLater turns answers that are all "retry later" into an error of the whole call, because then the plugin is busy.
// For a single text it is unknown whether the plugin or the text is the cause.
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
	return nil, unavailable(longest, fmt.Errorf("the plugin asks to retry all %d texts later", len(results)))
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

	query string // the plugin reads it with each text
	works bool   // the call is counted, and a good answer proves that the plugin works
	send  func(ctx context.Context) error
	read  func() error
}

// exchange makes a call and checks the answer. The time limit grows with the other calls under way.
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

// answerLimit is the largest accepted answer in bytes: twice the vectors, and room for messages.
func answerLimit(texts int, d embed.Description) int {
	return 2*texts*VectorBytes(d) + texts*(maxMessage+64) + 64<<10
}

// VectorBytes is the size of a vector in an answer; for sparse vectors, the largest possible one.
func VectorBytes(d embed.Description) int {
	if d.Sparse {
		return 8*min(d.Dims, pluginpb.MaxSparseNumbers) + 3
	}
	return 4 * d.Dims
}

// answeredBadly counts an invalid answer, and restarts the plugin after MaxBadAnswers in a row. Batches that the caller
// will halve do not count towards that: one bad text would otherwise count once per halving.
func (h *Host) answeredBadly(inst *instance, call sent, err error) {
	h.stats.bad.Add(1)
	if call.halved {
		return
	}
	if n := inst.bad.Add(1); n >= int64(inst.slot.opts.MaxBadAnswers) {
		inst.slot.opts.Log.Warn("plugin restarted after bad answers", "pid", inst.process.pid, "in_a_row", n, "last", err)
		reason := fmt.Sprintf("it gave %d bad answers in a row", n)
		inst.process.kill(reason)
		h.trip(reason)
	}
}

// sent is what is recorded before a call is sent.
type sent struct {
	at     time.Time
	limit  time.Duration
	memory int64 // of the process at that time, in bytes; 0: not measured
	halved bool  // if it fails, the caller halves the batch to find the bad text
}

// explainCall classifies a failed call, and kills the plugin if it hangs.
func (h *Host) explainCall(ctx context.Context, inst *instance, texts []string, err error, call sent) error {
	p := inst.process
	code := status.Code(err)
	if cause := callerGaveUp(ctx, code); cause != nil && !p.gone() {
		h.mu.Lock()
		inst.restless = time.Now().Add(call.limit)
		h.mu.Unlock()
		return &embed.Error{Class: embed.Transient, Code: "canceled", Err: cause}
	}
	// A deadline error that arrives at the deadline counts as no answer: otherwise its text would be retried forever.
	if code == codes.DeadlineExceeded && time.Since(call.at) > call.limit-call.limit/10 {
		if p.killedFor() == "" {
			h.stats.hangs.Add(1)
		}
		p.kill(fmt.Sprintf("no answer within %s", call.limit))
		waitExit(p, exitTimeout)
		h.retire(inst)
		return &embed.Error{
			Class: embed.Crash, Code: "deadline",
			Err: fmt.Errorf("plugin %q did not answer %d texts within %s and was killed", inst.slot.opts.Name, len(texts),
				call.limit),
		}
	}
	// Only a running plugin sends a retry delay.
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
// may give up shortly before this context expires.
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

// alive reports whether the plugin still runs after a failed call. A running but unreachable plugin is killed.
func (i *instance) alive(ctx context.Context) bool {
	if i.process.gone() {
		return false
	}
	// The check also runs if the caller has gone.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), healthTimeout)
	defer cancel()
	_, err := i.rpc.Health(ctx, &pluginpb.HealthRequest{})
	switch status.Code(err) {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
	default:
		return true // any answer proves that it runs
	}
	if !waitExit(i.process, healthTimeout) {
		i.process.kill("it could no longer be reached")
		waitExit(i.process, exitTimeout)
	}
	return false
}

// retire records the end of a process that a call notices first.
func (h *Host) retire(inst *instance) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if inst.process.gone() {
		h.retireLocked(inst)
	}
}

// explainEnd returns the error for a plugin that ended during a call. The texts are blamed (Crash) only if the plugin
// died by itself after the call began, or if this call alone drove it over its memory limit.
func explainEnd(inst *instance, texts int, call sent) error {
	p, name := inst.process, inst.slot.opts.Name
	if !p.gone() {
		return unavailable(0, fmt.Errorf("plugin %q was killed but has not exited", name))
	}
	state, died := p.ending()
	reason := p.killedFor()
	switch {
	case reason != "" && p.greedy() && call.memory > 0 && call.memory <= int64(inst.slot.opts.MemoryLimit/2):
		return &embed.Error{
			Class: embed.Crash, Code: "memory",
			Err: fmt.Errorf("plugin %q was killed while it held %d texts: %s", name, texts, reason),
		}
	case reason != "":
		return unavailable(0, fmt.Errorf("plugin %q was stopped during the call: %s", name, reason))
	case died.Before(call.at):
		return unavailable(0, fmt.Errorf("plugin %q ended before the call: %w", name, death(state.String())))
	}
	return &embed.Error{Class: embed.Crash, Code: "crashed", Err: fmt.Errorf("plugin %q died while it held %d texts: %w",
		name, texts, death(state.String()))}
}

var _ embed.Tokenizer = (*Host)(nil)

// Tokenize implements embed.Tokenizer. It splits calls as Embed does and returns the same errors. A plugin without that
// method returns the Configuration error "no_tokens", which wraps embed.ErrNoTokens. A text that cannot be sent fails
// the whole call.
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

// tokenize sends one batch and checks its answer. A good answer does not prove that the plugin can embed, so it does
// not reset failures.
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

// maxTokensPerByte is the most tokens per byte of text that the contract allows.
const maxTokensPerByte = 4

// tokensLimit is the largest accepted answer in bytes: one token per byte of text, each encoded in five bytes.
func tokensLimit(b *batch) int { return 5*b.bytes + 64*len(b.texts) + 64<<10 }

// readTokens checks the answer to Tokenize.
func readTokens(resp *pluginpb.TokenizeResponse, texts []string) (embed.Tokens, error) {
	if n := len(resp.GetTokens()); n != len(texts) {
		return embed.Tokens{}, badAnswer("wrong_count", "the plugin returned tokens for %d texts, want %d", n, len(texts))
	}
	tokens := embed.Tokens{Ends: make([][]int, len(texts)), Around: int(min(resp.GetAround(), maxInt32))}
	for i, text := range texts {
		told := resp.GetTokens()[i].GetEnds()
		if n := len(told); n > maxTokensPerByte*len(text) {
			return embed.Tokens{}, badAnswer("bad_answer", "the plugin returned %d tokens for a text of %d bytes", n, len(text))
		}
		ends, last := make([]int, len(told)), 0
		for k, end := range told {
			if int64(end) < int64(last) || int64(end) > int64(len(text)) {
				return embed.Tokens{}, badAnswer("bad_answer",
					"the plugin returned a token that ends at byte %d after one that ends at %d, in a text of %d bytes", end, last,
					len(text))
			}
			last = int(end)
			ends[k] = last
		}
		tokens.Ends[i] = ends
	}
	return tokens, nil
}
