// Package conformance tests whether a plugin keeps the contract of plugins/proto, and advises its author how to fix
// failures. It starts the plugin as the sidecar does, and applies the checks of package host to every answer. It checks
// only what must hold for every model, not the quality of vectors.
package conformance

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/plugins/host"
)

// Report is the outcome of all checks, with the plugin's description. The fields Plugin to Dims are empty if it did not
// start.
type Report struct {
	Path        string   `json:"path"`
	Plugin      string   `json:"plugin"`
	Version     string   `json:"version"`
	Model       string   `json:"model"`
	Fingerprint string   `json:"fingerprint"`
	Dims        int      `json:"dims"`
	Verdict     Verdict  `json:"verdict"` // the worst verdict of all checks
	Checks      []Check  `json:"checks"`
	LeftOut     []string `json:"left_out,omitempty"` // checks that need a plugin that starts
}

// IDs returns the ids of all checks, in order.
func IDs() []string {
	return lists.Map(all, func(c check) string { return c.id })
}

// all are the checks, in order.
var all = []check{
	{"start", bare, checkStart, "it starts, shakes hands and describes itself", ""},
	{"cookie", bare, checkCookie, "it refuses to be started by hand, and says why", ""},
	{"version", bare, checkVersion, "it does not go along with a version of the protocol that it does not know", ""},
	{"strangers", ofAny, checkStrangers, "it talks to its host only (TLS on both sides)", ""},
	{"describe", ofAny, checkDescribe, "its description is valid for every model, and the same each time", ""},
	{
		"health", ofVectors, checkHealth, "it says that it is ready, at once, also while it embeds",
		"serve Health beside Embed, on a thread of its own",
	},
	{"unknown", ofVectors, checkUnknown, "it refuses models and kinds that it does not know, by the right status", ""},
	{
		"future", ofVectors, checkFuture, "it lives with fields and methods of a later version of the contract",
		"ignore fields that you do not know; do not validate for their absence",
	},
	{
		"order", ofVectors, checkOrder, "answers come in the order of the texts, and different texts have different vectors",
		"",
	},
	{
		"determinism", ofVectors, checkDeterminism, "the same text has the same vector each time, also after a restart",
		"",
	},
	{
		"batch-invariance", ofVectors, checkBatchInvariance, "a text has the same vector whatever else is in the batch",
		"",
	},
	{"kinds", ofVectors, checkKinds, "documents and queries are told apart as described", ""},
	{
		"unicode", ofVectors, checkUnicode, "no valid UTF-8 breaks a call",
		"one strange text must not fail the call: give it a vector, call it empty, or give it an error of its own",
	},
	{
		"empty", ofVectors, checkEmpty, "texts without content are empty or have a vector, and their neighbours do not suffer",
		"mark such a text as empty in its outcome; never fail the call",
	},
	{
		"huge", ofVectors, checkHuge, "the largest text and the largest batch that it described are taken",
		"take what you described (max_batch, max_batch_bytes), or describe less; cut a text at max_tokens before you work on it",
	},
	{"truncation", ofVectors, checkTruncation, "a text above max_tokens is cut and reported as truncated", ""},
	{
		"tokens", ofVectors, checkTokens, "where it tells that tokens end agrees with what the model reads, or it does not tell",
		"no valid text may fail this call; a plugin that cannot tell leaves the method out (UNIMPLEMENTED), and the sidecar estimates",
	},
	{
		"rerank", ofAny, checkRerank, "a reranker scores each text by itself, in order; any other model refuses to",
		"no valid text may fail this call; a plugin without a reranker leaves the method out (UNIMPLEMENTED)",
	},
	{
		"batches", ofVectors, checkBatches, "a model with batch jobs reports unknown jobs as unknown; any other model refuses to be asked",
		"a plugin without batch jobs leaves the methods out (UNIMPLEMENTED)",
	},
	{"concurrency", ofVectors, checkConcurrency, "calls at the same time do not mix up", ""},
	{
		"cancellation", ofVectors, checkCancellation, "a call that was cancelled leaves nothing behind that keeps the next from its answer",
		"",
	},
	{
		"deadline", ofVectors, checkDeadline, "a call whose deadline is over leaves nothing behind that keeps the next from its answer",
		"",
	},
	{
		"throughput", ofVectors, checkThroughput, "a full call is answered well within the time that the sidecar allows",
		"",
	},
	{"memory", ofVectors, checkMemory, "memory does not grow with the number of texts", ""},
	{"shutdown", ofAny, checkShutdown, "it ends when it is asked to", ""},
	{"lifeline", ofAny, checkLifeline, "it ends when its host is gone", ""},
	{"secrecy", ofVectors, checkSecrecy, "neither its output nor its errors hold a text", ""},
}

// Run runs the checks. The report has the plugin's failures; an error means invalid options or a cancelled ctx.
func Run(ctx context.Context, opts Options) (*Report, error) {
	if opts.Soak <= 0 {
		opts.Soak = 10 * time.Second
	}
	if opts.CallTimeout == nil {
		opts.CallTimeout = host.DefaultCallTimeout
	}
	opts.Patience = max(opts.Patience, 1)
	for _, id := range opts.Only {
		if !slices.Contains(IDs(), id) {
			return nil, fmt.Errorf("unknown check %q: choose from %q", id, IDs())
		}
	}
	if _, err := os.Stat(opts.Path); err != nil {
		return nil, err
	}
	t := &tester{opts: opts, said: &recorder{}}
	defer t.stop()
	report := &Report{Path: opts.Path, Verdict: Pass}
	for _, c := range all {
		if len(opts.Only) > 0 && c.id != "start" && !slices.Contains(opts.Only, c.id) {
			continue
		}
		if t.started && t.about.Reranks && c.scope == ofVectors {
			continue
		}
		if c.scope != bare && !t.started {
			report.LeftOut = append(report.LeftOut, c.id)
			continue
		}
		done := t.check(ctx, c)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		report.Checks = append(report.Checks, done)
		report.Verdict = worse(report.Verdict, done.Verdict)
		if opts.Progress != nil {
			opts.Progress(done)
		}
	}
	d := t.about
	report.Plugin, report.Version, report.Model, report.Fingerprint, report.Dims = d.Plugin, d.Version, d.Model,
		d.Fingerprint, d.Dims
	return report, nil
}
