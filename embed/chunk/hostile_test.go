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
		"dot, spaces":    "a." + fill(" "),
		"dot, marks":     "a." + fill(" \u0301"),
		"dot, kana":      "a." + fill(" \uff9e"), // letters that do not end the search for the next letter
		"dot, brackets":  "a." + fill(")"),
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

// A long stretch without a letter is a piece of its own, and the sentences beside it stay whole.
func TestCut_SentencesBesideASilentStretch(t *testing.T) {
	t.Parallel()
	one, two := strings.Repeat("One sentence tells of rivers. ", 4), strings.Repeat("Another one tells of bridges. ", 4)
	text := one + strings.Repeat("= ", 2048) + two
	var got []string
	s := chunk.Settings{Strategy: chunk.Sentences, Tokens: 40}
	for _, c := range chunk.Cut(s, chunk.Text{Text: text, Ends: chunk.Estimate(text)}, chunk.Text{}) {
		got = append(got, c.Of(text))
	}
	first, last := got[0], got[len(got)-1]
	if first != strings.TrimSpace(one) || !strings.HasPrefix(last, "Another") || !strings.HasSuffix(two, last+" ") {
		t.Errorf("%d chunks, from %q to %q", len(got), first, last)
	}
}
