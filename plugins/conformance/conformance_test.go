package conformance_test

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/plugins/conformance"
)

func run(t *testing.T, o conformance.Options) *conformance.Report {
	t.Helper()
	if o.Path == "" {
		o.Path = fake
	}
	if o.Soak == 0 {
		o.Soak = 500 * time.Millisecond
	}
	// No plugin fails only because the machine is slow.
	o.Patience = cmp.Or(o.Patience, 100)
	if o.CallTimeout == nil {
		o.CallTimeout = func(int, int) time.Duration { return time.Hour }
	}
	report, err := conformance.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// verdict returns the result of one check.
func verdict(t *testing.T, report *conformance.Report, id string) conformance.Check {
	t.Helper()
	for _, c := range report.Checks {
		if c.ID == id {
			return c
		}
	}
	t.Fatalf("no check %q in %+v", id, report)
	return conformance.Check{}
}

// bare is the test binary as a plugin without the SDK.
func bare(t *testing.T, vices string) conformance.Options {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return conformance.Options{Path: self, Env: map[string]string{bareKey: vices}}
}

func TestRun_GoodPluginsPass(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]conformance.Options{
		"fake":         {},
		"next version": {Env: map[string]string{"EMBEDSIDECAR_PLUGIN_FAULTS": "next-version"}},
		"sparse": {Env: map[string]string{
			"EMBEDSIDECAR_PLUGIN_SPARSE": "true", "EMBEDSIDECAR_PLUGIN_DIMS": "384",
			"EMBEDSIDECAR_PLUGIN_FAULTS": "next-version",
		}},
		"slow":      {Env: map[string]string{"EMBEDSIDECAR_PLUGIN_FAULTS": "cost=200us/text"}},
		"no tokens": {Env: map[string]string{"EMBEDSIDECAR_PLUGIN_FAULTS": "no-tokens"}},
		"small calls": {Env: map[string]string{
			"EMBEDSIDECAR_PLUGIN_MAX_BATCH":       "3",
			"EMBEDSIDECAR_PLUGIN_MAX_BATCH_BYTES": "20000",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := run(t, o)
			var ids []string
			for _, c := range report.Checks {
				ids = append(ids, c.ID)
				if c.Verdict != conformance.Pass || c.Advice != "" || c.Measured == "" || c.Title == "" {
					t.Errorf("%+v", c)
				}
			}
			if !slices.Equal(ids, conformance.IDs()) || report.Verdict != conformance.Pass || report.Plugin != "fake" ||
				report.Dims != 384 {
				t.Errorf("checks %q of %s with %d dims: %s", ids, report.Plugin, report.Dims, report.Verdict)
			}
		})
	}
}

// faults is the plugin fake with faults.
func faults(list string) conformance.Options {
	return conformance.Options{Env: map[string]string{"EMBEDSIDECAR_PLUGIN_FAULTS": list}}
}

func sparse(o conformance.Options) conformance.Options {
	o.Env["EMBEDSIDECAR_PLUGIN_SPARSE"] = "true"
	return o
}

func reranking(o conformance.Options) conformance.Options {
	o.Env["EMBEDSIDECAR_PLUGIN_RERANKS"] = "true"
	return o
}

func batching(o conformance.Options) conformance.Options {
	o.Env["EMBEDSIDECAR_PLUGIN_BATCHES"] = "true"
	return o
}

// waitedFor is for plugins that fail by a time limit.
func waitedFor(o conformance.Options) conformance.Options {
	o.Patience = 1
	return o
}

func hasty(o conformance.Options) conformance.Options {
	o.CallTimeout = func(int, int) time.Duration { return 2 * time.Second }
	return o
}

// condemned is a plugin that fails a check.
type condemned struct {
	check, name string
	options     conformance.Options
	verdict     conformance.Verdict
	says        string
}

