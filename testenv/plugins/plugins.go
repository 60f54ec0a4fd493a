// Package plugins runs plugins for tests. Their time limits are generous, so that none fails because a machine is slow.
package plugins

import (
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/plugins/conformance"
	"github.com/embedsidecar/embedsidecar/plugins/host"
)

func hour(int, int) time.Duration { return time.Hour }

// Start runs a plugin until the test's end.
func Start(t testing.TB, o host.Options) *host.Host {
	t.Helper()
	o.StartTimeout, o.CallTimeout = time.Hour, hour
	h, err := host.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// KeepsContract fails the test for each check of the contract that the plugin does not pass.
func KeepsContract(t testing.TB, o conformance.Options) *conformance.Report {
	t.Helper()
	o.Soak, o.Patience, o.CallTimeout = 500*time.Millisecond, 100, hour
	report, err := conformance.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range report.Checks {
		if c.Verdict != conformance.Pass {
			t.Errorf("%+v", c)
		}
	}
	return report
}
