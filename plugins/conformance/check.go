package conformance

import (
	"context"
	"fmt"
	"slices"
)

// Verdict is what a check found.
type Verdict string

// The verdicts, from good to bad.
const (
	Pass Verdict = "pass"
	Warn Verdict = "warn" // the sidecar copes, somebody will wonder
	Fail Verdict = "fail" // the contract is broken
)

func worse(a, b Verdict) Verdict {
	order := []Verdict{Pass, Warn, Fail}
	return order[max(slices.Index(order, a), slices.Index(order, b))]
}

// Check is the outcome of one check.
type Check struct {
	ID       string  `json:"id"`
	Title    string  `json:"title"` // what must hold
	Verdict  Verdict `json:"verdict"`
	Measured string  `json:"measured"`
	Advice   string  `json:"advice,omitempty"` // what to do; "" when it passed
	Seconds  float64 `json:"seconds"`
}

// finding is what a check returns.
type finding struct {
	verdict          Verdict
	measured, advice string
}

func pass(measured string, args ...any) finding {
	return finding{verdict: Pass, measured: fmt.Sprintf(measured, args...)}
}

func warn(advice, measured string, args ...any) finding {
	return finding{verdict: Warn, measured: fmt.Sprintf(measured, args...), advice: advice}
}

func fail(advice, measured string, args ...any) finding {
	return finding{verdict: Fail, measured: fmt.Sprintf(measured, args...), advice: advice}
}

// stopped ends a check with the error of a call, as a panic that check recovers: most calls of a check must succeed.
type stopped struct{ err error }

// must is the value of a call that has none but with an error.
func must[T any](value T, err error) T {
	if err != nil {
		panic(stopped{err})
	}
	return value
}

// check is one thing that must hold.
type check struct {
	id, title string
	bare      bool // starts the program by itself
	run       func(context.Context, *tester) finding
	// advice is for when a call fails in the middle of it.
	advice string
}

// checks are all there are, in the order in which they run: what each must find, and what helps where a call fails in
// the middle of it.
var checks = []check{
	{
		id: "start", run: checkStart, bare: true,
		title: "it starts, shakes hands and describes itself",
	},
	{
		id: "cookie", run: checkCookie, bare: true,
		title: "it refuses to be started by hand, and says why",
	},
	{
		id: "version", run: checkVersion, bare: true,
		title: "it does not go along with a version of the protocol that it does not know",
	},
	{
		id: "strangers", run: checkStrangers,
		title: "it talks to its host only (TLS on both sides)",
	},
	{
		id: "describe", run: checkDescribe,
		title: "its description is valid for every model, and the same each time",
	},
	{
		id: "health", run: checkHealth,
		title:  "it says that it is ready, at once, also while it embeds",
		advice: "serve Health beside Embed, on a thread of its own",
	},
	{
		id: "unknown", run: checkUnknown,
		title: "it refuses models and kinds that it does not know, by the right status",
	},
	{
		id: "future", run: checkFuture,
		title:  "it lives with fields and methods of a later version of the contract",
		advice: "ignore fields that you do not know; do not validate for their absence",
	},
	{
		id: "order", run: checkOrder,
		title: "answers come in the order of the texts, and different texts have different vectors",
	},
	{
		id: "determinism", run: checkDeterminism,
		title: "the same text has the same vector each time, also after a restart",
	},
	{
		id: "batch-invariance", run: checkBatchInvariance,
		title: "a text has the same vector whatever else is in the batch",
	},
	{
		id: "kinds", run: checkKinds,
		title: "documents and queries are told apart as described",
	},
	{
		id: "unicode", run: checkUnicode,
		title:  "no valid UTF-8 breaks a call",
		advice: "one strange text must not fail the call: give it a vector, call it empty, or give it an error of its own",
	},
	{
		id: "empty", run: checkEmpty,
		title:  "texts without content are empty or have a vector, and their neighbours do not suffer",
		advice: "mark such a text as empty in its outcome; never fail the call",
	},
	{
		id: "huge", run: checkHuge,
		title:  "the largest text and the largest batch that it described are taken",
		advice: "take what you described (max_batch, max_batch_bytes), or describe less; cut a text at max_tokens before you work on it",
	},
	{
		id: "truncation", run: checkTruncation,
		title: "a text above max_tokens is cut and reported as truncated",
	},
	{
		id: "tokens", run: checkTokens,
		title:  "where it tells that tokens end agrees with what the model reads, or it does not tell",
		advice: "no valid text may fail this call; a plugin that cannot tell leaves the method out (UNIMPLEMENTED), and the sidecar estimates",
	},
	{
		id: "concurrency", run: checkConcurrency,
		title: "calls at the same time do not mix up",
	},
	{
		id: "cancellation", run: checkCancellation,
		title: "a call that was cancelled leaves nothing behind that keeps the next from its answer",
	},
	{
		id: "deadline", run: checkDeadline,
		title: "a call whose deadline is over leaves nothing behind that keeps the next from its answer",
	},
	{
		id: "throughput", run: checkThroughput,
		title: "a full call is answered well within the time that the sidecar allows",
	},
	{
		id: "memory", run: checkMemory,
		title: "memory does not grow with the number of texts",
	},
	{
		id: "shutdown", run: checkShutdown,
		title: "it ends when it is asked to",
	},
	{
		id: "lifeline", run: checkLifeline,
		title: "it ends when its host is gone",
	},
	{
		id: "secrecy", run: checkSecrecy,
		title: "neither its output nor its errors hold a text",
	},
}