func condemnedPlugins(t *testing.T) []condemned {
	t.Helper()
	return []condemned{
		{"start", "exits", faults("exit-at-start"), conformance.Fail, "told to exit at start"},
		{"start", "cannot describe itself", faults("describe-fails"), conformance.Fail, "told to find no model"},
		{"cookie", "starts without", bare(t, "no-cookie"), conformance.Fail, "still made the handshake"},
		{"cookie", "says all is well", bare(t, "all-is-well"), conformance.Fail, "status 0"},
		{"cookie", "says nothing", bare(t, "silent"), conformance.Warn, "no word"},
		{"version", "claims any", bare(t, "any-version"), conformance.Fail, "claims to speak version 1000"},
		{"strangers", "serves them", bare(t, "open"), conformance.Fail, "is served"},
		{
			"describe", "another fingerprint each time", faults("new-fingerprint"), conformance.Fail,
			"describes itself differently",
		},
		{"health", "never answers", waitedFor(faults("health-hangs")), conformance.Fail, "no answer within 2s"},
		{"health", "not ready", faults("not-ready"), conformance.Fail, "told not to be"},
		{"unknown", "serves any model", faults("any-model"), conformance.Fail, "does not exist was served"},
		{"future", "refuses fields", faults("refuses-unknown"), conformance.Fail, "not known"},
		{"order", "backwards", faults("reversed"), conformance.Fail, "belong to other texts"},
		{"order", "all the same", faults("same-vector"), conformance.Fail, "all have the same vector"},
		{"order", "wrong count", faults("wrong-count-every=2"), conformance.Fail, "must refuse"},
		{"order", "sparse and in no order", sparse(faults("unsorted")), conformance.Fail, "must refuse"},
		{"order", "sparse and backwards", sparse(faults("permute-every=1")), conformance.Fail, "belong to other texts"},
		{"rerank", "in another order", reranking(faults("permute-every=1")), conformance.Fail, "in the opposite order"},
		{"batches", "makes some up", faults("any-job"), conformance.Fail, "a model without batch jobs was served"},
		{"batches", "knows any", batching(faults("any-job")), conformance.Fail, "by a nonce of nobody"},
		{"batches", "has some", batching(faults("next-version")), conformance.Pass, "unknown jobs are handled"},
		{"determinism", "noise", faults("noise"), conformance.Fail, "described as deterministic"},
		{"batch-invariance", "noise", faults("batch-noise"), conformance.Fail, "alone and beside longer texts"},
		{"kinds", "queries differ", faults("query-differs"), conformance.Fail, "described as symmetric"},
		{"unicode", "panics", faults("panic-on=marked"), conformance.Fail, "a byte order mark"},
		{"unicode", "dies", faults("crash-on=marked"), conformance.Fail, "a byte order mark"},
		{"unicode", "no vector", faults("refuse-on=\u202e"), conformance.Warn, "right to left (embed text: refused"},
		{"empty", "zeros", faults("zero-for-empty"), conformance.Fail, "zero_vector"},
		{"huge", "dies", faults("long-kills"), conformance.Fail, "died during a call with one text (32.0 MiB)"},
		{"huge", "small messages", bare(t, "small"), conformance.Fail, "does not fit"},
		{"truncation", "reads all", faults("never-truncates"), conformance.Fail, "max_tokens 8"},
		{"tokens", "counts characters", faults("tokens-in-characters"), conformance.Fail, "inside of a character"},
		{"tokens", "varies", faults("tokens-vary"), conformance.Fail, "has other tokens when"},
		{"tokens", "cuts", faults("tokens-cut"), conformance.Fail, "the last words of one text"},
		{"tokens", "dies", faults("tokens-die"), conformance.Fail, "a byte order mark"},
		{"tokens", "serves any model", faults("any-model"), conformance.Fail, "does not exist"},
		{
			"tokens", "is not cut where it says", faults("never-truncates"), conformance.Fail,
			"9 tokens, with 0 around it, is not cut at max_tokens 8",
		},
		{"tokens", "not offered", faults("no-tokens"), conformance.Pass, "not offered"},
		{"tokens", "counts others", faults("tokens-around"), conformance.Warn, "here it has"},
		{
			"concurrency", "mixes up", faults("reversed-when-busy;cost=100ms/call"), conformance.Fail,
			"differ from those of calls one by one",
		},
		{
			"cancellation", "stuck", hasty(faults("stuck-after-cancel;cost=500ms/call")), conformance.Fail,
			"no answer within 2s",
		},
		{"deadline", "stuck", hasty(faults("stuck-after-deadline;cost=500ms/call")), conformance.Fail, "no answer within 2s"},
		{"throughput", "slow", hasty(faults("cost=1500ms/call")), conformance.Fail, "2s"},
		{"memory", "leaks", faults("leak=4MiB/call"), conformance.Fail, "grew to"},
		{"shutdown", "stays", waitedFor(bare(t, "")), conformance.Warn, "still there 3s after Shutdown"},
		{"lifeline", "outlives its host", waitedFor(faults("outlives-host")), conformance.Fail, "still there 3s"},
		{"secrecy", "prints texts", faults("prints-texts"), conformance.Fail, "its output"},
		{"secrecy", "quotes texts in errors", faults("invalid-on=Quetzal"), conformance.Fail, ""},
	}
}

// Every check must be able to fail: each has a plugin here that fails it.
func TestRun_EveryCheckCanFail(t *testing.T) {
	t.Parallel()
	canFail := map[string]bool{}
	for _, test := range condemnedPlugins(t) {
		if test.verdict == conformance.Fail || test.check == "shutdown" {
			canFail[test.check] = true
		}
		if test.name == "says nothing" && testing.CoverMode() != "" {
			continue // this binary itself then prints that its coverage is not kept
		}
		t.Run(test.check+"/"+test.name, func(t *testing.T) {
			t.Parallel()
			o := test.options
			o.Only = []string{test.check}
			report := run(t, o)
			got := verdict(t, report, test.check)
			if got.Verdict != test.verdict || !strings.Contains(got.Measured, test.says) ||
				(got.Advice == "") != (test.verdict == conformance.Pass) {
				t.Errorf("%+v", got)
			}
			if strings.Contains(got.Measured, "Quetzalcoatlus") {
				t.Errorf("the report quotes a text: %s", got.Measured)
			}
		})
	}
	for _, id := range conformance.IDs() {
		if !canFail[id] {
			t.Errorf("nothing shows that the check %q can fail", id)
		}
	}
}

func TestRun_TellsWhatItLeftOut(t *testing.T) {
	t.Parallel()
	report := run(t, conformance.Options{Env: map[string]string{"EMBEDSIDECAR_PLUGIN_FAULTS": "exit-at-start"}})
	if report.Verdict != conformance.Fail || len(report.LeftOut)+len(report.Checks) != len(conformance.IDs()) ||
		len(report.LeftOut) < 15 {
		t.Errorf("%+v", report)
	}
}

func TestRun_Mistakes(t *testing.T) {
	t.Parallel()
	if _, err := conformance.Run(t.Context(), conformance.Options{Path: fake, Only: []string{"odrer"}}); err == nil ||
		!strings.Contains(err.Error(), `"odrer"`) {
		t.Errorf("unknown check: %v", err)
	}
	if _, err := conformance.Run(t.Context(), conformance.Options{Path: fake + "-not"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := conformance.Run(ctx, conformance.Options{Path: fake}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
