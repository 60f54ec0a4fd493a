// Package conformance finds out whether a plugin keeps the contract of plugins/proto, and tells its author what to do
// where it does not. The plugin is started as the sidecar starts it; every answer goes through the checks of package
// host. Nothing here knows what a good vector is: only what must hold for every model.
package conformance

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/embedsidecar/embedsidecar/plugins/host"
)

// Report is the outcome of all checks, with what the plugin said of itself. Plugin to Dims are empty when it never
// came up.
type Report struct {
	Path        string   `json:"path"`
	Plugin      string   `json:"plugin"`
	Version     string   `json:"version"`
	Model       string   `json:"model"`
	Fingerprint string   `json:"fingerprint"`
	Dims        int      `json:"dims"`
	Verdict     Verdict  `json:"verdict"` // the worst of the checks
	Checks      []Check  `json:"checks"`
	LeftOut     []string `json:"left_out,omitempty"` // checks that need a plugin that starts
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

// IDs returns the ids of all checks, in the order in which they run.
func IDs() []string {
	var ids []string
	for _, c := range all() {
		ids = append(ids, c.id)
	}
	return ids
}

func all() []check {
	return slices.Concat(startChecks(), descriptionChecks(), answerChecks(), textChecks(), tokenChecks(), loadChecks(),
		endChecks())
}

// Run runs the checks. What is wrong with the plugin is in the report; an error is a mistake in the options or the
// end of ctx.
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
			return nil, fmt.Errorf("there is no check %q: choose from %q", id, IDs())
		}
	}
	if _, err := os.Stat(opts.Path); err != nil {
		return nil, err
	}
	t := &tester{opts: opts, said: &recorder{}}
	defer t.stop()
	report := &Report{Path: opts.Path, Verdict: Pass}
	for _, c := range all() {
		if len(opts.Only) > 0 && c.id != "start" && !slices.Contains(opts.Only, c.id) {
			continue
		}
		if !c.bare && !t.started {
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
