package logging

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

type hidden struct{}

func (hidden) String() string { return "hunter2" }

// Whatever a secret is in, it does not get into the log.
func TestNew_LetsNothingSecretThrough(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"text", "json"} {
		var b strings.Builder
		log := New(&b, Options{Format: format, Redact: func(s string) string {
			return strings.ReplaceAll(s, "hunter2", "xxxxx")
		}})
		log.With("dsn", "u:hunter2@h").WithGroup("g").InfoContext(t.Context(), "connect with hunter2",
			"error", errors.New("password hunter2"), "list", []string{"a", "hunter2"}, "stringer", hidden{},
			slog.Group("more", "text", "hunter2"), "took", 1500*time.Millisecond, "n", 7)
		got := b.String()
		if strings.Contains(got, "hunter2") || strings.Count(got, "xxxxx") != 6 || !strings.Contains(got, "1.5s") {
			t.Errorf("%s: %s", format, got)
		}
	}
}

func TestNew_FormsAndLevels(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		format   string
		terminal bool
		json     bool
	}{{"auto", true, false}, {"auto", false, true}, {"json", true, true}, {"text", false, false}} {
		var b strings.Builder
		log := New(&b, Options{
			Format: test.format, Terminal: test.terminal, Level: slog.LevelWarn, Redact: func(s string) string { return s },
		})
		log.InfoContext(t.Context(), "not told")
		log.WarnContext(t.Context(), "told")
		if got := b.String(); strings.HasPrefix(got, "{") != test.json || strings.Count(got, "\n") != 1 {
			t.Errorf("%+v: %s", test, got)
		}
	}
}
