package host_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/host"
	"github.com/embedsidecar/embedsidecar/testenv/logs"
)

// A plugin leaks its key in all its output: no log, error or result of the host contains it.
func TestHost_TakesSecretsOutOfWhatPluginsSay(t *testing.T) {
	t.Parallel()
	const canary = `canary-"q47q11"-änd-password` // JSON and quoting escape it
	const known = "canary-of-the-sidecar"
	for _, faults := range []string{
		"exit-at-start", "garbage-at-start", "describe-fails", "refuse-on=X",
		"unavailable-every=1", "flood=3/call",
	} {
		t.Run(faults, func(t *testing.T) {
			t.Parallel()
			var logged logs.Buffer
			o := options(map[string]string{
				"EMBEDSIDECAR_PLUGIN_FAULTS": faults, "EMBEDSIDECAR_PLUGIN_API_KEY": canary + known,
			})
			o.Log = slog.New(slog.NewJSONHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
			o.Redact = func(s string) string { return strings.ReplaceAll(s, known, "masked") }
			h, err := host.New(o)
			if err != nil {
				t.Fatal(err)
			}
			results, err := h.Embed(t.Context(), embed.Document, []string{"X one", "two"})
			if err := h.Close(); err != nil { // all its output is logged then
				t.Error(err)
			}
			said := fmt.Sprint(err)
			if start, ok := errors.AsType[*host.StartError](err); ok {
				said += strings.Join(start.Stderr, "\n")
			}
			for _, r := range results {
				said += fmt.Sprint(r.Err)
			}
			said += logged.String()
			if !strings.Contains(said, "xxxxx") {
				t.Errorf("nothing was masked, so nothing was let out: %s", said)
			}
			for _, part := range []string{"canary", "q47q11", known, "änd-pass", "nd-password"} {
				if strings.Contains(said, part) {
					t.Errorf("it holds %q: %s", part, said)
				}
			}
		})
	}
}
