package main

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/plugins/conformance"
	"github.com/embedsidecar/embedsidecar/plugins/sdk"
)

func TestEmbed(t *testing.T) {
	answers, err := embedder{}.Embed(t.Context(), name, sdk.Document, []string{"one two two", ""})
	if err != nil {
		t.Fatal(err)
	}
	if len(answers) != 2 || len(answers[0].Vector) != dims || answers[0].Tokens != 3 || !answers[1].Empty {
		t.Errorf("%+v", answers)
	}
}

// The same as embedsidecar plugins test.
func TestContract(t *testing.T) {
	plugin := filepath.Join(t.TempDir(), "embedsidecar-"+name)
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", plugin, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	report, err := conformance.Run(t.Context(), conformance.Options{
		Path: plugin, Soak: 2 * time.Second, Patience: 100,
		CallTimeout: func(int, int) time.Duration { return time.Hour },
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range report.Checks {
		if c.Verdict == conformance.Fail {
			t.Errorf("%s: %s\nto do: %s", c.ID, c.Measured, c.Advice)
		}
	}
}
