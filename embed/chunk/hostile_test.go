package chunk_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/embed/chunk"
)

// No text may keep a worker busy for minutes.
func TestCut_HostileTextsTakeLittleTime(t *testing.T) {
	t.Parallel()
	const size = 256 << 10
	fill := func(s string) string { return strings.Repeat(s, size/len(s)) }
	for name, text := range map[string]string{
		"quotes":         fill("> "),
		"nested lists":   fill("- "),
		"numbered":       fill("1. "),
		"lines of quote": fill("> > > > > > a\n"),
		"deeper lists":   strings.Repeat(strings.Repeat(" ", 200)+"- a\n", size/204),
		"brackets":       fill("["),
		"backticks":      fill("`"),
		"fences":         fill("```\n"),
		"tables":         fill("|a"),
		"delimiters":     "|a|\n" + fill("|-"),
		"headings":       fill("# a\n"),
		"no end of it":   fill("x"),
		"spaces":         fill(" ") + "x",
		"lines":          fill("\n") + "x",
		"dots":           fill(". "),
		"one dot":        "a." + fill(","),
		"html":           fill("<div>\n"),
		"setext":         fill("a\n=\n"),
	} {
		for _, strategy := range strategies[1:] {
			began := worked(t)
			chunk.Cut(chunk.Settings{Strategy: strategy, Tokens: 64, Overlap: 8},
				chunk.Text{Text: text, Ends: chunk.Estimate(text)}, chunk.Text{})
			if took := worked(t) - began; took > time.Minute {
				t.Errorf("%s, %s: %s", name, strategy, took)
			} else if took > time.Second {
				t.Logf("%s, %s: %s", name, strategy, took)
			}
		}
	}
}

// worked is the CPU time of this process. Wall time would include waiting for a CPU.
func worked(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
