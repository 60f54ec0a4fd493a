package conformance

import (
	"log/slog"
	"testing"
	"time"
)

// A text is found in all parts of the host's log: in a line, and in the names and values of fields. The host's own
// messages do not count as output.
func TestRecorder_HearsLinesAndFields(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		message string
		args    []any
		leaks   int
	}{
		{"plugin output", []any{"line", "plain"}, 0},
		{"plugin output", []any{"line", "the text " + canary}, 1},
		{"plugin output", []any{"line", "embedding", slog.Group("fields", "n", 1, "text", canary)}, 1},
		{"plugin output", []any{"line", "embedding", slog.Group("fields", "list", `["`+canary+`"]`)}, 1},
		{"plugin output", []any{"line", "embedding", slog.Group("fields", canary, true)}, 1},
		{"plugin started", []any{"model", canary}, 0},
	} {
		r := &recorder{}
		record := slog.NewRecord(time.Time{}, slog.LevelInfo, c.message, 0)
		record.Add(c.args...)
		if err := r.Handle(t.Context(), record); err != nil {
			t.Error(err)
		}
		if len(r.leaks) != c.leaks {
			t.Errorf("%s %v: %q", c.message, c.args, r.leaks)
		}
		if heard := c.message == "plugin output"; r.lines != map[bool]int{true: 1}[heard] {
			t.Errorf("%s %v: %d lines", c.message, c.args, r.lines)
		}
	}
}
