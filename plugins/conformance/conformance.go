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

// IDs returns the ids of all checks, in the order in which they run.
func IDs() []string {
	var ids []string
	for _, c := range all() {
		ids = append(ids, c.id)
	}
	return ids
}

func all() []check {
	return slices.Concat(startChecks(), descriptionChecks(), answerChecks(), textChecks(), tokenChecks(), rerankChecks(),
		batchChecks(),
		loadChecks(), endChecks())
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
		if t.started && t.about.Reranks && !c.reranks {
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
